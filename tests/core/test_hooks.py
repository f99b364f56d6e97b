"""The hooks of a client, each with a tiny block that needs it and a number from the sheets or by hand."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from support.rounds import close, path
from undrift import Algorithm, Local, Simulation, TensorTask, core
from undrift.blocks import SAM, Proximal, Scaffold
from undrift.core.client.visit import ClientError
from undrift.core.method.block import Correction, Objective
from undrift.core.model.flat_model import Vector, bind
from undrift.core.model.oracle import Oracle
from undrift.core.model.random import generator
from undrift.core.model.samples import Samples, examples_of
from undrift.core.records.types import Array
from undrift.testing import Clinic, Quadratics, check_block
from undrift.testing.rounds import states_of

Q2 = Quadratics.scalar([1.0, 1.0], [0.0, 4.0], start=1.0, sizes=[1, 3])
T2 = Quadratics.scalar([1.0, 3.0], [0.0, 4.0], start=1.0, sizes=[1, 1])
TWICE = Local(lr=0.5, epochs=2, batch_size=4)


class Model(NamedTuple):
    """A model of a client's own."""

    v: Vector


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))


def small(sizes: tuple[int, ...] = (7, 10)) -> TensorTask:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(sum(sizes), 5, generator=draw), torch.randint(0, 3, (sum(sizes),), generator=draw)
    return TensorTask(net, x, y, list(torch.split(torch.arange(sum(sizes)), list(sizes))))


def kept(simulation: Simulation, client: int, slot: str, round: int = 0) -> Any:
    return states_of(simulation)[client][round].parts[slot]


@dataclass(frozen=True)
class Whole(Objective[None, Model]):
    """Keeps the gradient of all of the client's data at the received model, and looks at much on the way."""

    def init_client(self, w: Any) -> Any:
        return Model(torch.zeros_like(w))

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        losses = [start.loss_at(start.w0, batch, evaluate=True) for batch in start.data("evaluation")]
        assert max(losses) > 0 and start.mean_loss_at(start.w0) > 0
        return Model(start.mean_gradient_at(start.w0))

    def finish(self, state: Any, end: Any) -> Any:
        return None, state


def test_a_gradient_over_all_data_leaves_no_trace() -> None:
    task, local = small(), Local(lr=0.1, epochs=2, batch_size=4)
    plain = Simulation(Algorithm(), task, local).run(2)
    simulation = Simulation(Algorithm(objective=Whole()), task, local)
    looked = simulation.run(2)
    for name in ("params", "buffers", "counts"):  # neither weights, nor running statistics, nor dropout's stream
        assert torch.equal(getattr(looked, name), getattr(plain, name)), name
    two = Simulation(Algorithm(objective=Whole()), Q2, TWICE)
    two.run(1)
    assert [float(kept(two, client, "objective").v) for client in (0, 1)] == [1.0, -3.0]


def test_a_short_batch_weighs_as_much_as_it_holds() -> None:
    task = replace(small(), make=lambda: nn.Linear(5, 3))
    simulation = Simulation(Algorithm(objective=Whole()), task, Local(batch_size=4))
    simulation.run(1)
    model, own = bind(task.model()), task.clients[0]
    expected = model.gradient(cross_entropy(model.module(task.inputs[own]), task.targets[own]))
    torch.testing.assert_close(kept(simulation, 0, "objective").v, expected, rtol=1e-5, atol=1e-7)
    loss, random = partial(task.loss, model.module), partial(generator, 0, 0, 0)
    samples = Samples(_oracle=Oracle(model, loss, random), random=random, _epoch=partial(task.batches, 0, 4))
    whole = cross_entropy(model.module(task.inputs[own]), task.targets[own])
    assert samples.mean_loss_at(model.w) == pytest.approx(float(whole.detach()), rel=1e-6)
    assert [examples_of(x) for x in ({"x": own}, own, [1, own], 3, "ab")] == [7, 7, 7, 1, 1]


@dataclass(frozen=True)
class Reader(Correction):
    """Notes what a run knows in a list of its own."""

    result: Any = None

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        self.result.append([[x[0].tolist() for x in start.data(purpose)] for purpose in ("a", "a", "b", "batches")])
        self.result.append(start.label_counts())
        return []

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        state.append(step.batch[0].tolist())
        assert step.round == 0 and examples_of(step.batch) == (4, 3)[step.step]
        return grad

    def finish(self, state: Any, end: Any) -> Any:
        self.result.append(list(zip(state, map(float, end.losses), strict=True)))
        assert len(end.losses) == end.steps and end.round == 0
        return None, None


def test_data_comes_in_an_order_for_each_purpose() -> None:
    result: list[Any] = []
    task = small((7,))
    _, record = Simulation(Algorithm(drift=Reader(result)), task, Local(batch_size=4)).round(
        Simulation(Algorithm(), task).start(), [0]
    )
    (a, again, b, training), labels, steps = result
    assert a == again != b and [x for x, _ in steps] == training  # "batches": what training sees
    assert sorted(chain(*a)) == sorted(chain(*b)) == sorted(task.inputs.tolist())
    assert labels.tolist() == torch.bincount(task.targets).tolist()
    assert record.loss == pytest.approx(sum(loss for _, loss in steps) / 2, rel=1e-6)


def test_labels_are_the_tasks_count_or_that_of_the_batches() -> None:
    class Bare:
        """A task without a count."""

        def __init__(self, task: Any) -> None:
            self.population, self.model, self.loss = task.population, task.model, task.loss
            self.examples, self.batches = task.examples, task.batches

    counted = [0, 9, 3]  # of client 4
    for task, expected in [(Clinic(), counted), (Bare(Clinic()), counted), (Q2, None)]:
        found = []

        @dataclass(frozen=True)
        class Labels(Correction):
            """Asks."""

            def begin(self, sent: Any, kept: Any, start: Any) -> None:
                found.append(start.label_counts())  # noqa: B023

        simulation = Simulation(Algorithm(drift=Labels()), task)  # type: ignore[arg-type]
        simulation.round(simulation.start(), [min(4, task.population - 1)])  # type: ignore[attr-defined]
        assert (None if found[0] is None else found[0].tolist()) == expected
    assert TensorTask(net, torch.zeros(2, 5), torch.zeros(2), [torch.arange(2)]).label_counts(0) is None


@dataclass(frozen=True)
class Pull(Objective):
    """FedProx's term, written as a loss of the module's parameters."""

    mu: float = 1.0

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return start.module

    def penalty(self, state: Any, step: Any) -> Any:
        w = torch.cat([p.reshape(-1) for p in state.parameters()])
        return self.mu / 2 * (w - step.w0).square().sum()


def test_a_penalty_is_part_of_the_loss() -> None:
    close(path(Algorithm(objective=Pull()), Q2, TWICE, 1), [2.0])
    task = Quadratics.random()
    for slots in ({}, {"drift": Scaffold()}):
        ours, theirs = (path(Algorithm(objective=o, **slots), task, TWICE, 3) for o in (Pull(0.1), Proximal(0.1)))  # type: ignore[arg-type]
        close(ours, theirs, 1e-12)
    # both gradients of SAM hold the term: at w = 1 the offset is 0.1, so g = 1.1 + 0.1; at 0.88, 0.98 - 0.02
    one = Quadratics.scalar([1.0], [0.0], start=1.0, sizes=[1])
    close(path(Algorithm(SAM(0.1), objective=Pull()), one, Local(lr=0.1, epochs=2), 1), [0.88 - 0.1 * (0.98 - 0.02)])


class Last(NamedTuple):
    """The model a client last trained; empty at first."""

    w: Array


@dataclass(frozen=True)
class Contrast(Objective[None, Last]):
    """MOON's term: cosine to the features of the received model against those of the client's last."""

    layer: str = "body"
    mu: float = 1.0

    def init_client(self, w: Any) -> Any:
        return Last(torch.empty(0, dtype=w.dtype))

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        start.tap(self.layer)
        return kept.w if len(kept.w) else start.w0 * 0.9

    def penalty(self, state: Any, step: Any) -> Any:
        z = step.seen[self.layer]
        near, far = (self.features(point, step) for point in (step.w0, state))
        s = [torch.cosine_similarity(z.flatten(1), other.flatten(1)) for other in (near, far)]
        return self.mu * cross_entropy(torch.stack(s, dim=1) / 0.5, torch.zeros(len(z), dtype=torch.int64))

    def features(self, point: Any, step: Any) -> Any:
        step.loss_at(point, step.batch, evaluate=True)
        return step.seen[self.layer]

    def finish(self, state: Any, end: Any) -> Any:
        return None, Last(end.w.clone())


@pytest.mark.sweep(every=4)
def test_a_penalty_sees_the_features_of_its_own_pass() -> None:
    """One step on a net with running statistics equals the same by plain autograd with three copies of the net."""
    task = Clinic(dtype=torch.float64)
    simulation = Simulation(Algorithm(objective=Contrast()), task, Local(lr=0.1, batch_size=12))
    state = simulation.start()
    moved = simulation.round(state, [4])[0].params - state.params
    ours: Any
    near: Any
    far: Any
    ours, near, far = task.model().train(), task.model().eval(), task.model().eval()
    batch = next(task.batches(4, 12, torch.Generator()))
    z = ours.body(batch[0]).flatten(1)
    with torch.no_grad():
        for p in far.parameters():
            p.mul_(0.9)
        for m in (near, far):
            m.body[1].running_mean, m.body[1].running_var = ours.body[1].running_mean, ours.body[1].running_var
        others = [m.body(batch[0]).flatten(1) for m in (near, far)]
    s = torch.stack([torch.cosine_similarity(z, other) for other in others], dim=1) / 0.5
    loss = task.loss(ours, batch) + cross_entropy(s, torch.zeros(12, dtype=torch.int64))
    grads = torch.autograd.grad(loss, list(ours.parameters()))
    torch.testing.assert_close(moved, -0.1 * torch.cat([g.reshape(-1) for g in grads]), rtol=1e-9, atol=1e-12)
    assert not simulation.worker.model.module.get_submodule("body")._forward_hooks  # nothing is left behind
    check_block(Contrast())


def test_an_unknown_layer_is_named_and_hooks_end_with_a_failure() -> None:
    with pytest.raises(
        ClientError, match=r"objective=Contrast.begin: tap: the model has no layer 'neck'; it has body, b"
    ):
        Simulation(Algorithm(objective=Contrast("neck")), Clinic()).run(1)

    @dataclass(frozen=True)
    class Fails(Contrast):
        """Fails after its hook is set."""

        def penalty(self, state: Any, step: Any) -> None:
            raise ValueError("no")

    simulation = Simulation(Algorithm(objective=Fails()), Clinic())
    with pytest.raises(ClientError, match=r"step 0, objective=Fails.penalty: no"):
        simulation.run(1)
    assert not simulation.worker.model.module.get_submodule("body")._forward_hooks


def test_batches_that_come_once_are_not_read_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("flwr")
    from flwr.clientapp import ClientApp

    from support.flower import LOCAL, TASK, start
    from support.flower_grid import StandInGrid
    from undrift.engine.flower.node.client_app import host, open_visit
    from undrift.engine.flower.server.strategy import UndriftStrategy

    algorithm, app, again = Algorithm(objective=Whole()), ClientApp(), [False]
    host(app)

    @app.train()
    def train(message: Any, context: Any) -> Any:
        visit = open_visit(message, context, algorithm)
        batches = partial(TASK.batches, visit.client, 4)
        given = batches if again[0] else list(batches(visit.generator("batches")))
        return visit.train(TASK.model(), TASK.loss, given, TASK.examples(visit.client))

    for again[0] in (False, True):
        strategy = UndriftStrategy(algorithm, TASK.model(), LOCAL, population=8, cohort=4, poll=0.01, patience=9)
        start(strategy, StandInGrid(app, 8, tmp_path / str(again[0])), 1)
        assert bool(strategy.records[0].visits) == again[0]
    # The text of an error stays in the node's log.
    assert "give a function of the generator that makes one epoch instead of a loader" in caplog.text


def test_hooks_of_the_last_version_are_adopted_or_explained() -> None:
    with pytest.warns(DeprecationWarning, match="Old.correct is now adjust; correct goes with version 0.4"):

        @dataclass(frozen=True)
        class Old(Correction):
            """Written for 0.2."""

            def correct(self, grad: Any, state: Any, step: Any) -> Any:
                return grad.mul_(0.5)

    close(path(Algorithm(drift=Old()), Q2, Local(lr=0.5, batch_size=4), 1), [1.5])  # half of -0.5 / 4 + 1.5 * 3 / 4
    with pytest.raises(TypeError, match=r"Older.settle is no longer a hook: return the displacement from receive"):
        type("Older", (Correction,), {"settle": lambda self, delta, server: delta})
    with pytest.warns(DeprecationWarning, match="Gathered is now ServerView"):
        assert core.Gathered is core.ServerView
    with pytest.raises(AttributeError, match=r"undrift\.core\.Summed is gone"):
        _ = core.Summed
