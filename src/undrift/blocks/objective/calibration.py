"""Logits adapted to a client's labels in training: FedLC's, FedRS's, FedETF's, and the balanced softmax."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from undrift.blocks.class_features import count_labels
from undrift.core import Needs, Objective, Start, Step
from undrift.util.naming.ranges import NonNegative, Range


def one_row_each(block: str, logits: object) -> Tensor:
    """The logits, if a model returns one row of them per example.

    Args:
        block: who needs them, for the error.
        logits: what the model returned.
    """
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        raise TypeError(f"{block} needs a model that returns one row of logits per example")
    return logits


@dataclass(frozen=True)
class ClassCounts(Objective[None, None, None, None, Tensor | None]):
    """A term of the logits and of how many examples of each class the client has."""

    needs = Needs(labels=True)

    def begin(self, sent: None, kept: None, start: Start) -> Tensor | None:
        """Watch the logits and count the labels."""
        if self.off:
            return None
        counts = count_labels(start, type(self).__name__)
        start.tap("")
        return counts.to(start.w0.device)

    def penalty(self, state: Tensor | None, step: Step) -> Tensor | None:
        """The term at the point where the gradient is taken."""
        if state is None:
            return None
        logits = one_row_each(type(self).__name__, step.seen[""])
        counts = state.new_zeros(logits.shape[1])
        counts[: len(state)] = state
        return self.term(logits, counts, step)

    @property
    def off(self) -> bool:
        """Whether there is no term."""
        return False

    def term(self, logits: Tensor, counts: Tensor, step: Step) -> Tensor:
        """The term of a batch.

        Args:
            logits: one row per example.
            counts: how many examples of each class the client has.
            step: the step.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class _AdaptedLogits(ClassCounts):
    """The term that replaces the cross entropy of the logits by that of adapted ones: their difference."""

    def term(self, logits: Tensor, counts: Tensor, step: Step) -> Tensor:
        """The cross entropy of the adapted logits minus that of the logits."""
        labels = step.batch[1]
        return cross_entropy(self.adapt(logits, counts), labels) - cross_entropy(logits, labels)

    def adapt(self, logits: Tensor, counts: Tensor) -> Tensor:
        """The adapted logits.

        Args:
            logits: one row per example.
            counts: how many examples of each class the client has.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class _ShiftedLogits(_AdaptedLogits):
    """Logits to which something is added, `tau` times."""

    tau: NonNegative = 1.0

    @property
    def off(self) -> bool:
        """Whether tau is 0."""
        return self.tau == 0


@dataclass(frozen=True)
class CalibratedLogits(_ShiftedLogits):
    """client:  loss <- mean_x CE(f(x) - tau n^(-1/4), y), n_c the client's examples of class c

    A class without examples has no part in the sum of the softmax, so that its logit is not pushed down.

    Args:
        tau: strength of the calibration; 0 switches it off.
    """

    def adapt(self, logits: Tensor, counts: Tensor) -> Tensor:
        """Subtract the margins; that of a missing class is infinite."""
        return logits - self.tau * counts.to(logits.dtype).pow(-0.25)


@dataclass(frozen=True)
class RestrictedLogits(_AdaptedLogits):
    """client:  loss <- mean_x CE(s f(x), y), s_c = 1 for the client's own classes and alpha for the others

    Args:
        alpha: factor on the logits of classes that the client does not have; 1 switches it off.
    """

    alpha: Annotated[float, Range("from 0 to 1", lambda x: 0 <= x <= 1)] = 0.5

    @property
    def off(self) -> bool:
        """Whether alpha is 1."""
        return self.alpha == 1

    def adapt(self, logits: Tensor, counts: Tensor) -> Tensor:
        """Scale the logits of missing classes."""
        return logits * torch.where(counts > 0, logits.new_ones(()), logits.new_full((), self.alpha))


@dataclass(frozen=True)
class BalancedLogits(_ShiftedLogits):
    """client:  loss <- mean_x CE(f(x) + tau log n, y), n_c the client's examples of class c

    A class without examples has no part in the sum of the softmax.

    Args:
        tau: strength of the balance; 0 switches it off, and 1 makes f that of balanced classes.
    """

    def adapt(self, logits: Tensor, counts: Tensor) -> Tensor:
        """Add the logarithms of the counts; that of a missing class is minus infinity."""
        return logits + self.tau * counts.to(logits.dtype).log()


@dataclass(frozen=True)
class BalancedSimplex(BalancedLogits):
    """client:  loss <- mean_x CE(s V^T f(x) / ||f(x)|| + tau log n, y), n_c the client's examples of class c

    The model has f, s and V, the fixed corners of a simplex. A class without examples has no part in the sum of the
    softmax.

    Args:
        tau: strength of the balance; 0 switches it off, and 1 makes the logits those of balanced classes.
    """

    needs = Needs(model="simplex", labels=True)

    def begin(self, sent: None, kept: None, start: Start) -> Tensor | None:
        """Watch the logits of such a model."""
        self.check_model(start.module)
        return super().begin(sent, kept, start)

    def check_model(self, module: nn.Module) -> None:
        """Refuse a model without a fixed classifier.

        Args:
            module: the model.
        """
        vertices = getattr(module, "vertices", None)
        if not isinstance(vertices, Tensor) or isinstance(vertices, nn.Parameter):
            raise TypeError(
                f"BalancedSimplex: {type(module).__name__} has no fixed corners of a simplex, a buffer named vertices; "
                "use model 'simplex-cnn', or undrift.models.Simplex(body, ...)"
            )
