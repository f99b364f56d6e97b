"""The hooks of personalization, each with a tiny block that needs it and a number from the sheets or by hand."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from support.rounds import beginning, close, part_of, path
from undrift import Algorithm, Local, Simulation, TensorTask, cost, make
from undrift.blocks import SAM, Scaffold
from undrift.blocks.personalization import part
from undrift.core.method.block import Block, Correction, Personalization, Perturbation
from undrift.core.model.flat_model import Layout, Vector, bind
from undrift.core.records.types import Array
from undrift.testing import Clinic, ContractError, Quadratics, check_block
from undrift.testing.rounds import states_of

Q2 = Quadratics.scalar([1.0, 1.0], [0.0, 4.0], start=1.0, sizes=[1, 3])
TWICE = Local(lr=0.5, epochs=2, batch_size=4)


class Model(NamedTuple):
    """A model of a client's own, or another vector."""

    v: Vector


@dataclass(frozen=True)
class Phases(Personalization):
    """FedRep's phases: the first epoch moves one tensor, the second the others."""

    first: str = "norm"

    def active(self, step: Any) -> Any:
        mask = step.layout.mask(lambda name, _: name.startswith(self.first))
        return mask if step.step * step.local.epochs < step.steps else ~mask


def test_what_is_not_active_stays_where_it_is() -> None:
    """No gradient, no correction, no decay: each tensor takes the one step that is its own."""
    task = Quadratics.random(clients=1)
    a, b, w0 = task.curvatures[0], task.optima[0], beginning(task)
    first = Simulation(Algorithm(), task).worker.model.layout.mask(lambda name, _: name == "norm")
    w = w0
    for mask in (first, ~first):
        w = torch.where(mask, w - 0.1 * (a @ (w - b) + 0.5 * w), w)
    close(path(Algorithm(personalization=Phases()), task, Local(lr=0.1, epochs=2, weight_decay=0.5), 1)[0], w, 1e-12)
    # a perturbation sees the moving part only, here one coordinate: the offset is 0.1 there and 0 elsewhere
    g = a @ (w0 + torch.where(first, 0.1 * (a @ (w0 - b)).sign(), 0.0) - b)
    sharp = path(Algorithm(SAM(0.1), personalization=Phases()), task, Local(lr=0.1), 1)[0]
    close(sharp, torch.where(first, w0 - 0.1 * g, w0), 1e-9)
    check_block(Phases("head"))


@dataclass(frozen=True)
class Mixture(Personalization[None, Model]):
    """APFL: v beside the model, on the same batch; evaluated as their mixture."""

    personalizes = True
    a: float = 0.5

    @property
    def gradients(self) -> Any:
        return 1

    def init_client(self, w: Any) -> Any:
        return Model(w)

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return kept.v.clone()

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        state.sub_(step.gradient_at(self.a * state + (1 - self.a) * step.w, step.batch), alpha=step.lr * self.a)
        return grad

    def finish(self, state: Any, end: Any) -> Any:
        return None, Model(state)

    def personal(self, params: Any, kept: Any, layout: Any) -> Any:
        return self.a * kept.v + (1 - self.a) * params


@dataclass(frozen=True)
class Ditto(Mixture):
    """Ditto: v is pulled towards the received model."""

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        state.sub_(step.gradient_at(state, step.batch) + state - step.w0, alpha=step.lr)
        return grad

    def personal(self, params: Any, kept: Any, layout: Any) -> Any:
        return kept.v


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize(
    ("block", "v", "own"), [(Mixture(), 2.21875, (2.21875 + 2.5) / 2), (Ditto(), 2.5, 2.5)], ids=str
)
def test_a_second_model_beside_the_first(block: Personalization, v: float, own: float) -> None:
    algorithm = Algorithm(personalization=block)
    simulation = Simulation(algorithm, Q2, TWICE)
    state = simulation.run(1)
    assert state.params.tolist() == [2.5] == Simulation(Algorithm(), Q2, TWICE).run(1).params.tolist()
    assert part_of(states_of(simulation)[1][0], "personalization").v.tolist() == [v]
    assert next(simulation.personal(state, 1).parameters()).tolist() == [own]
    assert cost(algorithm).gradients_per_step == 2 and algorithm.personalized and not Algorithm().personalized
    check_block(block)


@dataclass(frozen=True)
class Moreau(Perturbation[None, Model]):
    """pFedMe with one inner step: theta <- theta - lr (g + theta - w); the model moves towards theta, which is kept."""

    personalizes = True

    def init_client(self, w: Any) -> Any:
        return Model(w)

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return {"theta": start.w0.clone()}

    def perturb(self, state: Any, step: Any) -> Any:
        return state["theta"] - step.w

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        state["theta"] = state["theta"] - 0.5 * (grad + state["theta"] - step.w)
        return step.w - state["theta"]

    def finish(self, state: Any, end: Any) -> Any:
        return None, Model(state["theta"])

    def personal(self, params: Any, kept: Any, layout: Any) -> Any:
        return kept.v


@pytest.mark.sweep(every=0)
def test_any_slot_may_hold_a_clients_own_model() -> None:
    simulation = Simulation(Algorithm(Moreau()), Q2, TWICE)
    state = simulation.round(simulation.start(), [1])[0]
    assert state.params.tolist() == [2.3125]
    layout = simulation.worker.model.layout
    held = states_of(simulation)[1][0]
    assert simulation.job.algorithm.personal(state.params, held, layout).tolist() == [2.875]
    assert simulation.job.algorithm.personal(state.params, None, layout).tolist() == [2.3125]  # never took part
    check_block(Moreau())


def tuned(layout: Any) -> Any:
    """Where it is tuned."""
    return layout.mask(lambda name, _: name.startswith(("head", "norm")))


@dataclass(frozen=True)
class Tuned(Personalization):
    """FedAvg-FT: epochs of plain SGD on the head before a client is evaluated."""

    @property
    def tuning(self) -> Any:
        return 3

    def active(self, step: Any) -> Any:
        return tuned(step.layout) if step.tuning else None


def test_tuning_moves_a_clients_model_inside_its_scope_before_it_is_evaluated() -> None:
    task, local = Quadratics.random(clients=2), Local(lr=0.1, weight_decay=0.5)
    algorithm = Algorithm(SAM(0.1), drift=Scaffold(), personalization=Tuned())
    simulation = Simulation(algorithm, task, local)
    state = simulation.run(2)
    assert torch.equal(
        state.params, Simulation(replace(algorithm, personalization=Personalization()), task, local).run(2).params
    )
    w, mask = state.params.clone(), tuned(simulation.worker.model.layout)
    for _ in range(3):
        w = torch.where(mask, w - 0.1 * (task.curvatures[1] @ (w - task.optima[1]) + 0.5 * w), w)
    simulation.personal(state, 1)
    close(simulation.worker.model.w, w, 1e-12)
    check_block(Tuned())


@dataclass(frozen=True)
class Elsewhere(Personalization):
    """FedALA's move before training: half way from the origin."""

    def begin(self, sent: Any, kept: Any, start: Any) -> None:
        start.begin_at(0.5 * start.w0)


@pytest.mark.sweep(every=0)
def test_a_client_may_enter_elsewhere_and_the_displacement_counts_it() -> None:
    close(
        path(Algorithm(personalization=Elsewhere()), Quadratics.scalar([1.0], [4.0], 2.0, [1]), Local(lr=0.5), 1), [2.5]
    )
    check_block(Elsewhere())


class Values(NamedTuple):
    """Private values; empty before the first round."""

    x: Array


@dataclass(frozen=True)
class Norms(Personalization[None, Values]):
    """FedBN: normalisation layers, found by their class, and their statistics stay with each client."""

    keeps_buffers = True

    def init_client(self, w: Any) -> Any:
        return Values(torch.empty(0, dtype=w.dtype))

    def shared(self, layout: Any) -> Any:
        chosen = {name for name, owner in zip(layout.names, layout.owners, strict=True) if "Norm" in owner}
        return ~layout.mask(lambda name, _: name in chosen)

    def start(self, params: Any, kept: Any, layout: Any) -> Any:
        out = params.clone()
        out[~self.shared(layout)] = kept.x if len(kept.x) else params[~self.shared(layout)]
        return out

    def finish(self, state: Any, end: Any) -> Any:
        return None, Values(end.w[~self.shared(end.layout)])


def test_layers_are_chosen_by_their_class_and_statistics_stay() -> None:
    simulation = Simulation(Algorithm(personalization=Norms()), Clinic(), Local(batch_size=4))
    layout = simulation.worker.model.layout
    assert layout.owners == ("Conv2d", "Conv2d", "BatchNorm2d", "BatchNorm2d", "Linear", "Linear")
    assert layout.layers == (slice(0, 40), slice(40, 48), slice(48, 243))
    start, state = simulation.start(), simulation.run(2)
    mask = Norms().shared(layout)
    assert int((~mask).sum()) == 8 and torch.equal(state.params[~mask], start.params[~mask])
    assert torch.equal(state.buffers, start.buffers) and state.accepted[3] == 1
    own = [states_of(simulation)[client][1] for client in (3, 4)]
    assert not torch.equal(own[0].buffers, own[1].buffers) and len(part_of(own[0], "personalization").x) == 8  # type: ignore[arg-type]
    simulation.personal(state, 4)
    assert torch.equal(simulation.worker.model.buffers, own[1].buffers)  # type: ignore[arg-type]
    check_block(Norms())


@dataclass(frozen=True)
class Misread(Personalization):
    """A hook with too few arguments."""

    def adjust(self, grad: Any, local: Any) -> Any:  # type: ignore[override]
        return None


@dataclass(frozen=True)
class Global(Correction[Model]):
    """Draws from a generator that all share."""

    def receive(self, delta: Any, up: Any, view: Any) -> Any:
        return delta, Model(torch.rand(len(delta)))

    def init_server(self, w: Any) -> Any:
        return Model(torch.zeros_like(w))


@dataclass(frozen=True)
class Cut(Personalization):
    """Evaluates a client with half a model."""

    def personal(self, params: Any, kept: Any, layout: Any) -> Any:
        return params[::2]


@dataclass(frozen=True)
class Silent(Mixture):
    """Does not declare that clients have models of their own."""

    personalizes = False


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize(
    ("block", "slot", "promise"),
    [
        (Silent(), None, "clients have models of their own: declare personalizes = True"),
        (Misread(), None, r"Misread.adjust\(self, grad: Any, local: Any\).*: it is called as adjust\(self, grad"),
        (
            Global(),
            "drift",
            r"drift=Global.receive drew from torch's global generator: draw from view.random\(purpose\)",
        ),
        (Cut(), None, "personal: expected a model, got a tensor"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Block) else "",
)
def test_contract_catches(block: Block, slot: str | None, promise: str) -> None:
    with pytest.raises(ContractError, match=promise):
        check_block(block, slot)


@pytest.mark.quick
def test_a_bare_linear_model_is_one_layer() -> None:
    """Its tensors have no module in their names; the head is the weight with the bias, not the bias alone."""
    layout = bind(nn.Linear(6, 3)).layout
    assert layout.layers == (slice(0, 21),)
    assert part.mask("Tuned", "last", layout).all()
    mixed = Layout(("token", "position", "weight", "bias", "head.weight"), ((2,), (3,), (4, 2), (4,), (5,)))
    assert mixed.layers == (slice(0, 2), slice(2, 5), slice(5, 17), slice(17, 22)), (
        "other tensors of the root stand alone"
    )


def test_a_bare_linear_model_is_all_head() -> None:
    """FedPer keeps all of it on the clients, so that the global model does not move; FedBABU trains none of it."""
    draw = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(60, 6, generator=draw), torch.randint(3, (60,), generator=draw)
    task = TensorTask(lambda: nn.Linear(6, 3), inputs, labels, list(torch.arange(60).chunk(4)))
    for method in ("fedper", "fedbabu"):
        simulation = Simulation(make(method), task, Local(lr=0.1, steps=2, batch_size=5), cohort=2)
        start = simulation.start().params.clone()
        assert torch.equal(simulation.run(rounds=2).params, start), method
