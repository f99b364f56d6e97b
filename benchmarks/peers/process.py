"""A contender as the benchmark sees it: a process that is started, takes requests and is stopped."""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
QUIET = {
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TQDM_DISABLE": "1",
}


@dataclass(frozen=True)
class Spec:
    """A contender.

    Args:
        title: its name in the tables.
        module: its module in the folder contenders.
        environment: its environment's name; empty is the benchmark's own.
        workers: how many are used in the timed rounds.
        most: the most that it can use.
        methods: the methods that it has.
        given: whether it takes the cohorts it is given; otherwise it draws its own.
        variables: of its processes' environment, which change its speed and not its models.
    """

    title: str
    module: str
    environment: str = ""
    workers: int = 1
    most: int = 1
    methods: tuple[str, ...] = ("fedavg", "scaffold")
    given: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)

    def python(self, folder: Path) -> Path:
        """Its interpreter.

        Args:
            folder: the folder of the peers' environments.
        """
        return folder / self.environment / "bin" / "python" if self.environment else Path(sys.executable)


FEDAVG = ("fedavg",)
DEFAULT_ALLOCATOR = {"UNDRIFT_KEEP_MEMORY": "0"}
SPECS = {
    "bare": Spec("bare PyTorch", "bare"),
    "undrift": Spec("Undrift", "undrift_local"),
    "undrift-ray": Spec("Undrift on Ray", "undrift_ray", workers=2, most=2),
    "undrift-allocator": Spec("Undrift, default allocator", "undrift_local", variables=DEFAULT_ALLOCATOR),
    "undrift-ray-allocator": Spec(
        "Undrift on Ray, default allocator", "undrift_ray", workers=2, most=2, variables=DEFAULT_ALLOCATOR
    ),
    "undrift-together": Spec("Undrift, together", "undrift_together"),
    "undrift-ray-together": Spec("Undrift on Ray, together", "undrift_ray_together", workers=2, most=2),
    "pfl": Spec("pfl-research", "pfl_simulated", "pfl"),
    "pfl-2": Spec("pfl-research", "pfl_simulated", "pfl", workers=2, most=2),
    "fedlab": Spec("FedLab", "fedlab_serial", "fedlab"),
    "fluke": Spec("fluke", "fluke_serial", "fluke"),
    "blazefl": Spec("BlazeFL", "blazefl_serial", "blazefl", methods=FEDAVG),
    "blazefl-2": Spec("BlazeFL, threads", "blazefl_threads", "blazefl", workers=2, most=2, methods=FEDAVG),
    "flower": Spec("Flower", "flower_simulation", "flower", workers=2, most=2, methods=FEDAVG, given=False),
}


class Contender:
    """A running contender; a context manager that ends it.

    Args:
        spec: which one.
        folder: the folder of the peers' environments.
        setting: the name of the setting.
        method: the name of the method.
        scratch: a folder of its own, for its messages and files.
        workers: how many; None takes those of the timed rounds.
        in_order: whether clients read their data in one order.
    """

    def __init__(
        self,
        spec: Spec,
        folder: Path,
        setting: str,
        method: str,
        scratch: Path,
        workers: int | None = None,
        in_order: bool = False,
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.spec, self.log = spec, scratch / "stderr.txt"
        workers = workers or spec.workers
        command = [str(spec.python(folder)), str(HERE / "contender.py"), spec.module, "--workers", str(workers)]
        command += ["--setting", setting, "--method", method, *(["--in-order"] if in_order else [])]
        path = os.pathsep.join([str(HERE), *([] if spec.environment else [str(HERE.parents[1] / "src")])])
        environment = {**os.environ, **QUIET, **spec.variables, "PYTHONPATH": path, "PEERS_SCRATCH": str(scratch)}
        begun = time.perf_counter()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        try:
            self.read()
        except BaseException:
            self.stop()
            raise
        self.start_up = time.perf_counter() - begun

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, do: str, **more: str) -> dict[str, Any]:
        """Send a wish and wait for the reply.

        Args:
            do: "round" or "model".
            more: further fields.
        """
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()
        return self.read()

    def read(self, seconds: float = 900.0) -> dict[str, Any]:
        """The next reply.

        Args:
            seconds: how long to wait for it.
        """
        assert self.process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(seconds) else ""
        if not line:
            text = self.log.read_text()[-1500:]
            raise RuntimeError(
                f"{self.spec.title} gave no reply within {seconds:.0f} s or ended; its messages:\n{text}"
            )
        reply: dict[str, Any] = json.loads(line)
        return reply

    def memory(self) -> tuple[float, int]:
        """The sum of the peak resident sizes of its processes in megabytes, and how many they are."""
        peaks = [_peak(pid) for pid in tree(self.process.pid)]
        return round(sum(peaks)), len(peaks)

    def stop(self) -> None:
        """End it and every process it started."""
        started = tree(self.process.pid)
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write('{"do": "stop"}\n')
            self.process.stdin.close()
            self.process.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            pass
        for pid in started:
            if Path(f"/proc/{pid}").exists():
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    continue
        self.process.wait()
        self.process.stdout.close()


def tree(pid: int) -> list[int]:
    """A process and all its descendants.

    Args:
        pid: the process.
    """
    found, children = [pid], Path(f"/proc/{pid}/task")
    for task in children.glob("*/children"):
        try:
            for child in task.read_text().split():
                found += tree(int(child))
        except OSError:  # it has just ended
            continue
    return found


def _peak(pid: int) -> float:
    """The largest resident size of a process so far, in megabytes."""
    try:
        return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0
