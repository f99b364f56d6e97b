"""FedGloSS's radius, which grows over the first rounds, on the server and on the clients alike."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Warming:
    """rho_t = first + (rho - first) min(1, t / warmup);   a first radius above rho counts as rho

    Args:
        rho: the radius once warm; 0 switches the perturbation off, in the warm-up too.
        warmup: how many rounds the warm-up takes; 0 switches it off.
        first: the radius of round 0.
    """

    rho: float = 0.15
    warmup: int = 2000
    first: float = 0.001

    def __post_init__(self) -> None:
        for name, value in (("rho", self.rho), ("first", self.first)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{type(self).__name__}: {name} must be 0 or more and finite, got {value}")
        if not isinstance(self.warmup, int) or self.warmup < 0:
            raise ValueError(
                f"{type(self).__name__}: warmup must be a whole number of rounds, 0 or more, got {self.warmup}"
            )

    def radius(self, round: int) -> float:
        """The radius of a round."""
        if round >= self.warmup:
            return self.rho
        low = min(self.first, self.rho)
        return low + (self.rho - low) * round / self.warmup
