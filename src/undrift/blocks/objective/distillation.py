"""What the received model knows of other classes, kept in training: FedNTD's and FedVLS's terms."""

from dataclasses import dataclass
from math import inf, log

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from undrift.blocks.objective.calibration import ClassCounts, one_row_each
from undrift.core import Needs, Objective, Start, Step
from undrift.util.naming.ranges import NonNegative, Positive


def divergence_from(teacher: Tensor, logits: Tensor) -> Tensor:
    """KL(softmax(teacher) || softmax(logits)) of every row."""
    p, q = log_softmax(teacher, dim=1), log_softmax(logits, dim=1)
    return (p.exp() * (p - q)).sum(dim=1)


def received_logits(step: Step) -> Tensor:
    """The logits of the batch at the received model, in evaluation mode."""
    step.forward_at(step.w0, step.batch, evaluate=True)
    logits: Tensor = step.seen[""]
    return logits


@dataclass(frozen=True)
class NotTrue(Objective[None, None, None, None, bool]):
    """client:  loss <- loss + beta tau^2 mean_x KL(softmax(f0(x)/tau) || softmax(f(x)/tau)), both without x's class

    f0 is the received model, in evaluation mode and without a gradient.

    Args:
        beta: strength of the distillation; 0 switches it off.
        tau: temperature.
    """

    needs = Needs(labels=True)

    beta: NonNegative = 1.0
    tau: Positive = 1.0

    def begin(self, sent: None, kept: None, start: Start) -> bool:
        """Watch the logits."""
        if self.beta:
            start.tap("")
        return self.beta > 0

    def penalty(self, state: bool, step: Step) -> Tensor | None:
        """The term at the point where the gradient is taken."""
        if not state:
            return None
        logits = one_row_each("NotTrue", step.seen[""])  # before the pass at the received model
        others = torch.arange(logits.shape[1] - 1, device=logits.device)
        others = others + (others >= step.batch[1][:, None])
        teacher, own = (x.gather(1, others) / self.tau for x in (received_logits(step), logits))
        return self.beta * self.tau**2 * divergence_from(teacher, own).mean()


@dataclass(frozen=True)
class VacantClasses(ClassCounts):
    """client:  loss <- CE(f + log p, y) + s sum_c p_c (log sum_{x: y != c} exp(f_c(x) - log p_c - log C) - log B)
                      + lam mean_x KL(softmax(f0(x)[V]) || softmax(f(x)[V]))

    p are the client's label frequencies plus 1e-9, V the classes it does not have, B the size of the batch, and f0 the
    received model, in evaluation mode and without a gradient. A class that all examples of a batch have adds nothing to
    the second sum.

    Args:
        lam: strength of the distillation of missing classes; 0 switches it off.
        suppression: s, strength of the second term; 0 switches it off.
        literal: count examples of class c in the second term as if f_c(x) - log p_c - log C were 0, as released code
            does, instead of leaving them out.
    """

    lam: NonNegative = 1.0
    suppression: NonNegative = 0.005
    literal: bool = False

    def term(self, logits: Tensor, counts: Tensor, step: Step) -> Tensor:
        """The balanced cross entropy in place of the plain one, and both further terms."""
        labels = step.batch[1]
        p = counts.to(logits.dtype) / counts.sum() + 1e-9
        out = cross_entropy(logits + p.log(), labels) - cross_entropy(logits, labels)
        if self.suppression:
            out = out + self.suppression * self._suppress(logits, labels, p)
        if not self.lam:
            return out
        vacant = counts == 0
        hidden = ~vacant & vacant.any()  # without a vacant class nothing is hidden, and the term is switched off
        teacher, own = (x.masked_fill(hidden, -1e30) for x in (received_logits(step), logits))
        return out + self.lam * vacant.any() * divergence_from(teacher, own).mean()

    def _suppress(self, logits: Tensor, labels: Tensor, p: Tensor) -> Tensor:
        """The logits of classes on examples of other classes, the more of a class the stronger."""
        count = logits.shape[1]
        true = labels[:, None] == torch.arange(count, device=logits.device)
        shifted = logits - p.log() - log(count)
        empty = torch.zeros_like(true[0]) if self.literal else true.all(dim=0)
        sums = shifted.masked_fill(true & ~empty, 0.0 if self.literal else -inf).logsumexp(dim=0)
        return (p * (sums - log(len(logits)))).masked_fill(empty, 0.0).sum()
