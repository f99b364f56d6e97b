"""Nothing enters a sum unchecked; what is rejected is named and leaves no trace."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial as given
from random import Random
from typing import Any

import pytest
import torch

from support.rounds import Talker, part_of
from undrift import Algorithm, Local, Simulation
from undrift.algorithms import make
from undrift.core.method.aggregation import Summing
from undrift.core.records.exact_sum import ExactSum
from undrift.core.records.rejection import Reason
from undrift.core.records.types import Upload
from undrift.core.server import step as server
from undrift.core.server import wire
from undrift.core.server.gate import Gate
from undrift.core.server.total import Total
from undrift.testing import Clinic, fingerprint

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)


class Odd(Summing):
    """Weighs by the loss, whatever it is."""

    def weigh(self, upload: Any, up: Any, age: Any) -> Any:
        return upload.loss


def setup(algorithm: Algorithm, **options: Any) -> tuple[Simulation, Gate, Upload]:
    simulation = Simulation(algorithm, Clinic(), LOCAL)
    broadcast = server.send(algorithm, simulation.start(), simulation.job.setting)
    gate = Gate(algorithm, LOCAL, broadcast, range(8), **options)
    upload = simulation.worker.visit(3, broadcast, None, gate)
    assert upload is not None
    return simulation, gate, upload


def poisoned(v: torch.Tensor, value: float) -> torch.Tensor:
    out = v.clone()
    out[len(out) // 2] = value
    return out


def parts(upload: Upload, **changes: Any) -> dict[str, Any]:
    return {"drift": part_of(upload, "drift")._replace(**changes)}


BROKEN: dict[str, tuple[Reason, Callable[[Any], Any]]] = {
    "stranger": (Reason.SENDER, lambda u: {"client": 77}),
    "sender is text": (Reason.SENDER, lambda u: {"client": "3"}),
    "sender is true": (Reason.SENDER, lambda u: {"client": True}),
    "late": (Reason.ROUND, lambda u: {"round": u.round - 1}),
    "round is text": (Reason.ROUND, lambda u: {"round": "0"}),
    "no examples": (Reason.EMPTY, lambda u: {"examples": 0}),
    "negative examples": (Reason.COUNT, lambda u: {"examples": -5}),
    "fractional examples": (Reason.COUNT, lambda u: {"examples": 2.5}),
    "too many examples": (Reason.COUNT, lambda u: {"examples": 10**18}),
    "listed examples": (Reason.COUNT, lambda u: {"examples": [9]}),
    "wrong steps": (Reason.COUNT, lambda u: {"steps": u.steps + 1}),
    "loss not finite": (Reason.FINITE, lambda u: {"loss": float("nan")}),
    "loss missing": (Reason.FINITE, lambda u: {"loss": None}),
    "nan": (Reason.FINITE, lambda u: {"delta": poisoned(u.delta, float("nan"))}),
    "infinite": (Reason.FINITE, lambda u: {"delta": poisoned(u.delta, float("inf"))}),
    "huge": (Reason.SIZE, lambda u: {"delta": poisoned(u.delta, 1e35)}),
    "too large for an exact sum": (Reason.SIZE, lambda u: {"delta": poisoned(u.delta, 1e11)}),
    "short": (Reason.SHAPE, lambda u: {"delta": u.delta[:-1]}),
    "matrix": (Reason.SHAPE, lambda u: {"delta": u.delta[None]}),
    "sparse": (Reason.SHAPE, lambda u: {"delta": u.delta.to_sparse()}),
    "not a tensor": (Reason.SHAPE, lambda u: {"delta": u.delta.tolist()}),
    "double": (Reason.DTYPE, lambda u: {"delta": u.delta.double()}),
    "integers": (Reason.DTYPE, lambda u: {"delta": u.delta.long()}),
    "buffers short": (Reason.SHAPE, lambda u: {"buffers": u.buffers[:-1]}),
    "buffers nan": (Reason.FINITE, lambda u: {"buffers": u.buffers * float("nan")}),
    "counts of floats": (Reason.DTYPE, lambda u: {"counts": u.counts.float()}),
    "parts missing": (Reason.TREE, lambda u: {"parts": {}}),
    "parts undeclared": (Reason.TREE, lambda u: {"parts": {**u.parts, "momentum": part_of(u, "drift")}}),
    "parts no dict": (Reason.TREE, lambda u: {"parts": [1]}),
    "tree of another class": (Reason.TREE, lambda u: {"parts": {"drift": tuple(part_of(u, "drift"))}}),
    "part nan": (Reason.FINITE, lambda u: {"parts": parts(u, v=poisoned(u.delta, float("nan")))}),
    "part huge": (Reason.SIZE, lambda u: {"parts": parts(u, v=poisoned(u.delta, 1e30))}),
    "part short": (Reason.SHAPE, lambda u: {"parts": parts(u, v=u.delta[:4])}),
    "array long": (Reason.SHAPE, lambda u: {"parts": parts(u, a=torch.ones(6))}),
    "number nan": (Reason.FINITE, lambda u: {"parts": parts(u, x=float("nan"))}),
    "number is text": (Reason.TREE, lambda u: {"parts": parts(u, x="0.5")}),
    "integer is a float": (Reason.TREE, lambda u: {"parts": parts(u, k=0.5)}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_upload_is_rejected_without_a_trace(name: str) -> None:
    reason, change = BROKEN[name]
    algorithm = Algorithm(drift=Talker())
    simulation, gate, upload = setup(algorithm)
    total, clean = gate.total(), gate.total()
    rejection = gate.admit(replace(upload, **change(upload)), total)
    assert rejection is not None and rejection.reason is reason, rejection
    assert gate.rejections == [rejection] and reason.value in str(rejection)
    assert gate.admit(upload, total) is None
    Gate(algorithm, LOCAL, gate.broadcast, range(8)).admit(upload, clean)
    after = [simulation.close(simulation.start(), gate.broadcast, t) for t in (total, clean)]
    assert fingerprint(after[0]) == fingerprint(after[1])


def test_every_reason_is_tested() -> None:
    elsewhere = {
        Reason.DUPLICATE,
        Reason.WEIGHT,
        Reason.FAILED,
        Reason.IDLE,
        Reason.SHARE,
        Reason.VERSION,
        Reason.MASKED,
        Reason.STALE,
    }  # the last four in test_flower*, test_secure_runs and test_schedules
    tested = {reason for reason, _ in BROKEN.values()} | elsewhere
    assert tested == set(Reason)


@pytest.mark.quick
def test_a_client_counts_once() -> None:
    _, gate, upload = setup(make("scaffold"))
    total = gate.total()
    assert gate.admit(upload, total) is None
    again = gate.admit(upload, total)
    assert again is not None and again.reason is Reason.DUPLICATE and total.clients == [3]
    with pytest.raises(ValueError, match="client 3 is in both totals"):
        total.merge(total)


@pytest.mark.parametrize("loss", [-1.0, 1e300])
def test_a_weight_must_be_a_number_that_can_be_summed(loss: float) -> None:
    _, gate, upload = setup(Algorithm(aggregation=Odd()))
    refused = gate.admit(replace(upload, loss=loss), gate.total())
    assert refused is not None and refused.reason is Reason.WEIGHT


def test_norm_bound() -> None:
    _, gate, upload = setup(make("fedavg"), bound=1e-6)
    refused = gate.admit(upload, gate.total())
    assert refused is not None and refused.reason is Reason.SIZE and "bound 1e-06" in refused.detail


def test_all_weights_zero_leaves_the_model() -> None:
    algorithm = Algorithm(aggregation=Odd())
    simulation, gate, upload = setup(algorithm)
    total = gate.total()
    assert gate.admit(replace(upload, loss=0.0), total) is None
    start = simulation.start()
    assert torch.equal(simulation.close(start, gate.broadcast, total).params, start.params)


def test_ten_thousand_fuzzed_uploads() -> None:
    """None enters, none crashes, every one has a reason, and honest ones still pass (S1 of the reliability plan)."""
    _, gate, upload = setup(Algorithm(drift=Talker()))
    chance, total = Random(0), gate.total()
    broken = list(BROKEN.values())
    for _ in range(10_000):
        reason, change = chance.choice(broken)
        rejection = gate.admit(replace(upload, **change(upload)), total)
        assert rejection is not None and rejection.reason is reason
        gate.rejections.clear()
    assert total.clients == [] and gate.admit(upload, total) is None


def partial(algorithm: Algorithm, clients: list[int]) -> tuple[Simulation, Gate, Total]:
    simulation, gate, _ = setup(algorithm)
    total = gate.total()
    for client in clients:
        upload = simulation.worker.visit(client, gate.broadcast, None, gate)
        assert upload is not None and gate.admit(upload, total) is None
    return simulation, Gate(algorithm, LOCAL, gate.broadcast, range(8)), total


def change(total: Total, name: str, part: str, value: float) -> None:
    getattr(total.sums[name], part)[0] = value


UNSOUND: dict[str, tuple[Reason, Callable[[Any], Any]]] = {
    "stranger": (Reason.SENDER, lambda t: t.clients.append(99)),
    "twice": (Reason.DUPLICATE, lambda t: t.clients.append(t.clients[0])),
    "missing sum": (Reason.TREE, lambda t: t.rule.sums.sums.pop("delta")),
    "another sum": (Reason.TREE, lambda t: t.rule.sums.sums.update(more=t.sums["delta"])),
    "nan": (Reason.SIZE, lambda t: change(t, "delta", "coarse", float("nan"))),
    "huge": (Reason.SIZE, lambda t: change(t, "paced", "coarse", 2.0**41)),
    "no multiple": (Reason.SIZE, lambda t: change(t, "delta", "coarse", 2.0**-11)),
    "no fine multiple": (Reason.SIZE, lambda t: change(t, "delta", "fine", 2.0**-61)),
    "fine part too large": (Reason.SIZE, lambda t: change(t, "delta", "fine", 1.0)),
    "short": (Reason.SHAPE, lambda t: t.rule.sums.sums.update(delta=ExactSum(3))),
    "negative weight": (Reason.WEIGHT, lambda t: change(t, "weight", "coarse", -5.0)),
    "counts": (Reason.SHAPE, lambda t: setattr(t, "counts", None)),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_a_broken_partial_sum_is_rejected_whole(name: str) -> None:
    reason, breach = UNSOUND[name]
    _, gate, part = partial(make("scaffold"), [3, 4, 5])
    breach(part)
    total = gate.total()
    rejection = gate.merge(part, total)
    assert rejection is not None and rejection.reason is reason, rejection
    assert total.clients == [] and total.sums == {}


APART: dict[str, tuple[Reason, Callable[[Any], Any]]] = {
    "missing upload": (Reason.TREE, lambda entries: entries[1:]),
    "upload twice": (Reason.TREE, lambda entries: [*entries, entries[0]]),
    "upload of another": (Reason.TREE, lambda entries: [(replace(entries[0][0], client=6), None), *entries[1:]]),
    "broken upload": (Reason.FINITE, lambda entries: [(replace(entries[0][0], loss=float("nan")), None), *entries[1:]]),
}


@pytest.mark.parametrize("name", APART)
def test_the_uploads_of_a_partial_sum_are_those_of_its_clients(name: str) -> None:
    reason, breach = APART[name]
    _, gate, part = partial(make("median"), [3, 4, 5])
    part.rule.entries = breach(part.rule.entries)  # type: ignore[attr-defined]
    total = gate.total()
    rejection = gate.merge(part, total)
    assert rejection is not None and rejection.reason is reason, rejection
    assert total.clients == [] and not total.rule.uploads


def test_a_rule_that_needs_sums_takes_no_uploads_from_the_wire() -> None:
    _, gate, part = partial(make("scaffold"), [3, 4])
    sent = {**part.flatten(wire.flatten), "upload0/client": torch.tensor([3])}
    with pytest.raises(KeyError, match="'upload0/client' is no sum of this method"):
        restored(gate, sent)


def restored(gate: Gate, tensors: dict[str, torch.Tensor]) -> Total:
    size = len(gate.broadcast.params)
    return gate.total().restore(tensors, size, given(wire.restore, Upload, gate.algorithm, size=size))


def test_a_partial_sum_counts_once_and_survives_the_wire() -> None:
    simulation, gate, part = partial(make("scaffold"), [3, 4])
    _, _, other = partial(make("scaffold"), [5])
    total = gate.total()
    assert gate.merge(restored(gate, part.flatten(wire.flatten)), total) is None
    assert gate.merge(other, total) is None
    again = gate.merge(restored(gate, part.flatten(wire.flatten)), total)
    assert again is not None and again.reason is Reason.DUPLICATE
    _, _, whole = partial(make("scaffold"), [5, 4, 3])
    start = simulation.start()
    ends = [simulation.close(start, gate.broadcast, t) for t in (total, whole)]
    assert fingerprint(ends[0]) == fingerprint(ends[1])


def test_a_gate_for_nobody_takes_an_empty_part() -> None:
    simulation = Simulation("fedavg", Clinic(), Local(batch_size=4))
    gate = Gate(
        simulation.job.algorithm,
        simulation.local,
        server.send(simulation.job.algorithm, simulation.start(), simulation.job.setting),
        [],
    )
    assert gate.merge(gate.total(), gate.total()) is None
