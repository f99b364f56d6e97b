"""FedAS: a client aligns the received body with its own before it trains."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from undrift.blocks.class_features import features_at, refuses_samples, sums_by_class
from undrift.blocks.objective.contrast import last_linear
from undrift.blocks.personalization.adaptive import reads_steps
from undrift.blocks.personalization.latest import Trained
from undrift.blocks.personalization.part import Part, check, mask
from undrift.blocks.personalization.private import Private
from undrift.core import End, Layout, Needs, Personalization, Start, Vector
from undrift.util.naming.ranges import NonNegative


@dataclass(frozen=True)
class AlignedBody(Personalization[None, Trained, None, None, None]):
    """client:  one epoch  w <- w - rate g_A(w) on the shared part, from w0, before training
             A = sum_y mean_x,j (z_j(x) - p_yj)^2 over the classes y of a batch and its x of class y,
             p_y the mean features of its examples of class y at the model it last trained
    the tensors named stay with the client, as with `Private`

    A client's first round has no such model and no alignment.

    Args:
        names: the private tensors: "last" for those of the last module, or name patterns.
        rate: step size of the alignment; 0 switches it off.
    """

    personalizes = True

    names: Part = "last"
    rate: NonNegative = 0.01

    def __post_init__(self) -> None:
        check("AlignedBody", self.names)

    @property
    def needs(self) -> Needs:
        """Class labels in the batches."""
        return Needs(labels=self.rate > 0)

    def refuses(self, others: Mapping[str, object]) -> str:
        """What a private part refuses; with alignment, several features per example and readers of gradient steps."""
        own = Private(self.names).refuses(others)
        return (
            own or (self.rate and (refuses_samples(others) or reads_steps(others, "starts from an aligned body"))) or ""
        )

    def init_client(self, w: Vector) -> Trained:
        """The model received."""
        return Trained(w)

    def shared(self, layout: Layout) -> Tensor | None:
        """Everything that is not private."""
        return Private(self.names).shared(layout)

    def start(self, params: Vector, kept: Trained, layout: Layout) -> Vector:
        """The shared model with the client's own values in it."""
        return torch.where(mask("AlignedBody", self.names, layout, params.device), kept.w, params)

    def begin(self, sent: None, kept: Trained, start: Start) -> None:
        """Take the first step at the aligned body."""
        if self.rate == 0 or torch.equal(kept.w, start.w0):
            return
        layer = start.tap(last_linear(start.module), inputs=True)
        features, labels = features_at(kept.w, layer, start, "align")
        sums, counts = sums_by_class(features, labels, int(labels.max()) + 1)
        own = (sums / counts[:, None]).to(start.w0)
        private = mask("AlignedBody", self.names, start.layout, start.w0.device)
        point = start.w0.clone()
        for batch in start.data("align"):

            def distance(_: Tensor, y: Tensor = batch[1]) -> Tensor:
                z = start.seen[layer].flatten(1)
                return torch.stack([(z[y == c] - own[c]).square().mean() for c in torch.unique(y)]).sum()

            point.sub_(start.gradient_at(point, batch, of=distance).masked_fill_(private, 0), alpha=self.rate)
        start.begin_at(point)

    def finish(self, state: None, end: End) -> tuple[None, Trained]:
        """Keep the model."""
        return None, Trained(end.w.clone())
