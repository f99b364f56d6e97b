"""MOON's contrast between what the global model sees and what the client's last one saw."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from undrift.core import End, Objective, Start, Step, Vector
from undrift.util.naming.ranges import NonNegative, Positive


class Previous(NamedTuple):
    """The model a client ended its last round with; before its first round, the one it receives."""

    w: Vector


class _Contrasted(NamedTuple):
    """The features that are contrasted, as a step names them, and the model to keep away from."""

    features: str
    previous: Vector


def contrast(z: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """The mean of -log(e^(s(z, near)/T) / (e^(s(z, near)/T) + e^(s(z, far)/T))), s the cosine, over a batch."""
    s = torch.stack([cosine_similarity(z.flatten(1), other.flatten(1)) for other in (near, far)], dim=1)
    return cross_entropy(s / temperature, torch.zeros(len(s), dtype=torch.int64, device=s.device))


@dataclass(frozen=True)
class Contrast(Objective[None, Previous, None, None, _Contrasted | None]):
    """client:  loss <- loss + mu contrast(z(w), z(w0), z(w_old), temperature);   at the end w_old <- w

    z are the features of the batch; at w0 and w_old they are taken in evaluation mode and without a gradient. A
    client's first round has no old model and no term.

    Args:
        mu: strength of the term; 0 switches it off.
        temperature: of the softmax over the two cosines.
        features: name of the layer whose output is contrasted; "" is the input of the last linear layer.
    """

    mu: NonNegative = 5.0
    temperature: Positive = 0.5
    features: str = ""

    def init_client(self, w: Vector) -> Previous:
        """The model it receives: with equal models the term is constant."""
        return Previous(w)

    def begin(self, sent: None, kept: Previous, start: Start) -> _Contrasted | None:
        """Watch the features, unless the term has no gradient in this round."""
        if self.mu == 0:
            return None
        layer = self.features or last_linear(start.module)
        # in the first round, too, so that a wrong name is reported at once
        features = start.tap(layer, inputs=not self.features)
        return None if torch.equal(kept.w, start.w0) else _Contrasted(features, kept.w)

    def penalty(self, state: _Contrasted | None, step: Step) -> Tensor | None:
        """The term at the point where the gradient is taken."""
        if state is None:
            return None
        z = self._features(state, step)  # before the passes at other points
        near = self._features_at(step.w0, state, step)
        far = self._features_at(state.previous, state, step)
        return self.mu * contrast(z, near, far, self.temperature)

    def finish(self, state: _Contrasted | None, end: End) -> tuple[None, Previous]:
        """Remember where the client went."""
        return None, Previous(end.w.clone())

    def _features_at(self, point: Vector, state: _Contrasted, step: Step) -> Tensor:
        """The features of the batch at another point, in evaluation mode."""
        step.forward_at(point, step.batch, evaluate=True)
        return self._features(state, step)

    def _features(self, state: _Contrasted, step: Step) -> Tensor:
        """The features of the last forward pass."""
        z = step.seen.get(state.features)
        if not isinstance(z, Tensor):
            raise TypeError(
                f"Contrast: features must be one tensor per forward pass, {self.features or 'the last linear layer'} "
                f"gave {type(z).__name__}; name another layer with features="
            )
        return z


def last_linear(module: nn.Module) -> str:
    """The name of the last linear layer of a model, whose input are its features."""
    layers = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ValueError(
            f"Contrast: {type(module).__name__} has no linear layer whose input could be contrasted; "
            f"name a layer with features="
        )
    return str(layers[-1])
