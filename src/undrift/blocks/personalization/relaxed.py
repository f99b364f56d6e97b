"""FedInit's relaxed start: a client begins a little further from where it ended last."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from undrift.blocks.aggregation.weights import Uniform
from undrift.blocks.personalization.adaptive import reads_steps
from undrift.core import End, Personalization, ServerView, Start, Vector
from undrift.util.naming.ranges import NonNegative


class Ended(NamedTuple):
    """The model a client last trained; 1 once it has trained one, else 0."""

    w: Vector
    rounds: int


class First(NamedTuple):
    """The run's first model."""

    w: Vector


class Offset(NamedTuple):
    """How far from the received model a client began."""

    v: Vector


@dataclass(frozen=True)
class RelaxedStart(Personalization[First, Ended, First, Offset, Offset]):
    """client:  the first step is taken at w0 + beta (w0 - w_i), w_i the model it last trained;   delta_i = w - w0
    server:  FedAvg;   literal: delta <- delta - mean_i beta (w0 - w_i)

    Args:
        beta: strength of the relaxation; 0 switches it off.
        first: whether w_i of a client that never took part is the run's first model, which is then sent in every round;
            otherwise such a client begins at w0.
        literal: measure displacements from where each client began, as in released code.
    """

    beta: NonNegative = 0.1
    first: bool = True
    literal: bool = False

    def __post_init__(self) -> None:
        self._leave_out(*(() if self.first else ("Server", "Sent")), *(() if self.literal else ("Up",)))

    def refuses(self, others: Mapping[str, object]) -> str:
        """Blocks that read the displacement as gradient steps; weights that the mean offset does not have."""
        if self.beta == 0:
            return ""
        if self.literal and type(others["aggregation"]) is not Uniform:
            return f"takes the equal mean of the offsets away, found aggregation={others['aggregation']!r}; use uniform"
        return reads_steps(others, "starts beside the received model")

    def init_server(self, w: Vector) -> First:
        """The first model."""
        return First(w)

    def init_client(self, w: Vector) -> Ended:
        """No model yet."""
        return Ended(w, 0)

    def begin(self, sent: First | None, kept: Ended, start: Start) -> Offset:
        """Step away from the last model."""
        last = kept.w if kept.rounds or sent is None else sent.w
        offset = Offset(self.beta * (start.w0 - last))
        if self.beta:
            start.begin_at(start.w0 + offset.v)
        return offset

    def finish(self, state: Offset, end: End) -> tuple[Offset, Ended]:
        """Keep the model; the offset is uploaded in the literal form only."""
        return state, Ended(end.w.clone(), 1)

    def receive(self, delta: Vector, up: Offset | None, view: ServerView[First]) -> tuple[Vector, First]:
        """Take the offsets away, in the literal form."""
        return delta if up is None else delta - up.v / view.cohort, view.state
