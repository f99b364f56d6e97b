"""A real deployment for the end-to-end tests: started, used, damaged and stopped through the app's own script."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from warnings import catch_warnings, simplefilter

import pytest

from support.new_app import NEW_APP
from undrift import Local, Simulation, make
from undrift.testing import fingerprint

TOOLS = [
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing"),
    pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is missing"),
    pytest.mark.skipif(not (shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")), reason="no nginx"),
]
"""Marks of tests that start a deployment: they are skipped where a tool is missing."""


def load(path: Path) -> ModuleType:
    """A module from its file, under a name of its own."""
    spec = spec_from_file_location(f"undrift_new_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    with catch_warnings():
        simplefilter("ignore", DeprecationWarning)  # of the command line's own libraries among themselves
        spec.loader.exec_module(module)
    return module


deploy = load(NEW_APP / "deploy.py")
FLEET = Path(__file__).with_name("light_fleet.py")
_NAMES = count(1)


@dataclass
class Deployment:
    """One SuperLink with its SuperExec, proxy and SuperNodes in a folder; everything is started and ended by number.

    Args:
        work: the folder.
        nodes: how many SuperNodes.
        options: further ones of `deploy.py up`.
        app: the folder of the Flower app that `submit` runs.
    """

    work: Path
    nodes: int = 3
    options: tuple[str, ...] = ()
    app: Path = NEW_APP
    strangers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def ports(self) -> dict[str, int]:
        """The port of each server."""
        return dict(json.loads((self.work / "deployment.json").read_text()))

    def script(self, *words: str, seconds: float = 240) -> str:
        """The output of a subcommand of the script, which must succeed."""
        return _output([sys.executable, NEW_APP / "deploy.py", *words, "--work", self.work], None, seconds)

    def up(self) -> None:
        """Start what does not run."""
        self.script("up", "--nodes", str(self.nodes), *self.options)

    def write_hosts(self, clients: int) -> None:
        """The list of which node may host which of so many clients, in place of that of the app's twelve."""
        module: Any = deploy
        before = module.CLIENTS, module.EXAMPLES
        module.CLIENTS, module.EXAMPLES = clients, 10_000
        deploy.write_hosts(self.work, self.nodes)
        module.CLIENTS, module.EXAMPLES = before

    def down(self) -> None:
        """Stop everything."""
        for stranger in self.strangers:
            with suppress(ProcessLookupError):
                os.killpg(stranger.pid, signal.SIGKILL)
            stranger.wait(timeout=10)
        if (self.work / "pids").exists():
            self.script("down")

    def kill(self, name: str) -> None:
        """End one process without warning."""
        pid = deploy.alive(self.work, name)
        assert pid, f"{name} does not run"
        os.kill(pid, signal.SIGKILL)
        until(lambda: not deploy.alive(self.work, name), 10)

    def processes(self) -> list[str]:
        """Every process of this deployment, whoever started it: all inherit where Flower keeps things."""
        mark = f"FLWR_HOME={self.work}/flwr".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    def flwr(self, *words: str) -> str:
        """The output of Flower's command line."""
        return _output([deploy.BIN / "flwr", *words], deploy.environment(self.work), 240)

    def submit(self, **config: Any) -> str:
        """Start a run of the app; its number. Without a name its folder is new."""
        config.setdefault("run", f"run-{next(_NAMES)}")
        outcome = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in config.items())
        return str(json.loads(self.flwr("run", str(self.app), "tls", "--format=json", "-c", outcome))["run-id"])

    def log(self, run: str) -> str:
        """What a run's ServerApp has said so far."""
        return self.flwr("log", run, "tls", "--show")

    def finish(self, run: str, seconds: float) -> str:
        """Wait until a run is over; its log."""
        status = ""

        def over() -> bool:
            nonlocal status
            status = json.loads(self.flwr("list", "tls", "--run-id", run, "--format=json"))["runs"][0]["status"]
            out: bool = status.startswith("finished")
            return out

        until(over, seconds, pause=1.0)
        assert status == "finished:completed", f"{status}\n{self.log(run)}"
        return self.log(run)

    def folder(self, name: str) -> Path:
        """The folder of a run on the server."""
        return self.work / "runs" / name

    def rounds(self, name: str) -> int:
        """How many rounds of a run are stored."""
        rows = self.folder(name) / "metrics.jsonl"
        return len(rows.read_text().splitlines()) if rows.exists() else 0

    def status(self, name: str) -> dict[str, Any]:
        """What `undrift status` says about a run."""
        command = [deploy.BIN / "undrift", "status", self.folder(name), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return {**json.loads(done.stdout), "code": done.returncode}

    def summary(self, name: str) -> dict[str, Any]:
        """The result of a run."""
        return dict(json.loads((self.folder(name) / "summary.json").read_text()))

    def kill_server_app(self, name: str) -> None:
        """End the process of a run without warning."""
        os.kill(json.loads((self.folder(name) / "status.json").read_text())["process"], signal.SIGKILL)

    def reaches(self, run: str, node: str, round: int, seconds: float = 90) -> None:
        """Wait until a SuperNode has begun to train in a round of a run."""
        mark = f"[RUN {run}, ROUND {round}]"

        def training() -> bool:
            _, begun, rest = deploy.last_log(self.work, node).partition(mark)
            return bool(begun) and "Start `flwr-clientapp` process" in rest

        until(training, seconds)

    def stranger(self, log: Path, *options: str) -> subprocess.Popen[bytes]:
        """A SuperNode that is no part of this deployment, in a session of its own."""
        command = [deploy.BIN / "flower-supernode", f"--host={deploy.HOST}", f"--port={deploy.free_port()}", *options]
        with open(log, "wb") as out:
            seen = deploy.environment(self.work)
            process = subprocess.Popen(command, stdout=out, stderr=out, env=seen, start_new_session=True)
        self.strangers.append(process)
        return process

    def request(self, server: str, path: str, body: bytes = b"", headers: str = "") -> int:
        """The status that a server gives to a POST over TLS; the body may be shorter than the headers say."""
        context = ssl.create_default_context(cafile=str(self.work / "certificates" / "ca.crt"))
        length = "" if headers else f"Content-Length: {len(body)}\r\n"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{length}{headers}\r\n"
        address = (deploy.HOST, self.ports[server])
        with (
            socket.create_connection(address, timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(head.encode() + body)
            return int(secure.recv(64).split()[1])


@dataclass
class LightDeployment(Deployment):
    """A deployment whose SuperNodes are forked from one process, also for every task: rounds take seconds.

    Args:
        clients: how many clients all nodes host together; every node hosts those of `nodes` that are its own.
        restarts: whether nodes may end, and start again with `start`.
    """

    clients: int = 12
    restarts: bool = False

    def up(self) -> None:
        """Start the servers and all nodes."""
        self.script("up", "--nodes", "0", *self.options)
        self.add(0, self.nodes)

    def add(self, first: int, end: int) -> None:
        """Start nodes, from a number to before another, and wait until they are admitted."""
        deploy.keys(self.work, self.nodes)
        self.write_hosts(self.clients)
        found = []
        for number in range(first, end):
            key, states = self.work / "keys" / f"node{number}", deploy.private(self.work / "nodes" / f"node{number}")
            hosted = f'{self.place(number)} state-dir="{states}"'
            address, port = deploy.HOST, deploy.free_port()
            options = {
                "superlink": f"{address}:{self.ports['nginx']}",
                "root-certificates": self.work / "certificates" / "ca.crt",
                "host": address,
                "port": port,
                "auth-supernode-private-key": key,
                "node-config": hosted,
            }
            runtime = ["--insecure", f"--runtime-api-address={address}:{port}"]
            given = [f"--{name}={value}" for name, value in options.items()]
            entry = {"key": f"{key}.pub", "folder": str(states), "later": self.restarts}
            found.append({**entry, "supernode": given, "superexec": runtime})
        name = f"fleet{first}"
        (self.work / f"{name}.json").write_text(json.dumps(found))
        deploy.launch(self.work, name, sys.executable, FLEET, self.work / f"{name}.json")
        if not self.restarts:
            until(lambda: self.admitted(name) == end - first, 600)

    def place(self, number: int) -> str:
        """Which clients a node claims, as its configuration."""
        return f"partition-id={number} num-partitions={self.nodes}"

    def admitted(self, fleet: str = "fleet0") -> int:
        """How often a node was admitted."""
        return int(deploy.last_log(self.work, fleet).count("SuperNode ID"))

    def start(self, number: int) -> None:
        """Let a node start, again or for the first time."""
        (self.work / "nodes" / f"node{number}" / "start").touch()

    def signal(self, number: int, kind: signal.Signals) -> None:
        """Send a signal to the processes of a node."""
        for pid in json.loads((self.work / "nodes" / f"node{number}" / "pids").read_text()):
            with suppress(ProcessLookupError):
                os.kill(pid, kind)

    def trickle(self, number: int, seconds: float) -> None:
        """Let a node pause before the objects of its uploads; 0 ends it."""
        file = self.work / "nodes" / f"node{number}" / "trickle"
        file.write_text(str(seconds)) if seconds else file.unlink(missing_ok=True)


It = TypeVar("It", bound=Deployment)


@contextmanager
def running(it: It, seconds: float = 10.0) -> Iterator[It]:
    """A deployment that is started and, at the end, stopped; its processes must be gone within some seconds."""
    try:
        it.up()
        yield it
    finally:
        it.down()
        until(lambda: not it.processes(), seconds)


def until(done: Callable[[], bool], seconds: float, pause: float = 0.2) -> None:
    """Wait until something holds; fail if it does not in time."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(pause)


def replay(algorithm: str, accepted: list[list[int]]) -> str:
    """The fingerprint of the server's state after rounds with these clients, by the local engine."""
    task = load(NEW_APP / "app" / "task.py").task()
    simulation = Simulation(make(algorithm), task, Local(lr=0.1, batch_size=10), seed=0)
    state = simulation.start()
    for clients in accepted:
        state, record = simulation.round(state, clients)
        assert list(record.clients) == clients
    return fingerprint(state)


def cohorts(rounds: int) -> list[list[int]]:
    """The clients of each round when all nodes answer."""
    task = load(NEW_APP / "app" / "task.py").task()
    simulation = Simulation(make("fedavg"), task, cohort=8, seed=0)
    return [simulation.sample(round) for round in range(rounds)]


def outcome(log: str) -> tuple[list[list[int]], str]:
    """What a run's log says: the clients accepted in each round, and the fingerprint of the final state."""
    accepted = [json.loads(line) for line in re.findall(r"accepted in round \d+: (\[.*\])", log)]
    final = re.search(r"final state: ([0-9a-f]{64})", log)
    assert final, log
    return accepted, final[1]


def seconds(log: str) -> list[float]:
    """How long each round of a run took."""
    return [float(text) for text in re.findall(r"round \d+: \d+ clients, loss \S+, ([0-9.]+) s", log)]


def _output(command: list[str | Path], seen: dict[str, str] | None, seconds: float) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=seen)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
    return done.stdout
