"""Messages on Flower without the factors that are frozen, private or unchanged: their bytes, and the same bits."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, Message

from support.flower import LOCAL, start, state_of
from support.flower import own_clock as own_clock
from support.flower_grid import StandInGrid
from undrift import Simulation
from undrift.compose.grammar import parse
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.part_vector import Part, find_part, travelling
from undrift.core.model.flat_model import bind
from undrift.core.records.exact_sum import ExactSum, spread
from undrift.core.records.packed_sum import PackedSum
from undrift.engine.flower.node.received import keeps_models
from undrift.flower import Job, UndriftStrategy, client_app
from undrift.testing import clinic, fingerprint

METHODS = ["ffa-lora", "rolora", "fedsa-lora", "fedsvd", "ffa-lora + scaffold", "fedper"]


class Counted(StandInGrid):
    """A grid that counts the bytes of vectors in the orders and answers of every round, by name."""

    def __init__(self, algorithm: Algorithm, nodes: int, root: Path) -> None:
        app = client_app(Job(algorithm, clinic(algorithm)))
        self.seen: list[tuple[int, str, dict[str, int]]] = []

        def counted(message: Message, context: Context) -> Message:
            reply = app(message, context)
            if message.metadata.message_type == "train":
                for way, one in (("down", message), ("up", reply)):
                    arrays = one.content.get("arrays")
                    sizes = (
                        {k: math.prod(x.shape) for k, x in arrays.items()} if isinstance(arrays, ArrayRecord) else {}
                    )
                    self.seen.append((int(message.content["undrift"]["round"]), way, sizes))  # type: ignore[arg-type]
            return reply

        super().__init__(counted, nodes, root)  # type: ignore[arg-type]

    def sizes(self, way: str, name: str) -> dict[int, set[int]]:
        """The lengths of a vector by round."""
        out: dict[int, set[int]] = {}
        for round, found, sizes in self.seen:
            if found == way and name in sizes:
                out.setdefault(round, set()).add(sizes[name])
        return out


def trained(name: str, nodes: int, root: Path, rounds: int = 4, **given: Any) -> tuple[UndriftStrategy, Counted]:
    algorithm = parse(name)
    grid, task = Counted(algorithm, nodes, root), clinic(algorithm)
    settings = {"population": 8, "seed": 3, "wait": 2.0, "poll": 0.01, "deadline": 20.0, **given}
    strategy = UndriftStrategy(algorithm, task.model(), LOCAL, **settings)
    start(strategy, grid, rounds, task=task)
    return strategy, grid


def expected(name: str, rounds: int = 4, **given: Any) -> str:
    algorithm = parse(name)
    return fingerprint(Simulation(algorithm, clinic(algorithm), LOCAL, seed=3, **given).run(rounds))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("nodes", [3, 8])
@pytest.mark.parametrize("name", METHODS)
def test_short_messages_give_the_bits_of_one_process(name: str, nodes: int, tmp_path: Path) -> None:
    strategy, grid = trained(name, nodes, tmp_path)
    assert not any(record.rejections[1:] for record in strategy.records)  # client 1 has no examples
    assert fingerprint(state_of(strategy)) == expected(name)
    layout, block = bind(clinic(parse(name)).model()).layout, parse(name).personalization
    up, down = grid.sizes("up", "delta"), grid.sizes("down", "params")
    if nodes == 8:
        assert up == {round: {travelling(block, layout, round, True)} for round in range(4)}
    keeps = keeps_models(parse(name), layout, 0)
    assert down[0] == {layout.size}
    for round in range(1, 4):  # a tensor may have stood still; the node of client 1, which has no answer, gets all
        most = travelling(block, layout, round, False) if keeps else layout.size
        assert all(count <= most or (nodes == 8 and count == layout.size) for count in down[round]), down
        assert min(down[round]) > most / 2


def test_variates_on_a_frozen_factor_do_not_travel(tmp_path: Path) -> None:
    strategy, grid = trained("ffa-lora + scaffold", 8, tmp_path)
    layout, block = bind(clinic(strategy.algorithm).model()).layout, strategy.algorithm.personalization
    assert min(grid.sizes("down", "parts.drift.c")[3]) == travelling(block, layout, 3, False) < layout.size


def test_sums_are_packed_without_what_does_not_travel(tmp_path: Path) -> None:
    _, short = trained("ffa-lora", 2, tmp_path / "a", 1)
    _, whole = trained("fedavg + personalization:private(())", 2, tmp_path / "b", 1)
    assert short.sizes("up", "delta/sum").keys() == {0} == whole.sizes("up", "delta/sum").keys()
    packed = ExactSum(6)
    packed.add(torch.tensor([1.0, 0, 0, 2, 0, 0]))
    mask = torch.tensor([1, 1, 0, 1, 0, 0]).bool()
    small = packed.pack(mask)
    found = spread(small, mask)
    assert small.size == 3 and torch.equal(found.value(), packed.value())
    assert packed.pack(~mask).size == 6
    damaged = PackedSum(small.data[:-1])
    assert spread(damaged, mask) is damaged


def test_nodes_that_were_absent_get_what_they_missed(tmp_path: Path) -> None:
    """RoLoRA with a cohort of 3 of 8: a node lacks one factor or both, as long as it was away."""
    strategy, grid = trained("rolora", 8, tmp_path, 6, cohort=3)
    assert fingerprint(state_of(strategy)) == expected("rolora", 6, cohort=3)
    sizes = grid.sizes("down", "params")
    assert len(set().union(*sizes.values())) > 1 and sizes[0] == {strategy._model.layout.size}


def test_a_node_that_lost_its_model_gets_all_of_it_in_the_next_round(tmp_path: Path) -> None:
    def lose(state: Any, _: Any) -> None:
        if state.round == 2:
            (gone,) = (path for path in tmp_path.rglob(f"model-{grid.node_of(0)}"))
            gone.write_bytes(b"damaged")

    algorithm = parse("ffa-lora")
    grid, task = Counted(algorithm, 4, tmp_path), clinic(algorithm)
    settings: Any = {"population": 8, "seed": 3, "wait": 2.0, "poll": 0.01, "deadline": 20.0}
    strategy = UndriftStrategy(algorithm, task.model(), LOCAL, **settings, on_round=lose)
    start(strategy, grid, 5, task=task)
    why = [{r.client: r.detail for r in record.rejections} for record in strategy.records]
    assert "is not here any more" in why[2][0] and 0 not in why[3] and 0 in strategy.records[3].clients


def test_a_resumed_server_sends_whole_models_again(tmp_path: Path) -> None:
    first, _ = trained("rolora", 8, tmp_path, 2, run="one")
    again, grid = trained("rolora", 8, tmp_path, 2, run="one", state=first.state)
    assert grid.sizes("down", "params")[2] == {again._model.layout.size}
    assert fingerprint(state_of(again)) == expected("rolora")


def test_a_vector_with_something_elsewhere_is_sent_whole() -> None:
    mask = torch.tensor([True, False, True])
    part = Part(mask, 2)
    for x in (torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1.0, 0.0, 2.0]).double(), torch.tensor([1.0, 0, 2]).half()):
        assert len(part.cut(x)) == 2 and torch.equal(part.widen(part.cut(x)), x)
    for odd in (torch.tensor([1.0, -0.0, 2.0]), torch.tensor([1.0, 1e-30, 2.0])):
        assert part.cut(odd) is not None and len(part.cut(odd)) == 3 and torch.equal(part.widen(part.cut(odd)), odd)


@pytest.mark.quick
def test_the_part_of_a_layout_is_found_once() -> None:
    algorithm = parse("rolora")
    layout = bind(clinic(algorithm).model()).layout
    block = algorithm.personalization
    assert find_part(block, layout, 4, True) is find_part(block, layout, 4, True)
    assert find_part(Algorithm().personalization, layout, 4, True) is None
    first, second = (travelling(block, layout, round, True) for round in (0, 1))
    assert travelling(block, layout, 1, False) == first and travelling(block, layout, 2, False) == second
