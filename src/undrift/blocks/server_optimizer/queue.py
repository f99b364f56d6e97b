"""The model as the mean of those that arrived last."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from torch import Tensor

from undrift.blocks.aggregation.age import Mixing
from undrift.core import ServerOptimizer, ServerView, Vector
from undrift.util.naming.ranges import Range


class Models(NamedTuple):
    """The models in the queue, one per row, and how many have arrived so far."""

    rows: Tensor
    arrived: int


@dataclass(frozen=True)
class Queue(ServerOptimizer[Models]):
    """server:  the model that arrives takes the place of the oldest of K models;   w <- their mean

    At first all K are the first model. In synchronous rounds it is the mean model of a round that arrives.

    Args:
        size: K; 1 takes the model that arrives.
    """

    size: Annotated[int, Range("a whole number of models, 1 or more", lambda x: x >= 1)] = 5

    def refuses(self, others: Mapping[str, object]) -> str:
        """Rules that do not give the model that arrived."""
        rule = others["aggregation"]
        if not (isinstance(rule, Mixing) and rule.alpha == 1 and rule.rule == "constant"):
            return f"needs the models of the clients, found aggregation={rule!r}; use mixing('constant', alpha=1.0)"
        return ""

    def init_server(self, w: Vector) -> Models:
        """The first model, K times."""
        return Models(w.repeat(self.size, 1), 0)

    def receive(self, delta: Vector, up: None, view: ServerView[Models]) -> tuple[Vector, Models]:
        """Replace the oldest model, and move to the mean."""
        rows, arrived = view.state.rows.clone(), view.state.arrived
        rows[arrived % self.size] = view.params + delta
        return rows.mean(dim=0) - view.params, Models(rows, arrived + 1)
