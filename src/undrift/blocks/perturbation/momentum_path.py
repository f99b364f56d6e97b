"""FedWMSAM's perturbation: along the path a client's momentum alone would have taken, free of any extra gradient."""

from collections.abc import Mapping
from dataclasses import dataclass

from undrift.blocks.drift.scaffold import Variates
from undrift.blocks.momentum.adaptive import AdaptiveMomentum, Blend
from undrift.core import Correction, Needs, Perturbation, Start, Step, Vector, unit
from undrift.util.naming.ranges import NonNegative


class _Path:
    """The direction of the path, known once all blocks have begun, and the sum of the rates of all steps before."""

    pull: Vector | None = None
    walked: float = 0.0


@dataclass(frozen=True)
class MomentumPath(Perturbation[None, None, None, None, _Path]):
    """client:  offset = rho U(w0 + b M_i - w) at step b, none at b = 0;   M_i = m + a/(1 - a) (c - c_i)

    m and a are those of the momentum slot, c - c_i that of Scaffold in the drift slot, or zero without it. Scaled by
    1 - a the direction has no division: U((1 - a) (w0 - w) + b ((1 - a) m + a (c - c_i))).

    Args:
        rho: the radius; 0 switches the perturbation off.
        paced: walk the path in steps of the learning rate, b lr M_i, which has the units of a model; with rates of the
            steps' own, their sum over the steps before in place of b lr.
    """

    needs = Needs(reads=("momentum", "drift"))  # FedWMSAM's momentum; control variates, if there are any

    rho: NonNegative = 0.01
    paced: bool = False

    def refuses(self, others: Mapping[str, object]) -> str:
        """Another momentum than FedWMSAM's, or none."""
        momentum = others["momentum"]
        if isinstance(momentum, AdaptiveMomentum):
            return ""
        found = "none" if type(momentum) is Correction else type(momentum).__name__
        return f"reads the state of the momentum slot and needs momentum=AdaptiveMomentum(...); found {found}"

    def begin(self, sent: None, kept: None, start: Start) -> _Path:
        """The drift slot has not begun yet: nothing is known."""
        return _Path()

    def perturb(self, state: _Path, step: Step) -> Vector | None:
        """From where the client is to where its momentum leads, uphill."""
        before, state.walked = state.walked, state.walked + step.lr
        if self.rho == 0 or step.step == 0:
            return None
        blend = step.peer("momentum", Blend)
        assert blend is not None
        if state.pull is None:
            state.pull = _pull(blend, step)
        walked = step.step * (step.lr if self.paced else 1.0)
        if self.paced and step.local.step_schedule is not None:
            walked = before
        ahead = (step.w0 - step.w).mul_(1 - blend.a).add_(state.pull, alpha=walked)
        return unit(ahead).mul_(self.rho)


def _pull(blend: Blend, step: Step) -> Vector:
    """(1 - a) m + a (c - c_i)."""
    pull = (1 - blend.a) * blend.m
    variates = step.peer("drift", Variates)
    return pull if variates is None else pull.add_(variates.difference, alpha=blend.a)
