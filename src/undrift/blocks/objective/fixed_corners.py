"""FedLoGe's objective: features grow towards sparse fixed corners, and the head is fitted to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from undrift.blocks.class_features import refuses_fixed, refuses_samples, rows_of
from undrift.blocks.corners import sparse_corners
from undrift.blocks.objective.calibration import one_row_each
from undrift.blocks.objective.contrast import last_linear
from undrift.core import Needs, Objective, Start, Step
from undrift.util.naming.ranges import Fraction, Positive


class _Heads(NamedTuple):
    """The name of the features, the head's weights and biases where the gradient is taken, and the fixed rows."""

    features: str
    weights: nn.Parameter
    biases: nn.Parameter
    rows: Tensor


@dataclass(frozen=True)
class FixedCorners(Objective[None, None, None, None, _Heads]):
    """client:  loss <- mean_x CE(c V^T z(x), y) + CE(A [z(x)] + b, y)

    z are the features, what the last module (A, b) takes in; [z] has no gradient. V is sparse and fixed, from a seed,
    the same everywhere: one column of length one per class, with cosines close to -1 / (C - 1).

    Args:
        sparsity: the share of V's entries that are zero.
        length: c, of the rows that the features see.
    """

    needs = Needs(labels=True)

    sparsity: Fraction = 0.6
    length: Positive = 0.1

    def refuses(self, others: Mapping[str, object]) -> str:
        """Several features per example; a classifier that is fixed already."""
        return refuses_samples(others) or refuses_fixed(others)

    def begin(self, sent: None, kept: None, start: Start) -> _Heads:
        """Watch the features and the logits."""
        rows, _ = rows_of(start.w0, start.layout, "FixedCorners")
        name = last_linear(start.module)
        start.tap("")
        head = start.module.get_submodule(name)
        fixed = sparse_corners(*rows.shape, self.sparsity).T * self.length
        weights, biases = (head.get_parameter(x) for x in ("weight", "bias"))
        return _Heads(start.tap(name, inputs=True), weights, biases, fixed.to(rows))

    def penalty(self, state: _Heads, step: Step) -> Tensor:
        """What makes the data loss, CE(A z + b, y), the sum of the two."""
        logits, labels = one_row_each("FixedCorners", step.seen[""]), step.batch[1]
        z = step.seen[state.features]
        head = linear(z.detach().to(state.weights), state.weights, state.biases)
        return cross_entropy(z @ state.rows.T, labels) + cross_entropy(head, labels) - cross_entropy(logits, labels)
