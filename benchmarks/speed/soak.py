"""Long runs: do memory, open files, threads and disk stay flat?

Two parts. A simulation: 2,000 rounds of 20 clients with control variates, in a run folder with a checkpoint after every
round and the clients' states. And a deployment: 200 rounds on a SuperLink and two SuperNodes over TLS, every process of
it watched from outside.

    python benchmarks/speed/soak.py simulation deployment --into benchmarks/speed/results/soak.json

A part that ends in an error writes what it has measured, with the error under `error`, and prints the error. Parts that
are not named stay as they are in the file. Slopes are least squares over the samples after the first tenth, per 1,000
rounds.
"""

import argparse
import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from undrift import Local, TensorTask
from undrift.runs import start

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

CLIENTS, FEATURES, CLASSES = 20, 8, 4
Sample = dict[str, float]


def network() -> nn.Module:
    """A network with one hidden layer."""
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def small_task() -> TensorTask:
    """Twenty clients with twenty points each."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(CLIENTS * 20, FEATURES, generator=draw)
    return TensorTask(network, inputs, inputs[:, :CLASSES].argmax(dim=1), list(torch.arange(len(inputs)).split(20)))


def of_process(pid: int | str = "self") -> Sample:
    """Memory in MB, open files and threads of a process, as the kernel counts them."""
    folder = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
    return {
        "rss": int(status["VmRSS"].split()[0]) / 1024,
        "files": len(os.listdir(folder / "fd")),
        "threads": int(status["Threads"]),
    }


def size_of(folder: Path, but: Iterable[str] = ()) -> float:
    """The size of a folder in MB, without files of some names; what vanishes meanwhile is left out."""
    skipped, total = set(but), 0
    for place, _, names in os.walk(folder):  # unlike Path.rglob it passes over folders that are deleted under it
        for name in set(names) - skipped:
            with suppress(FileNotFoundError):
                total += os.lstat(Path(place) / name).st_size
    return total / 2**20


def trend(rounds: Iterable[float], values: Iterable[float]) -> dict[str, float]:
    """First and last value after a tenth of the samples, extremes, and the slope per 1,000 rounds, also of the end."""
    x, y = np.array(list(rounds), dtype=float), np.array(list(values), dtype=float)
    x, y = x[len(x) // 10 :], y[len(y) // 10 :]
    found = {"first": y[0], "last": y[-1], "least": y.min(), "most": y.max(), "per_1000_rounds": _slope(x, y)}
    found["per_1000_rounds_in_the_last_half"] = _slope(x[len(x) // 2 :], y[len(y) // 2 :])
    return {name: round(float(value), 3) for name, value in found.items()}


def _slope(x: Any, y: Any) -> float:
    """The slope of the best line, per 1,000 rounds."""
    return float(np.polyfit(x, y, 1)[0]) * 1000 if len(set(x.tolist())) > 1 else 0.0


def summary(samples: list[Sample]) -> dict[str, dict[str, float]]:
    """The trend of every quantity over the rounds."""
    rounds = [sample["round"] for sample in samples]
    names = [name for name in samples[0] if name != "round"] if samples else []
    return {name: trend(rounds, (sample[name] for sample in samples)) for name in names}


def today() -> str:
    """The date of a measurement."""
    return time.strftime("%Y-%m-%d", time.gmtime())


@contextmanager
def kept(found: dict[str, Any]) -> Iterator[None]:
    """An error ends a part; it is printed, and named in what the part has found so far."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        traceback.print_exc()
        found["error"] = f"{type(error).__name__}: {error}"[:2000]


def simulation(rounds: int) -> dict[str, Any]:
    """A run in a folder, watched from inside after every tenth round."""
    samples: list[Sample] = []
    warned: list[str] = []
    found: dict[str, Any] = {"date": today(), "rounds": rounds, "clients": CLIENTS}
    heard = logging.Handler(logging.WARNING)
    heard.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(heard)
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folder = Path(scratch) / "run"
        growing = ("metrics.jsonl", "audit.jsonl", "lens.jsonl")

        def watch(row: Mapping[str, Any]) -> None:
            if row["round"] % 10 == 0:
                disk = {"disk": size_of(folder, growing), "checkpoints": len(list((folder / "checkpoints").iterdir()))}
                lines = {"lines": size_of(folder) - disk["disk"]}
                samples.append({"round": row["round"], **of_process(), **disk, **lines})

        begun = time.perf_counter()
        local = Local(lr=0.05, batch_size=10, epochs=1)
        with kept(found):
            start(task=small_task(), folder=folder, watch=watch, method="scaffold", rounds=rounds, local=local)
        found["seconds"] = round(time.perf_counter() - begun, 1)
    logging.getLogger().removeHandler(heard)
    found["warnings"] = warned + [str(one.message) for one in caught]
    return found | {"threads_at_end": threading.active_count(), "process": summary(samples)}


def deployment(rounds: int, minutes: float, every: float = 20.0) -> dict[str, Any]:
    """A run on real nodes, its processes watched from outside; the server's state must be that of the simulation.

    Args:
        rounds: how many rounds the run has.
        minutes: when to stop it, and to judge the rounds so far.
        every: seconds between two samples.
    """
    from support.deployment import Deployment, cohorts, deploy, outcome, replay, until

    samples: dict[str, list[Sample]] = {}
    found: dict[str, Any] = {"date": today(), "asked": rounds}
    log = ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, kept(found):
        it = Deployment(Path(scratch) / "deployment", nodes=2)

        def look() -> int:
            """Note what every process and folder has; the round that runs."""
            seen = re.findall(rf"\[RUN {run}, ROUND (\d+)\]", deploy.last_log(it.work, "node0"))
            now = max(map(int, seen), default=0)
            for name, pid in members(it.work, deploy.alive).items():
                try:
                    samples.setdefault(name, []).append({"round": now, **of_process(pid)})
                except (OSError, KeyError):  # it has ended meanwhile
                    continue
            parts = {name: size_of(it.work / name) for name in ("state", "nodes", "logs", "flwr")}
            samples.setdefault("disk", []).append({"round": now, **parts})
            found["seconds"] = round(time.perf_counter() - begun, 1)
            print(f"round {now} of {rounds}, {found['seconds']:.0f} s", file=sys.stderr, flush=True)
            return now

        try:
            it.up()
            begun = time.perf_counter()
            run = it.submit(algorithm="scaffold", num_rounds=rounds, deadline=600.0)
            until(lambda: "serverapp" in members(it.work, deploy.alive), 120)
            try:
                while "serverapp" in members(it.work, deploy.alive) and time.perf_counter() - begun < 60 * minutes:
                    found["rounds"] = look()
                    time.sleep(every)
                if "serverapp" not in members(it.work, deploy.alive):
                    accepted, final = outcome(it.finish(run, 60))
                    found["rounds"] = len(accepted)
                    found["same_bits_as_simulation"] = final == replay("scaffold", accepted)
                    found["every_client_counted_once"] = accepted == cohorts(rounds)
            finally:
                log = it.log(run)
                print("\n".join(log.splitlines()[-50:]), file=sys.stderr, flush=True)
        finally:
            it.down()
    found["warnings"] = [line for line in log.splitlines() if "WARN" in line or "ERROR" in line][:20]
    return found | {name: summary(one) for name, one in samples.items()}


def members(work: Path, alive: Callable[[Path, str], int | None]) -> dict[str, int]:
    """The lasting processes of a deployment by name: those that the script started, and the ServerApp."""
    found = {path.name: alive(work, path.name) for path in (work / "pids").iterdir()}
    mark = f"FLWR_HOME={work}/flwr".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"flwr-serverapp") for word in command[:2]) and mark in (
                folder / "environ"
            ).read_bytes().split(b"\0"):
                found["serverapp"] = int(folder.name)
        except OSError:
            continue
    return {name: pid for name, pid in found.items() if pid}


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["simulation", "deployment"])
    parser.add_argument("--rounds", type=int, help="2,000 and 200 by default")
    parser.add_argument("--minutes", type=float, default=120, help="when the deployment is stopped at the latest")
    parser.add_argument(
        "--into", type=Path, help="the file whose parts of these names are replaced; else it is printed"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if given.into and given.into.exists():
        found = json.loads(given.into.read_text())
    found["cores"] = os.cpu_count()
    parts = {"simulation": lambda: simulation(given.rounds or 2000)}
    parts["deployment"] = lambda: deployment(given.rounds or 200, given.minutes)
    for name in given.parts:
        found[name] = parts[name]()
        if given.into:
            given.into.write_text(json.dumps(found, indent=2) + "\n")
    if not given.into:
        print(json.dumps(found, indent=2))
    raise SystemExit(any("error" in found[name] for name in given.parts))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
