"""How sharp a minimum is: leading eigenvalues and trace of the Hessian, SAM's sharpness, the gradient's norm.

The products with the Hessian are our own: curvlinops gives the same numbers at the same speed (a test compares them),
but uses forward-over-reverse differentiation, which PyTorch's LSTM does not support, and needs a working torchvision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.model.flat_model import double, unit
from undrift.core.model.random import derive
from undrift.lens.landscape import EmpiricalLoss

_ORDERS = {"magnitude": "LM", "value": "LA"}


@dataclass(frozen=True, eq=False)
class Eigen:
    """Leading eigenpairs of a Hessian.

    Args:
        values: the eigenvalues, the leading one first.
        vectors: their eigenvectors as rows of length one; the largest element of each is positive.
        residuals: |H v - lambda v| of each, relative to the leading |lambda|: a bound on the eigenvalue's error.
        products: how many products with the Hessian it took.
    """

    values: tuple[float, ...]
    vectors: Tensor
    residuals: tuple[float, ...]
    products: int


@dataclass(frozen=True)
class Estimate:
    """A mean over draws and its standard error."""

    mean: float
    error: float
    samples: int


def top(
    objective: EmpiricalLoss,
    k: int = 2,
    *,
    order: str = "magnitude",
    tolerance: float = 1e-4,
    restarts: int = 100,
    seed: int = 0,
) -> Eigen:
    """The k leading eigenvalues of the Hessian, by Lanczos iteration in double precision; exact for tiny models.

    Args:
        objective: the loss.
        k: how many.
        order: "magnitude", as power iteration, or "value", which puts negative eigenvalues last.
        tolerance: the error of an eigenpair relative to its eigenvalue; 0 means the precision of doubles, which
            only a float64 objective reaches.
        restarts: the maximum number of restarts.
        seed: of the start vector.

    Example:
        >>> from undrift.testing.tasks import Quadratics
        >>> task = Quadratics.scalar([3.0], [0.0], 1.0, [1])
        >>> top(EmpiricalLoss(task.model(), task.loss, [0], sizes=[1]), 1).values
        (3.0,)
    """
    size = objective.layout.size
    if not 1 <= k <= size:
        raise ValueError(f"top: k must be between 1 and the {size} parameters of the model, got {k}")
    if order not in _ORDERS:
        raise ValueError(f"top: order must be one of {', '.join(_ORDERS)}, got {order!r}")
    if not 0 <= tolerance < 1:
        raise ValueError(f"top: tolerance must be a fraction in [0, 1), got {tolerance}")
    if size <= _basis(k):  # Lanczos would span the whole space
        values, vectors = torch.linalg.eigh(hessian(objective).cpu().double())
        return _eigen(objective, values, vectors.T, k, order, size)
    return _lanczos(objective, k, order, tolerance, restarts, seed)


def _lanczos(objective: EmpiricalLoss, k: int, order: str, tolerance: float, restarts: int, seed: int) -> Eigen:
    """SciPy's implicitly restarted Lanczos iteration, from a start vector of our own."""
    # Imported here, so that only callers that need eigenvalues wait for SciPy to load.
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    size, used = objective.layout.size, 0

    def product(v: Any) -> Any:
        nonlocal used
        used += 1
        along = torch.tensor(v.reshape(-1), dtype=objective.w.dtype, device=objective.w.device)
        return objective.product(along).cpu().double().numpy()

    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
    draw = np.random.default_rng(derive(seed, "lanczos"))
    start = draw.standard_normal(size)
    if not product(start).any():  # SciPy rejects a matrix of zeros
        return _eigen(objective, torch.zeros(k).double(), torch.eye(k, size).double(), k, order, used)
    try:
        values, vectors = eigsh(
            operator,
            k,
            which=_ORDERS[order],
            v0=start,
            ncv=_basis(k),
            tol=tolerance,
            maxiter=restarts,
            **_fresh(eigsh, draw),
        )
    except ArpackNoConvergence as error:
        raise RuntimeError(
            f"top: {len(error.eigenvalues)} of {k} eigenvalues were found to {tolerance} in {restarts} restarts "
            f"({used} products); allow more restarts or a larger tolerance"
        ) from error
    return _eigen(objective, torch.from_numpy(values), torch.from_numpy(vectors.T.copy()), k, order, used)


def _basis(k: int) -> int:
    """How many vectors Lanczos keeps: a small CNN's top two take 16 products with 12, and 24 with SciPy's 20."""
    return 2 * k + 8


def _fresh(solver: Callable[..., Any], draw: np.random.Generator) -> dict[str, np.random.Generator]:
    """The random stream for SciPy's restarts on low-rank matrices; before 1.17 SciPy used a fixed stream."""
    return {"rng": draw} if "rng" in signature(solver).parameters else {}


def _eigen(objective: EmpiricalLoss, values: Tensor, rows: Tensor, k: int, order: str, used: int) -> Eigen:
    """The first k pairs in order, signs fixed, with the residuals H v - lambda v."""
    rank = values.abs() if order == "magnitude" else values
    chosen = rank.argsort(descending=True, stable=True)[:k]
    values, rows = values[chosen], rows[chosen]
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    vectors = (rows * largest.sign()).to(objective.w)
    scale = max(float(values.abs().max()), 1e-300)
    left = [double(objective.product(v)) - float(x) * double(v) for x, v in zip(values, vectors, strict=True)]
    residuals = tuple(float(torch.linalg.vector_norm(rest)) / scale for rest in left)
    return Eigen(tuple(values.tolist()), vectors, residuals, used + k)


def hessian(objective: EmpiricalLoss) -> Tensor:
    """The full matrix, symmetrised: one product per parameter, so only for models with a few hundred."""
    rows = torch.stack([objective.product(e) for e in torch.eye(objective.layout.size).to(objective.w)])
    return (rows + rows.T) / 2


def trace(objective: EmpiricalLoss, samples: int = 30, *, seed: int = 0) -> Estimate:
    """Hutchinson's estimate of the Hessian's trace: the mean of z^T H z over random signs z.

    Args:
        objective: the loss.
        samples: how many draws, each costs one product with the Hessian; four times as many halve the error.
        seed: of the signs.
    """
    if samples < 2:
        raise ValueError(f"trace: samples must be 2 or more to estimate the error, got {samples}")
    draw = torch.Generator().manual_seed(derive(seed, "trace"))
    products = []
    for _ in range(samples):
        z = torch.randint(0, 2, (objective.layout.size,), generator=draw).mul(2).sub(1).to(objective.w)
        products.append(float(double(z) @ double(objective.product(z))))
    return Estimate(fmean(products), stdev(products) / sqrt(samples), samples)


def sharpness(objective: EmpiricalLoss, rho: float = 0.05) -> float:
    """By how much the loss grows over SAM's ascent step: L(w + rho g / |g|) - L(w), g the gradient over all examples.

    Args:
        objective: the loss.
        rho: length of the step; 0 gives 0.
    """
    if not 0 <= rho < float("inf"):
        raise ValueError(f"sharpness: rho must be 0 or more and finite, got {rho}")
    return objective.value(objective.w + rho * unit(objective.gradient())) - objective.value()


def gradient_norm(objective: EmpiricalLoss) -> float:
    """The length of the gradient over all examples."""
    return float(torch.linalg.vector_norm(objective.gradient()))


def flatness(
    objective: EmpiricalLoss, *, k: int = 2, samples: int = 30, rho: float = 0.05, seed: int = 0
) -> dict[str, float]:
    """All these numbers in one flat record: loss, slope, sharpness, leading eigenvalues, trace and its error.

    Args:
        objective: the loss.
        k: eigenvalues, by magnitude: "lambda_1", "lambda_2", ...
        samples: of the trace.
        rho: of the sharpness.
        seed: of all draws.
    """
    spread = trace(objective, samples, seed=seed)
    values = top(objective, k, seed=seed).values
    return {
        "loss": objective.value(),
        "gradient_norm": gradient_norm(objective),
        "sharpness": sharpness(objective, rho),
        **{f"lambda_{n}": value for n, value in enumerate(values, 1)},
        "trace": spread.mean,
        "trace_error": spread.error,
    }
