"""MOON's contrast between what the global model sees and what the client's last one saw."""

from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import finalize, ref

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from undrift.core.block import Objective
from undrift.core.types import Run
from undrift.core.vector import Vector


class Previous(NamedTuple):
    """The model a client ended its last round with; before its first round, the one it receives."""

    w: Vector


class _Seen:
    """The features of the last forward pass, and the model to keep away from."""

    def __init__(self, previous: Vector) -> None:
        self.previous = previous
        self.z: Any = None


def contrast(z: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """The mean of -log(e^(s(z, near)/T) / (e^(s(z, near)/T) + e^(s(z, far)/T))), s the cosine, over a batch."""
    s = torch.stack([cosine_similarity(z.flatten(1), other.flatten(1)) for other in (near, far)], dim=1)
    return cross_entropy(s / temperature, torch.zeros(len(s), dtype=torch.int64, device=s.device))


@dataclass(frozen=True)
class Contrast(Objective):
    """client:  loss <- loss + mu contrast(z(w), z(w0), z(w_old), temperature);   at the end w_old <- w

    z are the features of the batch; at w0 and w_old they are taken in evaluation mode and without a gradient. A
    client's first round has no old model and no term.

    Args:
        mu: strength of the term; 0 switches it off.
        temperature: of the softmax over the two cosines.
        features: name of the layer whose output is contrasted; "" is the input of the last linear layer.
    """

    Client = Previous

    mu: float = 5.0
    temperature: float = 0.5
    features: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise ValueError(f"Contrast: mu must be 0 or more and finite, got {self.mu}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"Contrast: temperature must be positive and finite, got {self.temperature}")

    def init_client(self, w: Vector) -> Previous:
        """The model it receives: with equal models the term is constant."""
        return Previous(w)

    def begin(self, sent: None, kept: Previous, run: Run) -> _Seen | None:
        """Watch the features, unless the term has no gradient in this round."""
        if self.mu == 0:
            return None
        seen = _Seen(kept.w)
        if self.features:
            run.tap(self.features)
        else:
            _watch(run.module, seen)
        return None if torch.equal(kept.w, run.w0) else seen

    def penalty(self, local: _Seen | None, run: Run) -> Tensor | None:
        """The term at the point where the gradient is taken."""
        if local is None:
            return None
        z = self._features(local, run)  # before the passes aside
        near = self._aside(run.w0, local, run)
        far = self._aside(local.previous, local, run)
        return self.mu * contrast(z, near, far, self.temperature)

    def finish(self, local: _Seen | None, run: Run) -> tuple[None, Previous]:
        """Remember where the client went."""
        return None, Previous(run.w.clone())

    def _aside(self, point: Vector, local: _Seen, run: Run) -> Tensor:
        """The features of the batch at another point, in evaluation mode."""
        run.loss(point, run.batch, evaluate=True)
        return self._features(local, run)

    def _features(self, local: _Seen, run: Run) -> Tensor:
        """The features of the last forward pass."""
        z = run.seen.get(self.features) if self.features else local.z
        if not isinstance(z, Tensor):
            raise TypeError(
                f"Contrast: features must be one tensor a forward pass, {self.features or 'the last linear layer'} "
                f"gave {type(z).__name__}; name another layer with features="
            )
        return z


def _watch(module: nn.Module, seen: _Seen) -> None:
    """Note the input of the last linear layer for as long as someone holds `seen`."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ValueError(
            f"Contrast: {type(module).__name__} has no linear layer whose input could be contrasted; "
            f"name a layer with features="
        )
    held = ref(seen)

    def note(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        if (holder := held()) is not None:
            holder.z = inputs[0] if inputs else None

    finalize(seen, layers[-1].register_forward_pre_hook(note).remove)
