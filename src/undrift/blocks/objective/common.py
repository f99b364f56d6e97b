"""FedCR's pull of every class's latent distribution towards one that all clients share."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from undrift.blocks.objective.gaussians import Gaussian, decode_gaussian, divergence, product
from undrift.core import Array, End, Needs, Objective, ServerView, Start, Step, Vector
from undrift.util.naming.ranges import Count, NonNegative, Share


class ClassGaussians(NamedTuple):
    """A Gaussian over the latent units for each class, concatenated."""

    mean: Array
    deviation: Array


class Experts(NamedTuple):
    """Summed over a client's examples of each class: precisions, and means times precisions; zero without examples."""

    precision: Array
    weighted: Array


class _Sums:
    """What the server sent, and the sums of the last epoch so far."""

    def __init__(self, sent: ClassGaussians, shape: tuple[int, int], start: Start) -> None:
        self.classes: Gaussian = (sent.mean.view(shape), sent.deviation.view(shape))
        self.precision, self.weighted = start.w0.new_zeros(shape), start.w0.new_zeros(shape)
        self.next = max(0, start.steps - start.epoch_steps)

    def count(self, labels: Tensor, mean: Tensor, deviation: Tensor, step: int) -> None:
        """Add the examples of a step of the last epoch, once: a perturbation passes them again."""
        if step >= self.next:
            self.next = step + 1
            precision = deviation.detach() ** -2
            self.precision.index_add_(0, labels, precision)
            self.weighted.index_add_(0, labels, mean.detach() * precision)


@dataclass(frozen=True)
class CommonRepresentation(Objective[ClassGaussians, None, ClassGaussians, Experts, _Sums]):
    """client:  loss <- mean_x,j CE(head(mu(x) + sig(x) eps_j), y) + beta mean_x KL(r_y || N(mu(x), sig(x)^2))
             in the last epoch lam_ic = sum_x 1/sig(x)^2,  eta_ic = sum_x mu(x)/sig(x)^2, over its examples x of class c
    server:  where sum_i lam_ic > 0:  r_c <- (1 - beta2) r_c + beta2 N(m, s^2), on mean and deviation,
             s^-2 = 1 + sum_i lam_ic,  m = s^2 sum_i eta_ic;   r_c starts as N(0, 1)

    A variational model gives o = mean_j log p_j, so the cross entropy of a task is -o_y + log sum exp(o), and -o_y is
    the mean of the samples' own cross entropies: the term takes log sum exp(o) away again.

    Args:
        classes: how many classes the model tells apart.
        latent: how many latent units it has.
        beta: strength of the divergence; 0 switches it off.
        beta2: how far the server follows a round's product of experts; 1 forgets what was before.
        encoder_first: KL(N(mu(x), sig(x)^2) || r_y) instead.
    """

    classes: Count = 10
    latent: Count = 512
    beta: NonNegative = 1e-4
    beta2: Share = 1.0
    encoder_first: bool = False

    @property
    def needs(self) -> Needs:
        """A model with latent units, and class labels in the batches."""
        return Needs(model="variational", arguments={"latent": self.latent, "classes": self.classes})

    def sizes(self) -> dict[str, int]:
        """One number for each latent unit of each class."""
        return dict.fromkeys(Experts._fields, self.classes * self.latent)

    def init_server(self, w: Vector) -> ClassGaussians:
        """Standard Gaussians."""
        size = self.classes * self.latent
        return ClassGaussians(w.new_zeros(size), w.new_ones(size))

    def begin(self, sent: ClassGaussians, kept: None, start: Start) -> _Sums:
        """Watch the moments and the output of the model."""
        self.check_model(start.module)
        start.tap("moments")
        start.tap("")
        return _Sums(sent, (self.classes, self.latent), start)

    def penalty(self, state: _Sums, step: Step) -> Tensor:
        """The term at the point where the gradient is taken."""
        labels, output = _labels(step), step.seen[""]
        if output.shape[1:] != (self.classes,):
            count = output.shape[-1]
            raise ValueError(
                f"CommonRepresentation: the model has {count} classes, not {self.classes}; write classes={count}"
            )
        mean, deviation = decode_gaussian(step.seen["moments"])
        state.count(labels, mean, deviation, step.step)
        term: Tensor = -torch.logsumexp(output, dim=1).mean()
        if self.beta == 0:
            return term
        common = (state.classes[0][labels], state.classes[1][labels])
        pair = ((mean, deviation), common) if self.encoder_first else (common, (mean, deviation))
        return term + self.beta * divergence(*pair).mean()

    def finish(self, state: _Sums, end: End) -> tuple[Experts, None]:
        """The sums of the last epoch."""
        return Experts(state.precision.flatten(), state.weighted.flatten()), None

    def receive(self, delta: Vector, up: Experts, view: ServerView[ClassGaussians]) -> tuple[Vector, ClassGaussians]:
        """Follow the product of all examples as experts; a class that no client has keeps its Gaussian."""
        seen = up.precision > 0
        pairs = zip(view.state, product(up.precision, up.weighted), strict=True)
        return delta, ClassGaussians(*(torch.where(seen, old.lerp(new, self.beta2), old) for old, new in pairs))

    def check_model(self, module: nn.Module) -> None:
        """Refuse a model without the latent units expected.

        Args:
            module: the model.
        """
        layer = getattr(module, "moments", None)
        if not isinstance(layer, nn.Linear):
            raise TypeError(
                f"CommonRepresentation: {type(module).__name__} has no linear layer named moments, for the mean and "
                f"the deviation of latent units; use model 'variational-cnn', or undrift.models.Variational(body, ...)"
            )
        if layer.out_features != 2 * self.latent:
            raise ValueError(
                f"CommonRepresentation: the model has {layer.out_features // 2} latent units, not {self.latent}; "
                f"write latent={layer.out_features // 2}"
            )


def _labels(step: Step) -> Tensor:
    """The classes of the batch's examples."""
    labels = step.batch[1] if isinstance(step.batch, tuple | list) and len(step.batch) > 1 else None
    if not isinstance(labels, Tensor) or labels.dim() != 1 or labels.dtype != torch.int64:
        raise TypeError(
            "CommonRepresentation: a batch's second element must be the classes of its examples, whole numbers (int64) "
            f"of one axis, got {getattr(labels, 'dtype', None)} in a {type(step.batch).__name__}"
        )
    return labels
