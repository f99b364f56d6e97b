"""SCAFFOLD's control variates by option I: full gradients."""

from dataclasses import dataclass

from undrift.blocks.drift.scaffold import Scaffold, Variate, _Pair
from undrift.core.types import Cohort, Run, Summed


@dataclass(frozen=True)
class ScaffoldI(Scaffold):
    """client:  g <- g - c_i + c;   at the end c_i <- grad F_i(w0), over all its data, without decay or penalty
    server:  c <- c + 1/N sum_i (new c_i - old c_i)
    """

    Up = Variate
    uses = frozenset()

    def finish(self, local: _Pair, run: Run) -> tuple[Variate, Variate]:  # type: ignore[override]
        """One pass over the data at the received model; the change travels, since the displacement does not tell it."""
        gradient = run.mean_gradient(run.w0)
        return Variate(gradient - local.c_i), Variate(gradient)

    def receive(self, server: Variate, total: Summed, up: Variate, cohort: Cohort) -> Variate:  # type: ignore[override]
        """Move the global variate by the mean change over all clients."""
        return Variate(server.c + up.c / cohort.population)
