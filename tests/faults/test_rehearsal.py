"""Incidents of a deployment, one after the other, on real nodes over TLS: what changes hands, and what a trial found.

The second test is the trial again: `figures.trial_table` has what was found before, and what is measured here.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from faults.figures import record
from support.deployment import TOOLS, LightDeployment, deploy, outcome, running, until
from support.new_app import NEW_APP, copy_app
from undrift.runs import verify

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(3000),
    pytest.mark.xdist_group("deployment"),
    *TOOLS,
]
NODES, IMPOSTOR, DEADLINE, PAUSE = 3, 3, 25.0, 30.0
SECRET = "name=Jane Doe, born=1970-01-01"
CLIENT = f'''
from dataclasses import fields
from pathlib import Path

from app.task import CLIENTS, task
from undrift import TensorTask, make
from undrift.flower import Job, client_app


class Broken(TensorTask):
    """A client's data cannot be read, and the error quotes them."""

    def order(self, client, generator):
        raise ValueError("{SECRET}")


def job(context):
    config = context.node_config
    mine = task(range(int(config["partition-id"]), CLIENTS, int(config["num-partitions"])))
    if Path(str(config["state-dir"]), "fail").exists():
        mine = Broken(**{{field.name: getattr(mine, field.name) for field in fields(mine)}})
    return Job(make(str(context.run_config["algorithm"])), mine, depth=2)


app = client_app(job)
'''


class Fleet(LightDeployment):
    """Three honest nodes, and one that is registered, is not in the list of hosts, and claims every client."""

    def place(self, number: int) -> str:
        """The clients of a node; the impostor claims all."""
        return "partition-id=0 num-partitions=1" if number == IMPOSTOR else f"partition-id={number} num-partitions=3"

    def write_hosts(self, clients: int) -> None:
        """The list of the honest nodes."""
        deploy.write_hosts(self.work, NODES)

    def events(self, run: str, *kinds: str) -> list[dict[str, Any]]:
        """The events of a run's audit log, of some kinds."""
        path = self.folder(run) / "audit.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [event for event in found if not kinds or event["event"] in kinds]

    def rows(self, run: str) -> list[dict[str, Any]]:
        """The rows of a run's rounds."""
        path = self.folder(run) / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def after(self, run: str, rounds: int = 1, seconds: float = 400) -> int:
        """Wait for so many more rounds of a run; how many it has then."""
        wanted = self.rounds(run) + rounds
        until(lambda: self.rounds(run) >= wanted, seconds)
        return self.rounds(run)

    def reload(self) -> None:
        """Make nginx read its configuration again."""
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        words: list[Any] = [
            nginx,
            "-e",
            self.work / "logs" / "nginx.log",
            "-c",
            self.work / "nginx.conf",
            "-g",
            "daemon off;",
        ]
        subprocess.run([*words, "-s", "reload"], check=True, timeout=60)

    def flag(self, on: bool) -> None:
        """Let the data of all clients be broken, or whole again."""
        for number in range(NODES):
            path = self.work / "nodes" / f"node{number}" / "fail"
            path.touch() if on else path.unlink()


@pytest.fixture(scope="module")
def syslog() -> Iterator[socket.socket]:
    """Where syslog's lines arrive."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        listener.bind((deploy.HOST, 0))
        listener.setblocking(False)
        yield listener


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, syslog: socket.socket) -> Iterator[Fleet]:
    work = tmp_path_factory.mktemp("rehearsal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDRIFT_AUDIT_COPY", f"{work}/copy.jsonl,syslog:{deploy.HOST}:{syslog.getsockname()[1]}")
        with running(Fleet(work / "it", NODES + 1, restarts=True), 30) as it:
            it.app = copy_app(it.work / "app-rehearsal")
            (it.app / "app" / "client.py").write_text(CLIENT)
            for number in range(NODES):
                it.start(number)
            until(lambda: it.admitted() >= NODES, 600)
            yield it


def timed(act: Callable[[], bool], seconds: float = 400) -> float:
    """How long it takes until something holds."""
    begun = time.monotonic()
    until(act, seconds)
    return round(time.monotonic() - begun, 1)


def test_rights_change_hands_while_a_run_goes_on(fleet: Fleet, syslog: socket.socket, tmp_path: Path) -> None:
    """A node gets a new key, another is revoked, a certificate and the operators are replaced: no stop, all logged."""
    it, run, keys, hosts = fleet, "rights", fleet.work / "keys", fleet.work / "hosts.toml"
    number = it.submit(
        run=run, algorithm="scaffold", num_rounds=40, cohort=12, deadline=DEADLINE, quorum=0.3, rejoin=0.0
    )
    until(lambda: it.rounds(run) >= 2, 400)

    # An operator comes and goes; every request is in the proxy's log.
    anna, listed = keys / "anna.crt", it.work / "operators.map"
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "30"]
    deploy.call("openssl", *new, "-subj", "/CN=anna", "-keyout", anna.with_suffix(".key"), "-out", anna)
    before = listed.read_text()
    listed.write_text(f'{before}{deploy.fingerprint(anna)} "anna read";\n')
    it.reload()
    listed_after = timed(lambda: len(it.events(run, "operators")) == 2)
    listed.write_text(before)
    it.reload()
    until(lambda: len(it.events(run, "operators")) == 3, 400)
    assert it.events(run, "operators")[1]["added"][deploy.fingerprint(anna)]["name"] == "anna"
    assert list(it.events(run, "operators")[2]["removed"]) == [deploy.fingerprint(anna)]

    # The proxy's certificate, from the same authority.
    for name in ("proxy.pem", "proxy.key"):
        (it.work / "certificates" / name).unlink()
    deploy.certificates(it.work)
    it.reload()
    certified = timed(lambda: len(it.events(run, "certificate")) == 3)
    it.after(run)
    until(lambda: it.rows(run)[-1]["absent"] == 0, 400)  # nobody noticed

    # Node 1 gets a new key: both are listed, then the old one is taken out and unregistered.
    old, text = (keys / "node1.pub").read_text().strip(), hosts.read_text()
    deploy.call("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "new", "-f", keys / "new")
    fresh = (keys / "new.pub").read_text().strip()
    hosts.write_text(text.replace(f'key = "{old}"', f'key = ["{old}", "{fresh}"]'))
    until(lambda: len(it.events(run, "hosts")) == 2, 400)
    it.flwr("supernode", "register", str(keys / "new.pub"), "tls")
    nodes = json.loads(it.flwr("supernode", "list", "tls", "--format=json"))["nodes"]
    listed_nodes = {str(node["node-id"]) for node in nodes if "online" in str(node["status"])}
    it.signal(1, signal.SIGTERM)
    for ending in ("", ".pub"):
        (keys / f"new{ending}").replace(keys / f"node1{ending}")
    begun = it.rounds(run)
    it.start(1)
    rejoined = timed(lambda: it.rounds(run) > begun + 1 and it.rows(run)[-1]["absent"] == 0)
    hosts.write_text(text.replace(old, fresh))
    until(lambda: len(it.events(run, "hosts")) == 3, 400)
    nodes = json.loads(it.flwr("supernode", "list", "tls", "--format=json"))["nodes"]
    (gone,) = listed_nodes - {str(node["node-id"]) for node in nodes if "online" in str(node["status"])}
    it.flwr("supernode", "unregister", gone, "tls")

    # Node 2 is revoked: its entry is deleted, and it hosts nothing from the next round on.
    hosts.write_text(hosts.read_text().partition("[node2]")[0])
    revoked = timed(lambda: len(it.events(run, "hosts")) == 4)
    known = it.rounds(run)
    it.after(run, 2)
    assert it.events(run, "hosts")[-1]["removed"] == ["node2"]
    left = {event["client"] for event in it.events(run, "absent") if event["round"] > known + 1}
    assert left >= set(range(2, 12, 3)), left

    # What is logged is elsewhere too, signed, and shows that the folder was put back.
    shutil.copytree(it.folder(run), tmp_path / "before")
    it.after(run)
    it.flwr("stop", number, "tls")
    until(lambda: it.status(run)["code"] != 0 or it.rounds(run) == 40, 120)
    copy, key = it.work.parent / "copy.jsonl", keys / "audit.pub"
    assert verify(it.folder(run), copy, key).intact, verify(it.folder(run), copy, key).problems
    (problem,) = verify(tmp_path / "before", copy, key).problems
    assert "does not contain the event" in problem
    events, lines = it.events(run), []
    while True:
        try:
            lines.append(syslog.recv(1 << 16))
        except BlockingIOError:
            break
    sent = [json.loads(line.decode().partition("undrift: ")[2].rstrip("\0")) for line in lines]
    assert {event["hash"] for event in events} <= {event["hash"] for event in sent}
    kinds = ("operators", "certificate", "hosts")
    counted = {kind: len(it.events(run, kind)) for kind in kinds}
    facts = {"operators_logged": listed_after, "certificate_logged": certified, "new_key_back": rejoined}
    record("rights", "over TLS", **facts, revocation_logged=revoked, events=counted, rounds=it.rounds(run))
    hosts.write_text(text.replace(old, fresh))


def test_a_trial_again(fleet: Fleet) -> None:
    """Slow uploads, claims, failures, quoted data, a node that has left for good, edits: none ends the run."""
    it, run = fleet, "trial"
    config: dict[str, Any] = {"algorithm": "scaffold", "num_rounds": 60, "cohort": 12, "deadline": DEADLINE}
    config |= {"quorum": 0.3, "rejoin": 0.0, "wait": 20.0, "run": run, "nodes": NODES}
    number = it.submit(**config)
    until(lambda: it.rounds(run) >= 1, 400)
    found: dict[str, Any] = {"deadline": DEADLINE, "pause": PAUSE}

    # One node claims all clients (2).
    it.start(IMPOSTOR)
    text = "which is not in the list, claims clients of others"
    found["claim refused after"] = timed(lambda: text in (it.folder(run) / "log.txt").read_text())
    it.after(run)
    hosted = sorted(
        node["hosted"] for node in json.loads((it.folder(run) / "status.json").read_text())["nodes"].values()
    )
    assert hosted == [0, 4, 4, 4]
    until(lambda: it.rows(run)[-1]["absent"] == 0, 400)
    it.signal(IMPOSTOR, signal.SIGKILL)

    # Uploads of one node trickle (1).
    it.trickle(0, PAUSE)
    first = it.rounds(run)
    until(lambda: sum(row["absent"] == 4 for row in it.rows(run)[first:]) >= 2, 400)
    it.trickle(0, 0.0)
    slow = [row["seconds"] for row in it.rows(run)[first:] if row["absent"] == 4]
    found |= {"slow rounds": len(slow), "slowest round": round(max(slow), 1)}
    assert max(slow) <= DEADLINE + 2
    until(lambda: it.rows(run)[-1]["absent"] == 0, 400)

    # Every client fails, with its data in the error (3, 7).
    it.flag(True)
    until(lambda: len(it.events(run, "abandoned")) > 0, 400)
    it.flag(False)
    until(lambda: it.rows(run)[-1]["clients"] == 12, 400)
    failed = [event for event in it.events(run, "reject") if event["reason"] == "FAILED"]
    found |= {"abandoned rounds": len(it.events(run, "abandoned")), "failed visits": len(failed)}
    assert {event["reason"] for event in it.events(run, "reject")} == {"FAILED"}, "an empty sum is no wrong tree (5)"
    for name in ("log.txt", "audit.jsonl", "status.json", "metrics.jsonl"):
        assert "Jane" not in (it.folder(run) / name).read_text(), name
    assert "Jane" not in it.log(number) and SECRET in deploy.last_log(it.work, "fleet0")

    # A node leaves for good, and the run is started again (4).
    it.signal(2, signal.SIGKILL)
    it.after(run)
    it.flwr("stop", number, "tls")
    until(lambda: it.status(run)["code"] == 2, 120)
    stored, begun = it.rounds(run), time.monotonic()
    number = it.submit(**config | {"num_rounds": stored + 3, "nodes": 0})
    until(lambda: it.rounds(run) > stored, 400)
    found["resumed after"] = round(time.monotonic() - begun, 1)
    log = it.finish(number, 400)
    assert "so the run resumes without the others" in log
    accepted, _ = outcome(log)
    assert len(accepted) == 3 and all(set(clients) <= {c for c in range(12) if c % 3 != 2} for clients in accepted)

    # Edits of the folder (10).
    key, names = it.work / "keys" / "audit.pub", ("log.txt", "status.json", "deployment.json", "environment.json")
    assert verify(it.folder(run), key=key).intact, verify(it.folder(run), key=key).problems
    edited = 0
    for name in (*names, "task.json", "config.toml", "metrics.jsonl", "added.txt"):
        path = it.folder(run) / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(bytes([before[0] ^ 1]) + before[1:] if before else b"new")
        edited += not verify(it.folder(run), key=key).intact
        path.write_bytes(before) if before is not None else path.unlink()
    found |= {"edited files": len(names) + 4, "edits found": edited, "rounds": it.rounds(run)}
    record("trial", "over TLS", **found)
    assert edited == len(names) + 4


def test_a_failed_run_has_an_exit_code(fleet: Fleet) -> None:
    """`flwr run --stream` returns 0 for it."""
    script: list[Any] = [
        sys.executable,
        NEW_APP / "deploy.py",
        "run",
        "--work",
        fleet.work,
        "-c",
        'algorithm="nosuch" run="failed"',
    ]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "finished:failed" in done.stdout, done.stdout + done.stderr
    record("exit code", "of a failed run, over TLS", code=done.returncode)
