"""Blocks with state of their own and blocks that read another's, with the sheets' numbers."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from support.rounds import close, path
from undrift import Algorithm, Local
from undrift.blocks import SAM, FedDyn, Scaffold, ServerMomentum, Uniform
from undrift.blocks.drift.scaffold import Variates
from undrift.core.method.block import Needs, Perturbation, ServerOptimizer
from undrift.core.method.with_hooks import with_hooks
from undrift.core.model.flat_model import Vector, unit
from undrift.testing import Quadratics, check_block

T2 = Quadratics.scalar([1.0, 3.0], [0.0, 4.0], start=1.0, sizes=[1, 1])


@dataclass(frozen=True)
class Towards(Perturbation):
    """FedSOL's ascent: along the gradient of another loss than the data's, here the squared distance to the origin."""

    gradients = 1

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return start.module

    def perturb(self, state: Any, step: Any) -> Any:
        def away(loss: Tensor) -> Tensor:
            out: Tensor = 0 * loss + sum(p.square().sum() for p in state.parameters()) / 2
            return out

        return 0.1 * unit(step.gradient_at(step.w, step.batch, of=away))


@pytest.mark.sweep(every=4)
def test_a_perturbation_along_another_loss() -> None:
    close(path(Algorithm(Towards(), aggregation=Uniform()), T2, Local(lr=0.1), 1), [1 - 0.1 * (1.1 + 3 * -2.9) / 2])
    check_block(Towards())


@dataclass(frozen=True)
class MomentumPath(Perturbation):
    """FedWMSAM's offset, from the momentum and the correction that other blocks have begun."""

    rho: float = 0.1
    a: float = 0.5

    @property
    def needs(self) -> Any:
        return Needs(reads=("drift", "momentum"))

    def perturb(self, state: Any, step: Any) -> Any:
        pull, variates = step.peer("momentum", Tensor), step.peer("drift", Variates)  # the pull is (1 - a) m
        assert step.peer("momentum", Variates) is None  # another kind than asked for is nothing
        own = (pull + self.a * variates.difference) / (1 - self.a)
        return self.rho * unit(step.w0 + step.step * own - step.w)


@pytest.mark.sweep(every=0)
def test_a_block_reads_what_other_slots_have_begun() -> None:
    whole = Algorithm(MomentumPath(), drift=Scaffold(), momentum=ServerMomentum(0.5), aggregation=Uniform())
    close(path(whole, T2, Local(lr=0.1, epochs=2), 2).flatten(), [1.3725, 1.84803125], 1e-9)
    check_block(MomentumPath(), host=replace(whole, perturbation=Perturbation()))


class Dual(NamedTuple):
    """A dual of the perturbation, or the global perturbation."""

    v: Vector


@dataclass(frozen=True)
class Consensus(Perturbation[Dual, Dual, Dual, Dual]):
    """FedSMOO's perturbation: its own state on client and server, changed at every step."""

    rho: float = 0.1
    gradients = 1

    def init_server(self, w: Any) -> Any:
        return Dual(torch.zeros_like(w))

    init_client = init_server

    def send(self, view: Any) -> Any:
        return view.state

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return {"mu": kept.v.clone(), "s": sent.v}

    def perturb(self, state: Any, step: Any) -> Any:
        offset = self.rho * unit(step.gradient() - state["mu"] - state["s"])
        state["mu"] += offset - state["s"]
        return offset

    def finish(self, state: Any, end: Any) -> Any:
        return Dual(state["mu"]), Dual(state["mu"])

    def receive(self, delta: Any, up: Any, view: Any) -> Any:
        return delta, Dual(self.rho * unit(up.v / view.cohort))


@pytest.mark.sweep(every=0)
def test_a_perturbation_with_a_state_of_its_own() -> None:
    close(
        path(Algorithm(Consensus(), drift=FedDyn(0.1), aggregation=Uniform()), T2, Local(lr=0.1), 2).flatten(),
        [1.82, 2.7138],
    )
    check_block(Consensus(), host=Algorithm(drift=FedDyn(0.1)))


class Ahead(NamedTuple):
    """The last pseudo-gradient."""

    g: Vector


@dataclass(frozen=True)
class Shift(ServerOptimizer[Ahead]):
    """FedGloSS: the model is broadcast shifted along the last pseudo-gradient, before a drift block changes it."""

    rho: float = 0.1

    def init_server(self, w: Any) -> Any:
        return Ahead(torch.zeros_like(w))

    def shift(self, view: Any) -> Any:
        return view.params + self.rho * unit(view.state.g)

    def receive(self, delta: Any, up: Any, view: Any) -> Any:
        return delta, Ahead(-view.mean)


def test_the_model_that_is_broadcast_may_be_shifted() -> None:
    algorithm = Algorithm(drift=FedDyn(0.1), server_optimizer=Shift())
    close(path(algorithm, T2, Local(lr=0.1), 2).flatten(), [1.8, 2.712])
    check_block(Shift())


def test_a_copy_with_other_hooks_leaves_the_block_alone() -> None:
    block = SAM(0.1)
    copy = with_hooks(block, {"perturb": lambda self, state, step: self.rho})
    assert copy.perturb(None, None) == 0.1 and repr(copy) == repr(block) and isinstance(copy, SAM)  # type: ignore[arg-type]
    assert type(block) is SAM and type(block).perturb is SAM.perturb and (copy.Up, copy.home) == (block.Up, block.home)
