"""FedAS's weights: a client counts as much as its loss is still steep."""

from dataclasses import dataclass
from typing import NamedTuple

from undrift.core import End, Summing, Upload


class Trace(NamedTuple):
    """The trace of a client's Fisher matrix."""

    t: float


@dataclass(frozen=True)
class ByFisher(Summing[None, None, None, Trace]):
    """client:  t_i = mean_b ||g_b(w)||^2 over the batches of an epoch, at the trained model, private part included
    server:  delta = sum_i t_i delta_i / sum_i t_i
    """

    reports = ("weight",)

    def finish(self, state: None, end: End) -> tuple[Trace, None]:
        """Measure the trace."""
        squares = [float(end.gradient_at(end.w, batch).double().square().sum()) for batch in end.data("fisher")]
        return Trace(sum(squares) / len(squares)), None

    def weigh(self, upload: Upload, up: Trace, age: int) -> float:
        """The trace."""
        return up.t
