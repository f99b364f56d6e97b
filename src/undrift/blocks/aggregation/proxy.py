"""Weights and a shrink factor learned on proxy data at the server."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undrift.blocks.aggregation.adam import FewNumbersAdam
from undrift.blocks.aggregation.rows import blend
from undrift.core import Gathering, Needs, ServerView, Upload, Vector
from undrift.util.naming.ranges import Natural, Positive


@dataclass(frozen=True)
class ByProxy(Gathering):
    """server:  w <- gamma sum_i lam_i (w0 + delta_i);   gamma, lam by Adam on the loss of this model on proxy data
             exp:   lam = softmax(T), gamma = e^s,   from T_i = log(n_i / sum_j n_j), s = 0
             quad:  lam_i = T_i^2 / sum_j T_j^2, gamma = s^2,   from T_i = 1 / sqrt(m), s = 1

    Args:
        epochs: passes over the proxy data in a round; 0 gives ByExamples ("exp") or Uniform ("quad").
        lr: Adam's rate, halved after every 20 epochs.
        form: "exp" or "quad".
        shrink: whether gamma is learned; otherwise it is 1.
    """

    needs = Needs(proxy=True)
    reports = ("weight", "shrink")

    epochs: Natural = 20
    lr: Positive = 0.01
    form: str = "exp"
    shrink: bool = True

    def __post_init__(self) -> None:
        if self.form not in ("exp", "quad"):
            raise ValueError(f'ByProxy: form must be "exp" or "quad", got {self.form!r}')

    def weigh(self, upload: Upload, up: None, age: int) -> float:
        """The number of examples, which weighs running statistics."""
        return float(upload.examples)

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """Learn the factors of the clients' models, then add the models up."""
        factors = self._factors(self._learn(uploads, view))
        view.report("weight", (factors / factors.sum()).tolist())
        view.report("shrink", float(factors.sum()))
        return (factors.sum() - 1) * view.w0 + blend(uploads, factors.tolist()), None

    def _learn(self, uploads: Sequence[Upload], view: ServerView[None]) -> Tensor:
        """One step of Adam for every batch of proxy data."""
        w0, theta = view.w0, self._start(uploads)
        adam = FewNumbersAdam(len(theta))
        for epoch in range(self.epochs):
            for batch in view.proxy.data(f"epoch {epoch}"):
                factors = self._factors(theta.requires_grad_())
                point = factors.detach().sum() * w0 + blend(uploads, factors.tolist())
                slope = view.proxy.gradient_at(point.to(w0.dtype), batch)
                uphill = torch.stack([slope @ (w0 + upload.delta) for upload in uploads])
                (slopes,) = torch.autograd.grad(factors, theta, uphill.double())
                theta = adam.step(theta.detach(), slopes, self.lr * 0.5 ** (epoch // 20))
        return theta

    def _start(self, uploads: Sequence[Upload]) -> Tensor:
        """T and s where they begin."""
        if self.form == "quad":
            return torch.tensor([len(uploads) ** -0.5] * len(uploads) + [1.0], dtype=torch.float64)
        sizes = torch.tensor([upload.examples for upload in uploads], dtype=torch.float64)
        return torch.cat([(sizes / sizes.sum()).log(), torch.zeros(1, dtype=torch.float64)])

    def _factors(self, theta: Tensor) -> Tensor:
        """gamma lam_i from T and s."""
        t, s = theta[:-1], theta[-1]
        shares, gamma = (t.softmax(0), s.exp()) if self.form == "exp" else (t.square() / (t @ t), s.square())
        return shares * gamma if self.shrink else shares
