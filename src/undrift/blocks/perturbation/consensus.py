"""FedSMOO's perturbation: a dual on each client makes all perturbations agree on a global one."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.core import End, Perturbation, ServerView, Start, Step, Vector, unit
from undrift.util.naming.ranges import NonNegative


class Agreed(NamedTuple):
    """The perturbation that the clients agree on, as long as the radius, or zero."""

    s: Vector


class Multiplier(NamedTuple):
    """The dual of a client's perturbation, in parameter units."""

    d: Vector


class _Pair(NamedTuple):
    """The dual as it moves, and what it is compared with."""

    d: Vector
    s: Vector


@dataclass(frozen=True)
class Consensus(Perturbation[Agreed, Multiplier, Agreed, Multiplier, _Pair]):
    """client:  offset = rho U(g1 - d_i - s), g1 the gradient at w;   d_i <- d_i + offset - s, at every step
    server:  s <- rho U(mean_i d_i), over the clients that took part

    Args:
        rho: the radius; 0 switches the perturbation off.
    """

    rho: NonNegative = 0.1

    @property
    def gradients(self) -> int:
        """One more, unless the radius is zero."""
        return int(self.rho > 0)

    def begin(self, sent: Agreed, kept: Multiplier, start: Start) -> _Pair:
        """The dual continues from the client's last round."""
        return _Pair(kept.d.clone(), sent.s)

    def perturb(self, state: _Pair, step: Step) -> Vector | None:
        """The gradient less dual and agreement, scaled to the radius; then the dual's step."""
        if self.rho == 0:
            return None
        offset = step.gradient().sub_(state.d).sub_(state.s)
        # Of length rho to the last bit, so that opposite clients cancel in s.
        offset.div_(torch.linalg.vector_norm(offset).clamp_min(torch.finfo(offset.dtype).tiny)).mul_(self.rho)
        state.d.add_(offset).sub_(state.s)
        return offset

    def finish(self, state: _Pair, end: End) -> tuple[Multiplier, Multiplier]:
        """The dual is uploaded and kept."""
        return Multiplier(state.d), Multiplier(state.d)

    def receive(self, delta: Vector, up: Multiplier, view: ServerView[Agreed]) -> tuple[Vector, Agreed]:
        """The direction of the mean dual."""
        return delta, Agreed(self.rho * unit(up.d / view.cohort))
