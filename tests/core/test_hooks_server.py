"""The hooks of the server, each with a tiny block that needs it and a number from the sheets or by hand."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from support.rounds import close, path
from undrift import Algorithm, Local, Simulation, cost
from undrift.core.method.aggregation import Aggregation, Summing
from undrift.core.records.rejection import Reason
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.testing import Clinic, Quadratics, check_block, fingerprint

Q2 = Quadratics.scalar([1.0, 1.0], [0.0, 4.0], start=1.0, sizes=[1, 3])
T2 = Quadratics.scalar([1.0, 3.0], [0.0, 4.0], start=1.0, sizes=[1, 1])
TWICE = Local(lr=0.5, epochs=2, batch_size=4)


class Counts(NamedTuple):
    """Examples times steps."""

    na: float


@dataclass(frozen=True)
class Nova(Summing[None, None, None, Counts]):
    """FedNova: sum n_i/a_i D_i, then twice divided by sum n_i and multiplied by sum n_i a_i."""

    scalars = ("n",)

    def finish(self, state: Any, end: Any) -> Any:
        return Counts(float(end.examples * end.steps)), None

    def weigh(self, upload: Any, up: Any, age: Any) -> Any:
        return {"": upload.examples / upload.steps, "n": float(upload.examples)}

    def mean(self, up: Any, view: Any) -> Any:
        return view.weighted / view.scalar("n") * (up.na / view.scalar("n"))


class Fair(NamedTuple):
    """A client's loss at the received model and its share of the denominator."""

    loss: float
    h: float


@dataclass(frozen=True)
class QFair(Summing[None, None, None, Fair]):
    """q-FedAvg."""

    q: float = 1.0

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return start.mean_loss_at(start.w0) + 1e-10

    def finish(self, state: Any, end: Any) -> Any:
        square = float(end.delta.double().square().sum()) / end.lr**2
        return Fair(state, self.q * state ** (self.q - 1) * square + state**self.q / end.lr), None

    def weigh(self, upload: Any, up: Any, age: Any) -> Any:
        return upload.parts["aggregation"].loss ** self.q

    def mean(self, up: Any, view: Any) -> Any:
        return view.weighted / view.setting.local.rate(view.round) / (up.h or 1.0)


@dataclass(frozen=True)
class Nolowe(Summing):
    """FedNolowe: (S sum D_i - sum L_i D_i) / ((m - 1) S), from two sums over one upload."""

    equal_weights = True
    extra = ("loss",)

    def weigh(self, upload: Any, up: Any, age: Any) -> Any:
        return {"": 1.0, "loss": upload.loss}

    def mean(self, up: Any, view: Any) -> Any:
        losses, others = view.scalar("loss"), view.cohort - 1
        if losses == 0 or others == 0:
            return view.weighted / view.weight
        return (losses * view.weighted - view.weighted_by("loss")) / (others * losses)


@pytest.mark.sweep(every=4)
def test_the_mean_may_follow_from_other_sums() -> None:
    six = replace(Q2, sizes=[6, 2])  # tau = (2, 1), p = (3/4, 1/4), D = (-0.75, 1.5)
    close(path(Algorithm(aggregation=Nova()), six, Local(lr=0.5, batch_size=3), 1), [1.1640625])
    for q, expected in [(0.0, 1.75), (1.0, 1.6), (2.0, 1.4024390)]:
        close(path(Algorithm(aggregation=QFair(q)), Q2, TWICE, 1), [expected], 1e-7)
    check_block(Nova())
    check_block(QFair(1.0))


def test_a_second_sum_over_the_same_upload() -> None:
    algorithm = Algorithm(aggregation=Nolowe())
    close(path(algorithm, Q2, Local(lr=0.5, batch_size=4), 1), [1 - 0.9 * 0.5 + 0.1 * 1.5])
    three = Quadratics.scalar(
        [2.0, 4.0, 6.0], [0.0] * 3, start=1.0, sizes=[1] * 3
    )  # losses 1, 2, 3; D = -0.2, -0.4, -0.6
    close(path(algorithm, three, Local(lr=0.1), 1), [1 - (0.2 * 5 / 12 + 0.4 / 3 + 0.6 / 4)])
    assert cost(algorithm).up == 1 and cost(algorithm).plain_sum
    check_block(Nolowe())  # any order, any grouping: the same bits


@pytest.mark.parametrize("rule", [Nova(), QFair(1.0), Nolowe()], ids=str)
def test_partial_sums_on_flower_nodes_give_the_same_bits(rule: Aggregation, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from support.flower import LOCAL, TASK, start
    from support.flower_grid import StandInGrid
    from undrift.engine.flower.node.client_app import client_app
    from undrift.engine.flower.server.strategy import UndriftStrategy
    from undrift.engine.worker.job import Job

    algorithm = Algorithm(aggregation=rule)
    expected = fingerprint(Simulation(algorithm, TASK, LOCAL, cohort=5, seed=3).run(2))
    for nodes in (2, 8):  # several clients on a node, and one each
        strategy = UndriftStrategy(algorithm, TASK.model(), LOCAL, population=8, cohort=5, seed=3, poll=0.01)
        start(strategy, StandInGrid(client_app(Job(algorithm, TASK)), nodes, tmp_path / str(nodes)), 2)
        assert fingerprint(strategy.state) == expected  # type: ignore[arg-type]


@dataclass(frozen=True)
class Claims(Summing[None, None, None, Fair]):
    """Weighs by whatever its own part claims."""

    extra = ("h",)

    def finish(self, state: Any, end: Any) -> Any:
        return Fair(1.0, -2.0), None

    def weigh(self, upload: Any, up: Any, age: Any) -> Any:
        return {"": up.loss**2.5, "h": up.h}


def test_a_weight_that_is_no_number_is_refused() -> None:
    algorithm, local = Algorithm(aggregation=Claims()), Local(batch_size=4)
    simulation = Simulation(algorithm, Clinic(), local)
    broadcast = server.send(algorithm, simulation.start(), simulation.job.setting)
    gate = Gate(algorithm, local, broadcast, range(8))
    upload = simulation.worker.visit(3, broadcast, None, gate)
    assert upload is not None
    for claim, reason in [
        (Fair(-1.0, 0.0), Reason.WEIGHT),  # a complex number
        (Fair(1e10, 0.0), Reason.WEIGHT),  # too large to be summed
        (Fair(1.0, -1e12), Reason.SIZE),
        (Fair(float("nan"), 0.0), Reason.FINITE),
        (Fair(1.0, float("inf")), Reason.FINITE),
        (Fair("1", 0.0), Reason.TREE),  # type: ignore[arg-type]
    ]:
        refused = gate.admit(replace(upload, parts={"aggregation": claim}), gate.total())
        assert refused is not None and refused.reason is reason, claim
    total = gate.total()
    assert gate.admit(upload, total) is None  # a negative weight is allowed in a further sum
    torch.testing.assert_close(total.sums["extra.h"].value(), -2 * upload.delta.double())
    far = replace(upload, delta=upload.delta * 0 + 2.0**35, parts={"aggregation": Fair(1.0, 1000.0)})
    refused = Gate(algorithm, local, broadcast, range(8)).admit(far, gate.total())
    assert refused is not None and refused.reason is Reason.SIZE


class Score(NamedTuple):
    """A client's score."""

    h: float


@dataclass(frozen=True)
class Scored(Summing[None, None, None, Score]):
    """FedSCAM's score: found before training, it sets the weight; if all are zero, examples weigh."""

    extra = ("examples",)
    gamma: float = 1.0

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        norms = [
            float(start.gradient_at(start.w0, batch).norm())
            for _, batch in zip(range(3), start.data("batches"), strict=False)
        ]
        return sum(norms) / len(norms)

    def finish(self, state: Any, end: Any) -> Any:
        return Score(state), None

    def weigh(self, upload: Any, up: Any, age: Any) -> Any:
        weight = upload.examples * max(0.0, 1 - self.gamma * up.h)
        return {"": weight, "examples": float(upload.examples)}

    def mean(self, up: Any, view: Any) -> Any:
        if view.weight == 0:
            return view.weighted_by("examples") / view.scalar("examples")
        return view.weighted / view.weight


def test_a_score_found_before_training_weighs_and_falls_back() -> None:
    # h = (1, 3): weights 1 * 0.5 and 3 * 0 leave client 0; at gamma = 1 both are zero and examples weigh
    close(path(Algorithm(aggregation=Scored(0.5)), Q2, TWICE, 1), [0.25])
    close(path(Algorithm(aggregation=Scored(1.0)), Q2, TWICE, 1), [2.5])
    check_block(Scored())
