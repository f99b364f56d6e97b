"""FedGloSS's radius, which grows over the first rounds, on the server and on the clients alike."""

from dataclasses import dataclass
from typing import Annotated

from undrift.util.naming.ranges import NonNegative, Range


@dataclass(frozen=True)
class Warming:
    """rho_t = first + (rho - first) min(1, t / warmup);   a first radius above rho counts as rho

    Args:
        rho: the radius once warm; 0 switches the perturbation off, in the warm-up too.
        warmup: how many rounds the warm-up takes; 0 switches it off.
        first: the radius of round 0.
    """

    rho: NonNegative = 0.15
    warmup: Annotated[int, Range("a whole number of rounds, 0 or more", lambda x: x >= 0)] = 2000
    first: NonNegative = 0.001

    def radius(self, round: int) -> float:
        """The radius of a round."""
        if round >= self.warmup:
            return self.rho
        low = min(self.first, self.rho)
        return low + (self.rho - low) * round / self.warmup
