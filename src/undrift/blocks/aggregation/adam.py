"""Adam for a handful of numbers at the server."""

import torch
from torch import Tensor


class FewNumbersAdam:
    """m <- b1 m + (1 - b1) g;   v <- b2 v + (1 - b2) g^2;   x <- x - lr m' / (sqrt(v') + 1e-8), m' and v' unbiased

    The betas are those of the released codes of FedLAW and FedAWA. Torch's own takes seconds to load its compiler.
    """

    def __init__(self, size: int) -> None:
        self.m = self.v = torch.zeros(size, dtype=torch.float64)
        self.t = 0

    def step(self, x: Tensor, grad: Tensor, lr: float, b1: float = 0.5, b2: float = 0.999) -> Tensor:
        """Where x goes, a new tensor."""
        self.t += 1
        self.m = b1 * self.m + (1 - b1) * grad
        self.v = b2 * self.v + (1 - b2) * grad.square()
        return x - lr * (self.m / (1 - b1**self.t)) / ((self.v / (1 - b2**self.t)).sqrt() + 1e-8)
