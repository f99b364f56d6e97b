"""A deployment is a run: its folder, its resumption to the bit, its log, and what is refused."""

import json
import logging
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

pytest.importorskip("flwr")

from flwr.app import Message

from support.audit import write_keys
from support.deploy_runs import LOCAL, ROUNDS, deployed, grid, rounds_by
from support.flower_grid import StandInGrid
from support.processes import run_module
from undrift import Simulation, load_run, make
from undrift.cli import app
from undrift.cli.results.health import health
from undrift.core.records.types import ServerState
from undrift.deploying import deploy as deployment
from undrift.deploying import live_status
from undrift.deploying.deploy import LineFormatter, deploy, server_log
from undrift.deploying.server_task import server_task, task_record
from undrift.engine.flower.records import Order
from undrift.engine.flower.server.mailbox import Mailbox
from undrift.engine.flower.server.strategy import UndriftStrategy
from undrift.engine.round.record import Record
from undrift.flower import AdaptiveBound, Job, Quarantine, client_app
from undrift.runs import Outcome, backup, restore, unlearn, verify, withdraw
from undrift.runs.folder import signature
from undrift.runs.folder.files import RunError, RunFolder
from undrift.runs.settings.schema import ConfigError
from undrift.testing import Quadratics, clinic, fingerprint

PLACES = ["before send@0", "after send", "before the row", "between state and manifest"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of SCAFFOLD without a stop."""
    return deployed("scaffold", tmp_path_factory.mktemp("whole"))


class Stop(BaseException):
    """Ends a run as a signal does."""


def stopping(after: int) -> Any:
    """A function for `on_round` that ends the run after so many rounds."""

    def stop(state: Any, record: Any) -> None:
        if state.round == after:
            raise Stop

    return stop


def test_the_folder_is_that_of_a_run_with_the_bits_of_the_simulation(whole: Any) -> None:
    task = clinic(make("scaffold"))
    with Simulation(make("scaffold"), task, LOCAL, cohort=5, seed=3) as simulation:
        state = simulation.run(ROUNDS)
        expected = simulation.module(state).state_dict()
    assert whole.sha256 == fingerprint(state) and whole.trained
    names = "config.toml environment.json metrics.jsonl metrics.parquet audit.jsonl model.safetensors summary.json "
    names += "deployment.json status.json log.txt task.json"
    assert set(names.split()) <= {path.name for path in whole.folder.iterdir()}
    model = load_file(whole.folder / "model.safetensors")
    assert all(torch.equal(model[name], x) for name, x in expected.items())
    assert [row["round"] for row in rounds_by(whole)] == [1, 2, 3, 4] and "accuracy" in rounds_by(whole)[0]
    assert not verify(whole.folder).problems
    run = load_run(whole.folder)
    assert run.summary["method"] == "scaffold" and torch.equal(  # type: ignore[index]
        run.weights()[next(iter(model))], model[next(iter(model))]
    )
    assert not (whole.folder / "clients").exists(), "clients' states are on the nodes"


def test_files_are_for_their_owner_only(whole: Any) -> None:
    for name in ("log.txt", "status.json", "deployment.json"):
        assert (whole.folder / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.sweep(every=4)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize(
    ("method", "places"),
    [
        ("scaffold", PLACES),
        *(
            pytest.param(
                method, [f"{place}@{round}" for place in EVERY for round in range(ROUNDS)], marks=pytest.mark.slow
            )
            for method in ("fedavg", "scaffold", "feddyn", "fedsmoo", "fedavgm")
            for EVERY in (
                ["before send", "after send", "first reply", "before reduce", "after reduce"],
                [
                    "before the row",
                    "during the temporary write",
                    "before the rename",
                    "between state and manifest",
                    "after the checkpoint",
                ],
            )
        ),
    ],
)
def test_killed_at_any_place_it_goes_on_to_the_bit(method: str, places: list[str], tmp_path: Path) -> None:
    printed = run_module("support.deploy_runs", tmp_path, method, *places)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert len(lines) == len(places), printed
    for line in lines:
        assert line["ended"] == -signal.SIGKILL and line["code"] == 0 and line["same"] and line["rows"] == ROUNDS, line


@pytest.mark.quick
def test_a_stopped_run_goes_on_and_an_ended_one_is_returned(whole: Any, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        deployed("scaffold", tmp_path, on_round=stopping(2))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["phase"] == "failed"
    name = json.loads((tmp_path / "run" / "deployment.json").read_text())["run"]
    again = deployed("scaffold", tmp_path, grid("scaffold", tmp_path, nodes=2, seed=9))
    assert again.sha256 == whole.sha256 and rounds_by(again) == rounds_by(whole)
    assert json.loads((tmp_path / "run" / "deployment.json").read_text())["run"] == name, "the nodes' states have it"
    third = deployed("scaffold", tmp_path)
    assert third.sha256 == whole.sha256 and not third.trained
    longer = deployed("scaffold", tmp_path, rounds=ROUNDS + 1)
    assert longer.trained and longer.summary["rounds"] == ROUNDS + 1


def test_a_deleted_state_costs_its_client_only_and_a_restored_one_nothing(whole: Any, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        deployed("scaffold", tmp_path, on_round=stopping(3))
    shutil.copytree(tmp_path / "nodes", tmp_path / "backup")
    (states,) = (tmp_path / "nodes").iterdir()
    assert states.name == json.loads((tmp_path / "run" / "deployment.json").read_text())["run"]
    shutil.copytree(tmp_path / "run", tmp_path / "kept")
    gone = next(client for client in (4, 6, 7) if (states / "0" / str(client)).exists())
    shutil.rmtree(states / "0" / str(gone))
    deployed("scaffold", tmp_path, rounds=ROUNDS + 3)
    events = [json.loads(line) for line in (tmp_path / "run" / "audit.jsonl").read_text().splitlines()]
    lost = [event for event in events if event.get("reason") == "FAILED"]
    assert {event["client"] for event in lost} == {gone} and f"no state of client {gone}" in lost[0]["detail"]
    assert health(tmp_path / "run").rejected["FAILED"] == len(lost)
    shutil.rmtree(tmp_path / "nodes")
    shutil.copytree(tmp_path / "backup", tmp_path / "nodes")
    again = deployed("scaffold", tmp_path, folder=tmp_path / "kept")
    assert again.sha256 == whole.sha256


def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(whole: Any, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        deployed("scaffold", tmp_path, on_round=stopping(3))
    newest = tmp_path / "run" / "checkpoints" / "0000003.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert deployed("scaffold", tmp_path).sha256 == whole.sha256
    assert '"refused"' in (tmp_path / "run" / "audit.jsonl").read_text()


def test_the_first_weights_are_kept_even_if_the_model_is_drawn_anew(tmp_path: Path) -> None:
    def drawn(seed: int) -> nn.Module:
        model = clinic(make("fedavg")).model()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(generator=torch.Generator().manual_seed(seed))
        return model

    given: dict[str, Any] = {"folder": tmp_path / "run", "rounds": 2, "population": 8, "poll": 0.01, "seed": 3}
    whole = deployment.deploy(
        grid("fedavg", tmp_path), "fedavg", drawn(0), LOCAL, **given | {"folder": tmp_path / "whole"}
    )
    with pytest.raises(Stop):
        deployment.deploy(grid("fedavg", tmp_path), "fedavg", drawn(0), LOCAL, **given, on_round=stopping(1))
    again = deployment.deploy(grid("fedavg", tmp_path), "fedavg", drawn(1), LOCAL, **given)
    assert again.sha256 == whole.sha256
    other = type(type(drawn(0)).__name__, (nn.Linear,), {})(2, 2)
    with pytest.raises(RunError, match="it differs in its model"):
        deployment.deploy(grid("fedavg", tmp_path), "fedavg", other, LOCAL, **given | {"rounds": 3})


def test_other_settings_are_refused_and_other_options_written_down(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        deployed("fedavg", tmp_path, on_round=stopping(1))
    with pytest.raises(RunError, match="contains a run with other settings"):
        deployed("fedavg", tmp_path, seed=4)
    deployed("fedavg", tmp_path, rounds=2, quorum=0.25)
    events = [json.loads(line) for line in (tmp_path / "run" / "audit.jsonl").read_text().splitlines()]
    (changed,) = [event for event in events if event["event"] == "options"]
    assert "quorum" not in changed["before"] and changed["now"]["quorum"] == 0.25


def test_rounds_that_are_done_cannot_be_taken_back(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        deployed("fedavg", tmp_path, on_round=stopping(3))
    before = (tmp_path / "run" / "config.toml").read_bytes()
    with pytest.raises(RunError, match=r"has 3 rounds already, 2 cannot take any back; give 3 or more"):
        deployed("fedavg", tmp_path, rounds=2)
    assert (tmp_path / "run" / "config.toml").read_bytes() == before


def test_the_status_shows_who_left_and_is_rewritten_while_nodes_are_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_status, "EVERY", 0.0)
    on, path = grid("fedavg", tmp_path, nodes=2), tmp_path / live_status.STATUS
    watched, gone = Mailbox(on, live_status.LiveStatus(tmp_path, ROUNDS, 8, 20.0)), on.node_of(1)
    assert len(watched.nodes()) == 2  # type: ignore[arg-type]
    on.kill(1)
    assert len(watched.nodes()) == 1  # type: ignore[arg-type]
    nodes = json.loads(path.read_text())["nodes"]
    assert nodes[str(gone)]["connected"] is False and sum(node["connected"] for node in nodes.values()) == 1
    path.unlink()
    watched.nodes()
    assert path.exists()


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "LOCKED", 0.0)
    with pytest.raises(Stop):
        deployed("fedavg", tmp_path, on_round=stopping(1))
    with RunFolder.open(tmp_path / "run"), pytest.raises(RunError, match="another process is running it"):
        deployed("fedavg", tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"population": None}, "give the number of clients on all nodes, population=12"),
        ({"evaluate": True}, "evaluate has no place in a run's folder; leave it out, and give test"),
        ({"run": "mine"}, "run comes from the run's folder; leave it out"),
        ({"settings": {"output": {"checkpoint_every": 2}}}, "output.checkpoint_every must be 1"),
        ({"settings": {"cohort": None, "probability": 0.5}}, "does not follow probability: give cohort="),
        ({"settings": {"availability": "json:load"}}, "does not follow availability: a node takes part while"),
        ({"settings": {"sampling": [1.0] * 8}}, "does not follow sampling: .* drawn uniformly; leave it out"),
        ({"settings": {"failures": "raise"}}, "does not follow failures: a client whose training fails is rejected"),
        ({"settings": {"cohort": 2}}, "settings have cohort 2; leave it out of them"),
        ({"settings": {"output": {"keep_best": True}}}, "does not follow output.keep_best: store the model"),
        ({"settings": {"output": {"track": ["wandb"]}}}, "does not follow output.track: send the numbers in on_round"),
        ({"settings": {"output": {"lens_every": 2}}}, "does not follow output.lens_every: the clients' data"),
        ({"settings": {"output": {"max_idle": 5}}}, "does not follow output.max_idle: give patience= to deploy"),
        ({"settings": {"stop_after": 5}}, "does not follow stop_after: all rounds are trained"),
        ({"quorum": 2.0}, "quorum must be a fraction"),
        ({"cohort": 9}, "cohort"),
        ({"cohort": 0}, "cohort: write a number of clients, 1 or more"),
        ({"population": 0}, "population must be 1 or more, the number of all clients, got 0"),
    ],
)
def test_what_cannot_work_is_refused_before_a_folder_is_made(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, ConfigError), match=message):
        deployed("fedavg", tmp_path, **given)
    assert not (tmp_path / "run").exists()


def test_settings_that_say_what_a_deployment_does_are_accepted(tmp_path: Path) -> None:
    said = {"cohort": 5, "failures": "reject", "sampling": "uniform", "output": {"lens_every": 0, "evaluate_every": 2}}
    outcome = deployed("fedavg", tmp_path, rounds=2, settings=said)
    assert ["accuracy" in row for row in rounds_by(outcome)] == [False, True]


def test_memory_does_not_grow_with_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strategies, begin, kept = [], UndriftStrategy.start, []

    def started(self: Any, *arguments: Any, **more: Any) -> Any:
        strategies.append(self)
        return begin(self, *arguments, **more)

    monkeypatch.setattr(UndriftStrategy, "start", started)
    deployed("fedavg", tmp_path, rounds=2, on_round=lambda state, record: kept.append(len(record.visits)))
    assert strategies[0].records == [] and len(kept) == 2 and min(kept) > 0


def test_a_task_says_how_many_clients_it_has_and_how_it_is_tested(tmp_path: Path) -> None:
    task = clinic(make("fedavg"))
    given: dict[str, Any] = {"folder": tmp_path / "run", "rounds": 1, "poll": 0.01}
    with pytest.raises(ValueError, match="the task has 8 clients, got population=9; leave it out"):
        deployment.deploy(grid("fedavg", tmp_path), "fedavg", task, LOCAL, **given, population=9)
    outcome = deployment.deploy(grid("fedavg", tmp_path), "fedavg", task, LOCAL, **given)
    assert outcome.summary["judged_by"] == "train_loss", "this task has no held-out data"
    half = server_task(task, None, None)
    assert half.examples(0) == 0 and half.evaluate(half.model()) == {}
    assert task_record(half, "x")["clients"] == 8
    for call in (lambda: half.batches(0, 1, torch.Generator()), lambda: half.loss(half.model(), None)):
        with pytest.raises(RuntimeError, match="on its nodes"):
            call()


def test_what_needs_the_clients_data_is_refused_with_the_reason(whole: Any, tmp_path: Path) -> None:
    for words, instead in ((["lens"], "undrift report"), (["resume"], "give the same flwr run again")):
        result = CliRunner().invoke(app, [*words, str(whole.folder)])
        assert (
            result.exit_code == 2 and "is a deployment: its clients' data and states are on its nodes" in result.stderr
        )
        assert instead in result.stderr
    out = tmp_path / "model.safetensors"
    assert CliRunner().invoke(app, ["export", str(whole.folder), "--out", str(out)]).exit_code == 0
    assert out.is_file()


def test_a_report_of_a_deployment(whole: Any, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    result = CliRunner().invoke(app, ["report", str(whole.folder), "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 0, result.output
    assert "scaffold" in (tmp_path / "page.html").read_text()


def test_every_line_of_the_log_has_time_and_level(whole: Any) -> None:
    lines = (whole.folder / "log.txt").read_text().splitlines()
    assert len(lines) >= ROUNDS
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING|ERROR) \S", line) for line in lines), lines
    assert "INFO round 4: " in lines[-2] and "INFO head of the audit log" in lines[-1]


def test_one_event_is_one_line(tmp_path: Path) -> None:
    record = logging.makeLogRecord({"msg": "a\nb\x1b[31m\tc", "levelno": 30, "levelname": "WARNING", "created": 0.0})
    assert LineFormatter().format(record) == "1970-01-01T00:00:00Z WARNING a b [31m c"

    def fails() -> None:
        with server_log(tmp_path / "log.txt", "of.a.test"):
            logging.getLogger("of.a.test").warning("one\n%s", "two")
            raise RuntimeError("bad\nend")

    with pytest.raises(RuntimeError):
        fails()
    first, second = (tmp_path / "log.txt").read_text().splitlines()
    assert first.endswith("WARNING one two") and second.endswith("ERROR failed with RuntimeError: bad end")
    assert not logging.getLogger("of.a.test").handlers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_dead_superexec_is_not_called_a_stop_by_the_user(
    number: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's ServerApp interrupts itself when its parent is gone, at any moment: here while a reply is pulled."""
    nodes, pull = grid("fedavg", tmp_path), StandInGrid.pull_messages

    def orphaned(self: Any, keys: Any) -> Any:
        if len(self.pulls) == 12:
            monkeypatch.setattr(os, "getppid", lambda: 1)
            signal.raise_signal(number)
        return pull(self, keys)

    monkeypatch.setattr(StandInGrid, "pull_messages", orphaned)
    before = signal.getsignal(number)
    with pytest.raises(
        RunError, match=r"SuperExec, process \d+\) has died; start it again, then give the same flwr run"
    ):
        deployed("fedavg", tmp_path, nodes)
    assert signal.getsignal(number) is before
    report = json.loads((tmp_path / "run" / "status.json").read_text())
    assert report["phase"] == "failed" and "SuperExec" in report["error"]


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """Interrupts as at a terminal; a background job starts with them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_by_the_user_remains_one(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        deployed("fedavg", tmp_path, on_round=lambda *_: signal.raise_signal(signal.SIGINT))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["phase"] == "stopped"
    assert "ERROR stopped by a signal" in (tmp_path / "run" / "log.txt").read_text()
    with pytest.raises(SystemExit):
        deployed("fedavg", tmp_path, on_round=lambda *_: signal.raise_signal(signal.SIGTERM))


@pytest.mark.quick
def test_flower_exports_it() -> None:
    import undrift.flower

    assert undrift.flower.deploy is deployment.deploy
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = undrift.flower.nothing


def test_a_deployment_without_protection_is_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed("fedavg", tmp_path / "bare", rounds=1)
    (line,) = [line for line in (tmp_path / "bare/run/log.txt").read_text().splitlines() if "NOT PROTECTED" in line]
    assert "WARNING" in line and all(text in line for text in ("hosts=", "adaptive=", "quarantine=", signature.KEY))
    write_keys(tmp_path / "key")
    monkeypatch.setenv(signature.KEY, str(tmp_path / "key"))
    nodes = grid("fedavg", tmp_path / "safe")
    hosts = {nodes.node_of(part): range(part, 8, 3) for part in range(3)}
    safe = {"hosts": hosts, "adaptive": AdaptiveBound(), "quarantine": Quarantine()}
    deployed("fedavg", tmp_path / "safe", nodes, rounds=1, **safe)
    assert "NOT PROTECTED" not in (tmp_path / "safe/run/log.txt").read_text()


@pytest.mark.parametrize("name", ["log.txt", "status.json", "deployment.json", "environment.json", "clients.json"])
def test_verify_finds_edits_of_a_deployments_files(name: str, tmp_path: Path) -> None:
    run = deployed("fedavg", tmp_path, rounds=2).folder
    assert verify(run).intact, verify(run).problems
    data = (run / name).read_bytes()
    (run / name).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    (problem,) = verify(run).problems
    assert problem.startswith(str(run / name))


def test_a_round_with_the_upload_of_one_node_alone_is_stored(tmp_path: Path) -> None:
    """NumPy gives an empty copy of what was sent a stride of 0, of which torch shows no bytes: a soak ended there."""
    task = Quadratics.random(6)
    nodes = StandInGrid(client_app(Job(make("fedavg"), task)), 1, tmp_path / "nodes")
    given: dict[str, Any] = {"rounds": 2, "deadline": 20.0, "poll": 0.01, "wait": 5.0}
    outcome = deploy(nodes, "fedavg", task, LOCAL, folder=tmp_path / "run", **given)
    assert outcome.sha256 == fingerprint(Simulation("fedavg", task, LOCAL).run(2))


@pytest.mark.parametrize("new", [b" ", b"2026-01-01T00:00:00Z INFO all went well\n"])
def test_verify_finds_lines_that_were_added_to_the_log_of_a_deployment_that_has_ended(
    new: bytes, tmp_path: Path
) -> None:
    path = deployed("fedavg", tmp_path, rounds=2).folder / "log.txt"
    deployed("fedavg", tmp_path, rounds=2)  # it has ended: nothing is written
    assert verify(path.parent).intact, verify(path.parent).problems
    path.write_bytes(path.read_bytes() + new)
    (problem,) = verify(path.parent).problems
    assert problem.startswith(f"{path}: lines were added")


def test_the_last_lines_of_a_deployment_that_failed_are_sealed(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        deployed("fedavg", tmp_path, on_round=stopping(1))
    path = tmp_path / "run" / "log.txt"
    before = path.read_text()
    assert "failed with Stop" in before.splitlines()[-1] and verify(path.parent).intact, verify(path.parent).problems
    path.write_text(before.replace("failed with Stop", "failed with Stap"))
    (problem,) = verify(path.parent).problems
    assert problem.startswith(f"{path}: lines were changed")
    path.write_text(before)
    deployed("fedavg", tmp_path)
    assert verify(path.parent).intact, verify(path.parent).problems


def test_nodes_keep_the_heads_of_the_servers_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The folder is put back by two rounds and the run trained again: a node's file shows it, and its log warns."""
    nodes = grid("fedavg", tmp_path)
    part = tmp_path / "part"

    def copied(state: ServerState, record: Record) -> None:
        if state.round == 2:
            shutil.copytree(tmp_path / "run", part)

    run = deployed("fedavg", tmp_path, nodes, on_round=copied).folder
    (heads,) = (tmp_path / "nodes").glob("*/heads.jsonl")
    assert verify(run, heads).intact and [json.loads(line)["round"] for line in heads.read_text().splitlines()] == [
        1, 2, 3, 4
    ]  # fmt: skip
    shutil.rmtree(run)
    part.rename(run)
    assert verify(run).intact and "does not contain the event" in verify(run, heads).problems[0]
    deployed("fedavg", tmp_path, grid("fedavg", tmp_path, seed=5))
    assert "put back: it orders round 3 after round 4" in caplog.text
    assert verify(run).intact and "does not contain the event" in verify(run, heads).problems[0]


def test_a_client_leaves_a_deployment(tmp_path: Path) -> None:
    """Its node deletes its states and reports it; in a new run without it, the model never had it."""
    orders = list[Order]()

    def stopping(state: ServerState, record: Record) -> None:
        if state.round == 2:
            raise KeyboardInterrupt

    def noting(message: Message, reply: Message) -> Message:
        orders.append(Order.read(message.content))
        return reply

    with pytest.raises(KeyboardInterrupt):
        deployed("scaffold", tmp_path, cohort=8, on_round=stopping)
    (states,) = (tmp_path / "nodes").glob("*/0/5")
    assert "its node deletes its states when the run is resumed" in withdraw(tmp_path / "run", 5)[-1]
    nodes = grid("scaffold", tmp_path, seed=5)
    nodes.faults = dict.fromkeys(range(3), noting)
    run = deployed("scaffold", tmp_path, nodes, cohort=8).folder
    assert orders and not any(5 in order.clients for order in orders) and not states.exists()
    events = [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]
    (event,) = [event for event in events if event["event"] == "forgotten"]
    assert event["clients"] == [5] and event["node"] == nodes.node_of(2)
    assert unlearn(run, 5, tmp_path / "new") is None and verify(run).intact
    result = deployed("scaffold", tmp_path, grid("scaffold", tmp_path, seed=7), cohort=8, folder=tmp_path / "new")
    with Simulation(make("scaffold"), clinic(make("scaffold")), LOCAL, seed=3) as simulation:
        simulation.quarantined.withdrawn.add(5)
        assert result.sha256 == fingerprint(simulation.run(ROUNDS))
    assert verify(result.folder).intact, verify(result.folder).problems


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("method", ["scaffold", "fedavg"])
def test_a_deployment_goes_on_from_a_backup_two_rounds_old(method: str, tmp_path: Path) -> None:
    """The drill: the server's disk is gone; the nodes still have the states that the backup needs."""
    expected = deployed(method, tmp_path / "whole").sha256

    def drill(state: ServerState, record: Record) -> None:
        if state.round == 1:
            backup(tmp_path / "run", tmp_path / "run.tar")  # while the run has the folder
        if state.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deployed(method, tmp_path, on_round=drill)
    shutil.rmtree(tmp_path / "run")
    restore(tmp_path / "run.tar", tmp_path / "run")
    again = deployed(method, tmp_path, grid(method, tmp_path, seed=5))
    assert again.sha256 == expected and verify(again.folder).intact, verify(again.folder).problems
    assert rounds_by(again) == rounds_by(Outcome(tmp_path / "whole" / "run", {}, trained=True))
