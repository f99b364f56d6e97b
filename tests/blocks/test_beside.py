"""What blocks compute beside blocks of other slots."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from support.rounds import part_of
from undrift import Algorithm, Local, Simulation
from undrift.algorithms import fedfft, specgrad
from undrift.blocks import Filters, Whiten, high_pass
from undrift.compose.grammar import parse
from undrift.core import TensorTask
from undrift.core.method.block import Needs, Objective
from undrift.core.method.view import Start
from undrift.testing import Quadratics, check_algorithm
from undrift.testing.rounds import states_of

TASK = Quadratics.random(6, sizes=[5] * 6)
PRIVATE = "private(names=('fc_weight', 'bias'))"


@pytest.mark.parametrize("method", ["scaffold", "scaffold-i", "fedcm", "fedwmsam"])
@pytest.mark.parametrize("step_schedule", [None, "cosine"])
def test_slopes_are_zero_on_the_private_part(method: str, step_schedule: str | None) -> None:
    """With weight decay, too: the decay of a private value is no slope of what is shared."""
    local = Local(lr=0.1, batch_size=1, weight_decay=1e-2, step_schedule=step_schedule)
    simulation = Simulation(parse(f"{method} + {PRIVATE}"), TASK, local, cohort=3, seed=1)
    state = simulation.run(4)
    layout = simulation.worker.model.layout
    private = layout.mask(lambda name, _: name in ("fc_weight", "bias"))
    kept = [client.parts for held in states_of(simulation).values() for client in held.values()]
    vectors = [x for parts in (state.parts, *kept) for tree in parts.values() for x in tree]  # type: ignore[union-attr]
    whole = [x for x in vectors if isinstance(x, torch.Tensor) and len(x) == layout.size]
    assert whole and all(bool(x[~private].any()) and not bool(x[private].any()) for x in whole)


@pytest.mark.parametrize("method", ["uniform", "scaffold", "scaffold-i", "feddyn"])
def test_what_a_gradient_filter_removes_is_never_moved(method: str) -> None:
    """The variates of scaffold-i are filtered, too: else the steps follow what the filter removes from gradients."""
    simulation = Simulation(parse(f"{method} + gradient:high-pass(0.3)"), TASK, Local(lr=0.1), cohort=2, seed=1)
    start = simulation.start()
    moved = simulation.run(10, start).params - start.params
    kept = moved.clone()
    high_pass(0.3).apply_(kept, simulation.worker.model.layout, Generator())
    assert torch.linalg.vector_norm(kept) > 0.1 and torch.linalg.vector_norm(moved - kept) < 1e-9


def test_filtered_then_clipped_variates_leave_the_private_part_to_the_norm() -> None:
    """As in a step: the filter acts on the shared part, the clip on all, and the variate is that of the shared part."""
    local = Local(lr=0.1, batch_size=1, clip=0.5)
    simulation = Simulation(parse(f"scaffold-i + gradient:high-pass(0.3) + {PRIVATE}"), TASK, local)
    layout = simulation.worker.model.layout
    state = simulation.start()
    private = layout.mask(lambda name, _: name in ("fc_weight", "bias"))
    gradient = TASK.curvatures[0] @ (state.params - TASK.optima[0])
    filtered = gradient.clone()
    high_pass(0.3).apply_(filtered, layout, Generator())
    whole = torch.where(private, gradient, filtered)
    expected = torch.where(private, 0.0, whole * min(1.0, 0.5 / float(torch.linalg.vector_norm(whole))))
    simulation.round(state)
    torch.testing.assert_close(part_of(states_of(simulation)[0][0], "drift").c, expected)


@pytest.mark.sweep(every=4)
def test_filters_that_draw_keep_the_contract_beside_scaffold_i() -> None:
    check_algorithm(parse("scaffold-i + gradient:random-stop(0.2)"))


def normed() -> nn.Module:
    """A network with batch normalisation."""
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("method", ["fedavg", "scaffold-i", "q-fedavg", "fedala(sample=1.0)", "fedscam"])
def test_passes_beside_training_leave_out_a_short_last_batch(method: str) -> None:
    """Nine examples in batches of four: the last batch has one, which batch normalisation does not take."""
    inputs = torch.randn(18, 3, generator=Generator().manual_seed(0))
    task = TensorTask(normed, inputs, torch.arange(18) % 2, [torch.arange(9), torch.arange(9, 18)])
    local = Local(lr=0.1, batch_size=4, drop_last=True)
    assert Simulation(parse(method), task, local, failures="raise").run(3).round == 3


class Plain:
    """One client with nine examples, and a task that does not count its labels."""

    population = 1
    model = staticmethod(normed)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1])

    def examples(self, client: int) -> int:
        return 9

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(9, generator=generator)
        yield from zip(torch.split(torch.ones(9, 3), size), torch.split(order % 2, size), strict=True)


def test_labels_are_counted_in_all_batches() -> None:
    """The short last batch, too, which other passes leave out."""
    seen: list[tuple[int, int]] = []

    @dataclass(frozen=True)
    class Counting(Objective):
        """Counts labels and batches."""

        needs = Needs(labels=True)

        def begin(self, sent: None, kept: None, start: Start) -> None:
            counts = start.label_counts()
            assert counts is not None
            seen.append((int(counts.sum()), len(list(start.data("mine")))))

    Simulation(Algorithm(objective=Counting()), Plain(), Local(batch_size=4, drop_last=True)).run(1)
    assert seen == [(9, 2)]


def test_specgrad_takes_nothing_away_from_its_host() -> None:
    assert specgrad(0.1, fedfft(r=0.02)).spectral == Filters(high_pass(0.02), high_pass(0.1))
    for spectral in (Whiten(0.1), Filters(gradient=high_pass(0.2))):
        with pytest.raises(ValueError, match="specgrad: host must not change its gradients already, got spectral="):
            specgrad(0.1, Algorithm(spectral=spectral))
        assert specgrad(0.0, Algorithm(spectral=spectral)) == Algorithm(spectral=spectral)


def test_purely_local_training_shares_no_running_statistics() -> None:
    inputs = torch.randn(16, 3, generator=Generator().manual_seed(0)) + torch.arange(16)[:, None]
    task = TensorTask(normed, inputs, torch.arange(16) % 2, [torch.arange(8), torch.arange(8, 16)])
    simulation = Simulation(parse("fedper('all')"), task, Local(lr=0.1, batch_size=4))
    start = simulation.start()
    state = simulation.run(2, start)
    assert torch.equal(state.buffers, start.buffers) and torch.equal(state.params, start.params)
    own = [simulation.personal(state, client).state_dict()["1.running_mean"].clone() for client in (0, 1)]
    assert not torch.allclose(own[0], own[1]) and own[0].any() and own[1].any()
    assert not parse("fedper").keeps_buffers(Local()) and parse("fedrep(head='all')").keeps_buffers(Local())
