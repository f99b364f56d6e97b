"""FedROD: a client adds a head of its own to the shared one."""

from dataclasses import dataclass

import torch
from torch import Tensor

from undrift.blocks.personalization.part import Part, check, mask
from undrift.blocks.personalization.private import Own
from undrift.core import End, Layout, Needs, Personalization, Start, Step, Vector
from undrift.core.model.samples import clip_norm


@dataclass(frozen=True)
class AddedHead(Personalization[None, Own, None, None, Vector]):
    """client:  v <- v - lr (g(w + v) + wd v) on the tensors named, 0 elsewhere;   w as without it
    evaluation:  w + v, v = 0 for a client that never took part

    v is trained by the data loss alone, whatever the objective adds for w. Where the last module is linear, its logits
    at w + v are the sum of those of two heads, and the gradient is that of the second one on features that are not
    differentiated.

    Args:
        names: the tensors that v is added to: "last" for those of the last module, "all", or name patterns.
    """

    needs = Needs(plain_sgd="v takes SGD steps with the rate of the global model")
    gradients = 1  # one more, at w + v
    personalizes = True

    names: Part = "last"

    def __post_init__(self) -> None:
        check("AddedHead", self.names)

    def init_client(self, w: Vector) -> Own:
        """Nothing added."""
        return Own(torch.empty(0, dtype=w.dtype))

    def begin(self, sent: None, kept: Own, start: Start) -> Vector:
        """A copy of v to train, as long as the model."""
        v = torch.zeros_like(start.w0)
        if len(kept.values):
            v[self._where(start.layout, v)] = kept.values
        return v

    def adjust(self, grad: Vector, state: Vector, step: Step) -> Vector:
        """A step of v; the direction of the global model stays."""
        pull = step.gradient_at(step.w + state, step.batch).masked_fill_(~self._where(step.layout, state), 0)
        if step.local.clip is not None:
            clip_norm(pull, step.local.clip)
        state.sub_(pull.add_(state, alpha=step.local.weight_decay), alpha=step.lr)
        return grad

    def finish(self, state: Vector, end: End) -> tuple[None, Own]:
        """Keep v."""
        return None, Own(state[self._where(end.layout, state)])

    def personal(self, params: Vector, kept: Own, layout: Layout) -> Vector:
        """The global model with v added."""
        if not len(kept.values):
            return params
        own = params.clone()
        own[self._where(layout, own)] += kept.values
        return own

    def _where(self, layout: Layout, like: Tensor) -> Tensor:
        """A boolean vector, true where v is not zero, on the device of a tensor."""
        return mask("AddedHead", self.names, layout, like.device)
