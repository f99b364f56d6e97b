"""Server and nodes of two versions: messages of release 0.2.0 as it wrote them, and both programs side by side."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, RecordDict

from golden.test_golden import WRITTEN, machine
from support.flower import ALL, LOCAL, grid_of, rounds_of, start, state_of, strategy_of, task_of
from support.flower import own_clock as own_clock
from support.release import ROOT, old_source
from support.two_versions import ROUNDS, environment, unpack
from undrift import Local, Simulation, make
from undrift.core.records.rejection import Reason
from undrift.engine.flower.records import decode, read_config
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.engine.flower.versions import NEWEST, OLDEST, READS, choose_version, find_newer
from undrift.flower import Job, Quarantine, client_app
from undrift.testing import Clinic, fingerprint

OLD = Path(__file__).with_name("messages-0.2.0.json")
"""The exchanges of release 0.2.0 with the first of two nodes: `python -m support.two_versions record FILE SRC SRC`."""

METHODS = ["fedavg", "scaffold", "fedfft-d", "fedsmoo", "krum", "ditto"]
NEWER = ["fednova", "fedavg + norm-clip(1.0)", "fedbuff(4)", "fedavg + top-k(0.5)", "fedexp"]


def as_old(app: Any, which: Any) -> Any:
    """An app whose node is given questions as an old server writes them, so that it answers in the old version."""

    def answer(message: Message, context: Context) -> Message:
        record = message.content.config_records["undrift"]
        if "versions" in record and which(context):
            head = ConfigRecord({name: x for name, x in record.items() if name != "versions"})
            old = Message(RecordDict({"undrift": head}), 1, message.metadata.message_type)
            old.metadata.__dict__["_message_id"] = message.metadata.message_id
            return app(old, context)  # type: ignore[no-any-return]
        return app(message, context)  # type: ignore[no-any-return]

    return answer


def first(context: Context) -> bool:
    """Whether a node is the first."""
    return context.node_config["partition-id"] == 0


def recorded() -> list[dict[str, Any]]:
    """The exchanges of release 0.2.0 with a node of its own, in their order."""
    return list(json.loads(OLD.read_text()))


def test_the_newest_common_version_is_chosen() -> None:
    assert (OLDEST, NEWEST) == (min(READS), max(READS)) == (4, 6)
    assert choose_version([], 4) == 4 and choose_version([4], 4) == 4
    assert choose_version([4, 6], 4) == 6 == choose_version([4, 6, 9], 4) and choose_version([6, 9], 6) == 6


def test_what_old_messages_cannot_carry_is_named() -> None:
    assert not any(find_newer(4, make(name), Local()) for name in METHODS)
    assert all(find_newer(4, make(name), Local()) for name in NEWER)
    assert not any(find_newer(6, make(name), Local(), secure=True) for name in NEWER)
    assert find_newer(4, make("fednova"), Local()) == "Normalized"
    assert find_newer(4, make("fedavg"), Local(example_clip=1.0), secure=True) == "local.example_clip, a secure sum"


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_nodes_of_both_versions_give_one_hash(name: str, tmp_path: Path) -> None:
    grid, written = grid_of(name, 3, tmp_path), set()
    app = as_old(grid.app, first)

    def seen(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.message_type == "train":
            versions = {content.config_records["undrift"]["version"] for content in (message.content, reply.content)}
            written.add((first(context), *versions))
        return reply  # type: ignore[no-any-return]

    grid.app = seen  # type: ignore[assignment]
    strategy = strategy_of(name)
    start(strategy, grid, 2)
    assert written == {(True, 4), (False, 6)}
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of(name, ALL, ALL))


@pytest.mark.parametrize("name", ["fednova", "fedavg + top-k(0.5)"])
def test_a_node_that_cannot_carry_the_run_is_refused_and_not_quarantined(name: str, tmp_path: Path) -> None:
    grid = grid_of(name, 2, tmp_path)
    app, old = grid.app, [True]
    grid.app = as_old(app, lambda context: old[0] and first(context))
    rule = Quarantine(after=1, failures=1)
    grid.lazy = 0.0

    def update(state: Any, _: Any) -> None:
        if state.round == 2:
            old[0] = False
            grid.restart(0)

    strategy = strategy_of(name, quorum=0.25, nodes=1, wait=5.0, quarantine=rule, on_round=update)
    start(strategy, grid, 4)
    odd = [client for client in ALL if client % 2]
    assert list(strategy.records[0].clients) == [client for client in odd if client != 1]  # client 1 has no examples
    assert {r.client % 2 for record in strategy.records for r in record.rejections} <= {1}
    assert dict(strategy.records[0].absent) == {client: "no node hosts it" for client in ALL if client % 2 == 0}
    assert not strategy.records[3].absent and not any(record.quarantined for record in strategy.records)
    with pytest.raises(TooFewNodes, match=r"gets no clients: message version 4 cannot carry .*update undrift"):
        start(strategy_of(name, wait=1.0), as_grid(name, tmp_path / "all"))


def as_grid(name: str, root: Path) -> Any:
    """A grid whose nodes are all old."""
    grid = grid_of(name, 2, root)
    grid.app = as_old(grid.app, lambda _: True)
    return grid


def test_a_node_refuses_an_old_server_that_could_not_read_its_uploads(tmp_path: Path) -> None:
    """FedNova's clients send less than release 0.2.0 expects."""
    asked = next(unpack(one["asked"]) for one in recorded() if "algorithm" in unpack(one["asked"]).content["undrift"])
    order = dict(asked.content.config_records["undrift"]) | {"algorithm": repr(make("fednova"))}
    sent = Message(RecordDict({**asked.content, "undrift": ConfigRecord(order)}), 1, "train")
    sent.metadata.__dict__["_message_id"] = "x"
    config: dict[str, bool | float | int | str] = {"partition-id": 0, "num-partitions": 2, "state-dir": str(tmp_path)}
    reply = client_app(Job(make("fednova"), Clinic()))(sent, Context(1, 1, config, RecordDict(), {}))
    told = reply.content.config_records["undrift"]
    assert told["version"] == 4 and "version 4 cannot carry Normalized: update undrift" in str(told["refused"])


def test_messages_of_the_last_release_are_answered_with_its_bits(tmp_path: Path) -> None:
    """What its server asked: this node answers in its version, with the uploads that its own node sent."""
    if machine() != WRITTEN:
        pytest.skip("bits are promised for one build and kind of machine")
    kinds = set()
    for one in recorded():
        asked, replied = unpack(one["asked"]), unpack(one["replied"])
        app = client_app(Job(make(one["method"]), Clinic()))
        config = {**one["config"], "state-dir": str(tmp_path / one["method"])}
        reply = app(asked, Context(1, 1, config, RecordDict(), {}))
        kinds.add((one["method"], asked.metadata.message_type))
        own, old = dict(reply.content.config_records["undrift"]), dict(replied.content.config_records["undrift"])
        assert own["version"] == old["version"] == 4
        if asked.metadata.message_type == "query":
            assert old.items() <= own.items()
            continue
        sent, expected = decode(reply.content.array_records["arrays"]), decode(replied.content.array_records["arrays"])
        assert set(sent) == set(expected) and all(torch.equal(sent[name], x) for name, x in expected.items())
        timed: Callable[[Any], Any] = lambda text: [[*v[:4], *v[5:]] for v in json.loads(str(text))["visits"]]  # noqa: E731
        assert timed(own["summary"]) == timed(old["summary"])
    assert kinds == {(name, kind) for name in ("fedavg", "scaffold") for kind in ("query", "train")}


def test_replies_of_the_last_release_enter_the_sum(tmp_path: Path) -> None:
    """A node of the recording beside one of this program: the model is that of this program alone."""
    if machine() != WRITTEN:
        pytest.skip("bits are promised for one build and kind of machine")
    for name in ("fedavg", "scaffold"):
        replies = iter([unpack(one["replied"]) for one in recorded() if one["method"] == name])
        grid = grid_of(name, 2, tmp_path / name)
        app = grid.app

        def answer(message: Message, context: Context, app: Any = app, replies: Any = replies) -> Message:
            if not first(context):
                return app(message, context)  # type: ignore[no-any-return]
            assert read_config(message.content)["version"] == 4
            return Message(next(replies).content, reply_to=message)

        grid.app = answer  # type: ignore[assignment]
        strategy = strategy_of(name, run="mixed")
        start(strategy, grid, ROUNDS)
        assert not any(r.reason is not Reason.EMPTY for record in strategy.records for r in record.rejections)
        expected = Simulation(make(name), task_of(name), LOCAL, seed=3).run(ROUNDS)
        assert fingerprint(state_of(strategy)) == fingerprint(expected)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The source of release 0.2.0 and that of this program."""
    return {"old": str(old_source(tmp_path_factory.mktemp("release"))), "new": str(ROOT / "src")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "nodes"),
    [("new", ("old", "new")), ("old", ("old", "new")), ("new", ("old", "old")), ("old", ("new", "new"))],
    ids=["new server", "old server", "new server, old nodes", "old server, new nodes"],
)
def test_both_programs_side_by_side(server: str, nodes: tuple[str, str], sources: dict[str, str]) -> None:
    """Pairs of server and nodes, in processes of their own: one hash for each method."""
    command = [sys.executable, "-m", "support.two_versions", "|".join(METHODS), *(sources[node] for node in nodes)]
    done = subprocess.run(command, env=environment(sources[server]), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {line["method"]: line for line in map(json.loads, done.stdout.splitlines())}
    for name in METHODS:
        local = Local(lr=0.05, epochs=1, batch_size=4)
        expected = fingerprint(Simulation(make(name), task_of(name), local, seed=3).run(ROUNDS))
        assert found[name]["sha256"] == expected, name
        assert not any(found[name]["quarantined"]) and not any(found[name]["absent"])
