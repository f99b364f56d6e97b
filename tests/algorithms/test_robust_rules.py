"""Robust rules: the sheet's numbers, what all of them promise, small cohorts and odd uploads."""

from dataclasses import replace
from math import exp
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from oracle import weights
from support.rounds import close, part_of, rounds_to
from support.rules import DOUBLE, LOCAL, TASK, Bowls, gather, uploads_of
from undrift import Algorithm, Local, Simulation
from undrift.algorithms import make
from undrift.blocks import (
    Bulyan,
    ByExamples,
    ByLoss,
    CoordinateMedian,
    GeometricMedian,
    Krum,
    MedianClip,
    NormClip,
    QuantileClip,
    Scaffold,
    TrimmedMean,
    Uniform,
)
from undrift.blocks.aggregation import median
from undrift.blocks.aggregation.krum import chosen_by_krum, distances, scores
from undrift.blocks.aggregation.rows import by_norm, count_tolerated
from undrift.core.method.aggregation import Aggregation
from undrift.core.records.rejection import Reason
from undrift.core.records.types import Upload
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.core.server.partial_check import Stated
from undrift.testing import Quadratics


def clip_mean(uploads: list[Upload], rule: NormClip | QuantileClip, sent: Any = None) -> Tensor:
    """The mean of what a release lets through."""
    end: Any = SimpleNamespace(report=lambda *_: None)
    state: Any = rule.begin(sent, None, end)
    return sum(rule.release(upload.delta.clone(), state, end) for upload in uploads) / len(uploads)  # type: ignore[return-value]


def fixed(uploads: list[Upload], c: float) -> Tensor:
    """What NormClip and equal weights give."""
    return clip_mean(uploads, NormClip(c))


FIVE = uploads_of([1.0, 2.0, 3.0, 4.0, 100.0])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (CoordinateMedian(), 3.0),
        (TrimmedMean(1), 3.0),
        (TrimmedMean(0.2), 3.0),
        (Krum(1), 2.0),
        (Krum(1, 2), 2.5),
        (Krum(1, None), 2.5),
        (Krum(1, 4), 2.5),  # more than m - f - 2 are cut to it
        (MedianClip(), 2.4),
        (GeometricMedian(0), 22.0),
        (GeometricMedian(300), 3.0),
    ],
    ids=str,
)
def test_numbers_of_five_updates(rule: Aggregation, expected: float) -> None:
    close(gather(rule, FIVE)[0], expected, 1e-3 if rule == GeometricMedian(300) else 1e-12)


def test_scores_of_krum() -> None:
    assert scores(distances(FIVE), 1).tolist() == [5.0, 2.0, 2.0, 5.0, 18625.0]
    assert torch.equal(gather(Krum(1), FIVE)[0], FIVE[1].delta)
    close(fixed(FIVE, 3.0), 2.4)


def test_bulyan_on_seven_updates() -> None:
    seven = uploads_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0])
    assert [float(seven[i].delta) for i in chosen_by_krum(distances(seven), 5, 1)] == [3.0, 4.0, 2.0, 5.0, 1.0]
    close(gather(Bulyan(1), seven)[0], 3.0)


def test_weiszfeld_iterates() -> None:
    found = [float(gather(GeometricMedian(passes), FIVE)[0]) for passes in (1, 2, 3, 4)]
    rounds_to(found, "8.277979", "4.172956", "3.768653", "3.616224")
    rounds_to(gather(GeometricMedian(8), FIVE)[0], "3.0158")


# What all robust rules promise

RULES = [
    CoordinateMedian(),
    TrimmedMean(1),
    Krum(1),
    Krum(1, None),
    Bulyan(1),
    GeometricMedian(8, 1e-9, by_examples=False),
    GeometricMedian(8, 1e-9),
    MedianClip(),
]
SIZES = [1, 3, 2, 5, 4, 7, 2]
ROWS = torch.randn(7, 33, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_equal_updates_give_that_update(rule: Aggregation) -> None:
    close(gather(rule, uploads_of([ROWS[0] / 10] * 7))[0], ROWS[0] / 10, 1e-14)
    close(fixed(uploads_of([ROWS[0] / 10] * 7), 1.0), ROWS[0] / 10, 1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != Bulyan(1)], ids=str)
def test_the_names_of_clients_do_not_change_a_bit(rule: Aggregation, dtype: torch.dtype) -> None:
    def result(order: list[int]) -> Tensor:
        uploads = [replace(u, delta=u.delta.to(dtype)) for u in uploads_of(ROWS[order], [SIZES[i] for i in order])]
        out: Tensor = gather(rule, uploads)[0]
        return out

    expected = result(list(range(7)))
    for order in ([6, 5, 4, 3, 2, 1, 0], [2, 0, 6, 1, 5, 3, 4]):
        assert torch.equal(result(order), expected)


@pytest.mark.parametrize("rule", RULES[:7], ids=str)
def test_rules_move_and_scale_with_their_updates(rule: Aggregation) -> None:
    shift = torch.linspace(-3, 4, 33).double()
    close(
        gather(rule, uploads_of(2.5 * ROWS + shift, SIZES))[0], 2.5 * gather(rule, uploads_of(ROWS, SIZES))[0] + shift
    )


def test_clipping_does_not_move_with_its_updates() -> None:
    moved = gather(MedianClip(), uploads_of(ROWS + 1))[0] - gather(MedianClip(), uploads_of(ROWS))[0]
    assert float((moved - 1).abs().max()) > 0.01


@pytest.mark.parametrize("rule", [*RULES[:6], MedianClip()], ids=str)
@pytest.mark.parametrize("attack", ["replacement", "flipped", "noise"])
def test_one_bad_update_of_seven_does_little(rule: Aggregation, attack: str) -> None:
    honest = 1 + 0.1 * ROWS
    bad = {"replacement": 1000 * honest[6], "flipped": -honest[6], "noise": 50 * ROWS[6]}[attack]
    found = gather(rule, uploads_of([*honest[:6], bad]))[0]
    mean = honest[:6].mean(dim=0)
    worst = {Krum(1): 0.1, MedianClip(): 0.35}.get(rule, 0.12)  # type: ignore[call-overload]
    assert float((found - mean).norm() / mean.norm()) < worst


# Small cohorts and odd uploads


@pytest.mark.parametrize(
    ("f", "count", "most", "expected"),
    [(1, 9, 3, 1), (5, 9, 3, 3), (0.1, 30, 9, 3), (0.1, 31, 9, 4), (0.0, 9, 3, 0), (2, 2, -1, 0), (0.2, 5, 2, 1)],
)
def test_how_many_are_taken_for_bad(f: float, count: int, most: int, expected: int) -> None:
    assert count_tolerated(f, count, most) == expected


@pytest.mark.parametrize("count", range(1, 8))
def test_small_cohorts_take_the_largest_f_they_allow(count: int) -> None:
    uploads, rows = uploads_of(ROWS[:count]), list(ROWS[:count].numpy())
    f = max(0, (count - 3) // 2)
    close(gather(TrimmedMean(9), uploads)[0], gather(CoordinateMedian(), uploads)[0], 1e-14)
    close(gather(Krum(9), uploads)[0], weights.krum(rows, {}, f))
    close(gather(Krum(9, None), uploads)[0], weights.multi_krum(rows, {}, f, max(1, count - f - 2)))
    close(gather(Bulyan(9), uploads)[0], weights.bulyan(rows, {}, max(0, (count - 3) // 4)))


def test_ties_go_to_the_lowest_client() -> None:
    assert float(gather(Krum(0), uploads_of([3.0, 1.0]))[0]) == 3.0
    assert float(gather(Krum(0), uploads_of([1.0, 3.0]))[0]) == 1.0


def test_the_last_choices_of_bulyan_tie_by_construction() -> None:
    # One neighbour counts among three left, and two that are nearest to each other have the same score.
    left = scores(distances(uploads_of(ROWS[:3])), 1).sort().values
    assert left[0] == left[1] < left[2]


def test_an_update_that_is_not_finite_is_dropped_and_the_cohort_is_smaller() -> None:
    class Broken(Bowls):
        def loss(self, model: Any, batch: int) -> Tensor:
            return super().loss(model, batch) * (float("nan") if batch == 3 else 1.0)

    simulation = Simulation(make("median"), Broken(TASK.curvatures, TASK.optima, TASK.start, TASK.sizes), LOCAL)
    state, record = simulation.round(simulation.start(), [0, 3, 5])
    assert [(r.client, r.reason) for r in record.rejections] == [(3, Reason.FINITE)]
    healthy = Simulation(make("median"), TASK, LOCAL)
    assert torch.equal(state.params, healthy.round(healthy.start(), [0, 5])[0].params)


@pytest.mark.sweep(every=4)
def test_the_radius_follows_the_quantile() -> None:
    task = Quadratics.scalar([1.0] * 5, [1.0, 2.0, 3.0, 4.0, 100.0], start=0.0, sizes=[1] * 5)  # displacements: optima
    algorithm = Algorithm(release=QuantileClip(2.0, q=0.75, lr=0.1), aggregation=Uniform())
    simulation = Simulation(algorithm, task, Local(lr=1.0))
    start = simulation.start()
    state, record = simulation.round(start)
    close(state.params, (1 + 2 + 2 + 2 + 2) / 5)
    close(part_of(state, "release").c, 2 * exp(-0.1 * (0.4 - 0.75)))
    assert record.reports["release.clipped"] == pytest.approx(0.6) and record.reports["release.bound"] == 2.0
    for _ in range(300):
        state = simulation.round(replace(state, params=start.params))[0]
    assert 3.9 < part_of(state, "release").c < 4.1 * exp(0.1 * 0.15)  # four of five are inside from 4 on, three below


def test_a_longer_upload_than_the_radius_is_rejected() -> None:
    """A client that does not clip itself: the gate holds the bound, for uploads and for partial sums."""
    algorithm = Algorithm(release=NormClip(0.5), aggregation=Uniform())
    simulation = Simulation(algorithm, TASK, LOCAL)
    broadcast = server.send(algorithm, simulation.start(), simulation.job.setting)
    gate = Gate(algorithm, LOCAL, broadcast, [0, 1])
    upload = simulation.worker.visit(0, broadcast, None, gate)
    assert upload is not None and float(upload.delta.norm()) <= 0.5 * (1 + 1e-6)
    rejected = gate.admit(replace(upload, delta=upload.delta * 3), gate.total())
    assert rejected is not None and rejected.reason is Reason.SIZE
    part = gate.total()
    part.add(replace(upload, delta=upload.delta * 3))
    rejected = gate.merge(part, gate.total(), {0: Stated(upload.examples, 1.0)})
    assert rejected is not None and rejected.reason is Reason.SIZE
    assert gate.admit(upload, gate.total()) is None


def test_clipping_combines_with_every_rule() -> None:
    for rule in (ByExamples(), CoordinateMedian(), ByLoss()):
        algorithm = Algorithm(release=NormClip(0.05), drift=Scaffold(), aggregation=rule)
        state, record = next(Simulation(algorithm, TASK, LOCAL).rounds(1))
        assert not record.rejections and record.reports["release.clipped"] == 1.0
        assert float((state.params - Simulation(algorithm, TASK, LOCAL).start().params).norm()) <= 0.05 * (1 + 1e-6)


def test_clipping_at_nothing_moves_nothing() -> None:
    still = uploads_of([0.0, 0.0, 0.0, 4.0])
    close(gather(MedianClip(), still)[0], 0.0)
    close(fixed(still, 2.0), 0.5)


def test_uploads_are_ordered_by_length() -> None:
    assert [u.client for u in by_norm(uploads_of([3.0, -1.0, 2.0, 1.0]))] == [1, 3, 2, 0]


@pytest.mark.parametrize("rule", [CoordinateMedian(), TrimmedMean(2)], ids=repr)
def test_coordinates_are_sorted_piece_by_piece(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(9, 1003, generator=torch.Generator().manual_seed(0))
    uploads = [replace(FIVE[0], client=i, delta=row) for i, row in enumerate(rows)]
    whole = gather(rule, uploads)[0]
    monkeypatch.setattr(median, "_PIECE", 10)
    assert torch.equal(gather(rule, uploads)[0], whole)
