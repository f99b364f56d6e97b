"""Noise in shares on Flower nodes: the bits of one process with the nodes' secrets, and nothing with less noise."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")


from support.flower import TASK, start, state_of
from support.flower import own_clock as own_clock
from support.losing_grid import WORKING, Losing
from support.private_nodes import replay_private, secrets_of
from undrift import Local, Simulation, parse
from undrift.blocks.release.shares import draw_discrete
from undrift.core.server.wire import WireError
from undrift.deploying.deploy import deploy
from undrift.engine.flower.node.noise import NodeNoise, draw_secretly
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.flower import Job, UndriftStrategy, client_app
from undrift.runs import ConfigError
from undrift.secure.exchange import STEPS
from undrift.secure.settings import Secure
from undrift.testing import fingerprint

METHOD = "scaffold + uniform + private-shares(0.5, 1.0, 4)"
SECURE = Secure(least=4)
KEEP = Local(lr=0.05, batch_size=4, steps=3, buffers="keep")


def grid_of(root: Path, nodes: int = 8, lost: dict[str, set[int]] | None = None, method: str = METHOD) -> Losing:
    """Nodes that lose the messages of some steps."""
    grid = Losing(client_app(Job(parse(method), TASK, depth=2)), nodes, root)
    grid.lost, grid.seen = lost or {}, []
    return grid


def strategy(method: str = METHOD, **settings: Any) -> UndriftStrategy:
    given: dict[str, Any] = {
        "population": 8,
        "seed": 3,
        "wait": 2.0,
        "poll": 0.01,
        "deadline": 20.0,
        "secure": SECURE,
        "local": KEEP,
    }
    given |= settings
    return UndriftStrategy(parse(method), TASK.model(), given.pop("local"), **given)


def expected(grid: Losing, rounds: list[list[int]]) -> str:
    """The fingerprint of one process over the same survivors, with the nodes' secrets."""
    held = secrets_of(
        grid.root,
        {node: range(int(it.node_config["partition-id"]), 8, grid.partitions) for node, it in grid.nodes.items()},
    )
    return fingerprint(replay_private(METHOD, TASK, KEEP, rounds, held, seed=3, secure=SECURE))


@pytest.mark.quick
@pytest.mark.parametrize("nodes", [4, 8])
def test_the_state_is_that_of_one_process_with_the_nodes_secrets(nodes: int, tmp_path: Path) -> None:
    """Of eight nodes one has no upload; of four, two clients each, every one is a party."""
    trained, grid = strategy(), grid_of(tmp_path, nodes)
    start(trained, grid, rounds=2)
    assert [list(record.clients) for record in trained.records] == [WORKING] * 2
    assert fingerprint(state_of(trained)) == expected(grid, [WORKING] * 2)
    assert not {"train_loss", "client_norm"} & set(trained.records[-1].row(0.1))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("step", STEPS)
def test_nodes_that_are_lost_in_a_step_leave_enough_noise(step: str, tmp_path: Path) -> None:
    """Whoever is left, the sum has the shares of all survivors, four at least."""
    trained, grid = strategy(), grid_of(tmp_path, 8, {step: {2, 6}})
    start(trained, grid, rounds=1)
    left = [0, 3, 4, 5, 7] if STEPS.index(step) < 3 else WORKING
    assert list(trained.records[0].clients) == left
    assert fingerprint(state_of(trained)) == expected(grid, [left])


def test_below_the_fewest_survivors_the_round_is_abandoned(tmp_path: Path) -> None:
    trained = strategy(patience=1)
    with pytest.raises(TooFewNodes, match="fewer than 4 is not unmasked"):
        start(trained, grid_of(tmp_path, 8, {"masked": {2, 4, 6, 7}}), rounds=1)
    assert fingerprint(replace(state_of(trained), round=0)) == fingerprint(
        Simulation(METHOD, TASK, KEEP, secure=SECURE).start()
    )


def test_a_round_that_is_begun_again_has_other_noise(tmp_path: Path) -> None:
    """As after a crash of the server: the same order, and another upload, which the statement counts."""
    states = []
    for _ in range(2):
        trained = strategy(run="again")
        start(trained, grid_of(tmp_path), rounds=1)
        states.append(fingerprint(state_of(trained)))
    assert states[0] != states[1]
    held = [json.loads(path.read_text()) for path in (tmp_path / "again").glob("noise-*")]
    assert len(held) == 8 and {tuple(it["begun"].items()) for it in held} == {(("0", 2),)}
    assert len({it["key"] for it in held}) == 8


def test_a_secret_stays_on_its_node(tmp_path: Path) -> None:
    path = tmp_path / "states" / "noise-1"
    noise = NodeNoise(path)
    noise.begin(3)
    first = noise.open(5)(1 << 20, 100)
    assert path.stat().st_mode & 0o077 == 0
    again = NodeNoise(path)
    again.round = 3
    assert (first == again.open(5)(1 << 20, 100)).all(), "who has the secret can draw the noise again"
    again.begin(3)
    others = again.open(5)(1 << 20, 100), again.open(6)(1 << 20, 100)
    assert not any((first == other).all() for other in others)
    path.write_text('{"key": 5}')
    with pytest.raises(WireError, match="delete it"):
        NodeNoise(path)


def test_noise_from_a_secret_has_its_distribution() -> None:
    found = draw_discrete(100_000, 1000, draw_secretly(b"s" * 32)).double()
    assert abs(float(found.mean())) < 4 * 1000 / len(found) ** 0.5
    assert float(found.std()) == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize(("secure", "why"), [(None, "secure sums only"), (Secure(least=2), "made for 4 clients")])
def test_a_node_refuses_a_server_that_would_see_less_noise(secure: Secure | None, why: str, tmp_path: Path) -> None:
    trained, grid = strategy(patience=1), grid_of(tmp_path)
    trained.secure = secure  # as a server with other code
    with pytest.raises(TooFewNodes):
        start(trained, grid, rounds=1)
    record = trained.records[0]
    assert not record.clients and why in str([*record.rejections, *record.absent])


def test_a_strategy_without_enough_noise_is_refused() -> None:
    for secure in (None, Secure(least=3), True):
        with pytest.raises(ValueError, match=r"set secure = Secure\(least=4\)"):
            strategy(secure=secure)
    with pytest.raises(ValueError, match="protects in simulations only"):
        strategy("uniform + private-sum(0.5, 1)")


def test_a_deployment_states_what_its_nodes_noise_guarantees(tmp_path: Path) -> None:
    """Every restart of the server may have released a round twice, so it counts; the budget holds for both."""
    given: dict[str, Any] = {"rounds": 2, "population": 8, "seed": 3, "poll": 0.01, "wait": 5.0, "deadline": 20.0}
    given |= {"folder": tmp_path / "run", "secure": SECURE, "test": lambda _: {"accuracy": 0.5}}
    budget = {"epsilon": 40.0, "delta": 0.01}

    def stop(state: Any, _: Any) -> None:
        if state.round == 1:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        deploy(grid_of(tmp_path / "a"), METHOD, TASK.model(), KEEP, on_round=stop, settings=budget, **given)
    done = deploy(grid_of(tmp_path / "a"), METHOD, TASK.model(), KEEP, settings=budget, **given)
    stated = done.summary["privacy"]
    assert stated["rounds"] == 3 and "secrets of the nodes" in stated["randomness"]
    assert "the server sees" in stated["covers"] and 0 < stated["epsilon"] < 40
    given["folder"] = tmp_path / "other"
    with pytest.raises(ConfigError, match="would spend more than 2"):
        deploy(grid_of(tmp_path / "b"), METHOD, TASK.model(), KEEP, settings={**budget, "epsilon": 2.0}, **given)
