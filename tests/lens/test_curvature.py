"""Curvature against the dense Hessian, known spectra and another library's operator."""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from math import sqrt
from types import ModuleType
from typing import Any

import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from support.vision import operators
from undrift.core.model.flat_model import unit
from undrift.lens.curvature import Eigen, Estimate, flatness, gradient_norm, hessian, sharpness, top, trace
from undrift.lens.landscape import EmpiricalLoss
from undrift.models import CharLSTM, SmallCNN
from undrift.testing.tasks import Quadratics


def loss(module: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(module(batch[0]), batch[1])


def mlp(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """67 parameters, smooth."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def batches(sizes: Sequence[int] = (10, 10, 7), dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(sum(sizes), 4, generator=draw, dtype=torch.float64).to(dtype)
    y = torch.randint(0, 3, (sum(sizes),), generator=draw)
    return list(zip(x.split(list(sizes)), y.split(list(sizes)), strict=True))


def dense(module: nn.Module, data: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """The Hessian over all examples in one batch, by torch.autograd.functional."""
    x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    names, shapes = zip(*((name, p.shape) for name, p in module.named_parameters()), strict=True)

    def at(w: Tensor) -> Tensor:
        pieces = torch.split(w, [shape.numel() for shape in shapes])
        named = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        return cross_entropy(functional_call(module, named, (x,)), y)

    w = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    out: Tensor = torch.autograd.functional.hessian(at, w)
    return out


def quadratic(matrix: Tensor, start: Tensor, optimum: Tensor | None = None) -> EmpiricalLoss:
    """(w - b)^T A (w - b) / 2, b = 0 unless given."""
    task = Quadratics([matrix], [torch.zeros_like(start) if optimum is None else optimum], {"w": start}, [1])
    return EmpiricalLoss(task.model(), task.loss, [0], sizes=[1])


def spectrum(values: Sequence[float], seed: int = 0) -> tuple[Tensor, Tensor]:
    """A symmetric matrix with these eigenvalues, and its eigenvectors as columns."""
    draw = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(len(values), len(values), generator=draw, dtype=torch.float64))
    return q @ torch.diag(double(values)) @ q.T, q


def double(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_top_is_that_of_the_dense_hessian() -> None:
    module, data = mlp(), batches()
    expected, vectors = torch.linalg.eigh(dense(module, data))
    by_value = top(EmpiricalLoss(module, loss, data), 4, order="value", tolerance=0)
    torch.testing.assert_close(double(by_value.values), expected.flip(0)[:4], rtol=0, atol=1e-8)
    overlap = (by_value.vectors * vectors.T.flip(0)[:4]).sum(1).abs()
    torch.testing.assert_close(overlap, torch.ones(4).double(), rtol=0, atol=1e-8)
    assert max(by_value.residuals) < 1e-8
    assert all(vector[vector.abs().argmax()] > 0 for vector in by_value.vectors)
    by_magnitude = top(EmpiricalLoss(module, loss, data), 4, tolerance=0)
    ranked = expected[expected.abs().argsort(descending=True)][:4]
    torch.testing.assert_close(double(by_magnitude.values), ranked, rtol=0, atol=1e-8)


def test_whole_hessian_and_exact_trace() -> None:
    module, data = mlp(), batches()
    objective = EmpiricalLoss(module, loss, data)
    expected = dense(module, data)
    torch.testing.assert_close(hessian(objective), expected, rtol=0, atol=1e-12)
    exact = sum(float(objective.product(e) @ e) for e in torch.eye(67).double())
    assert exact == pytest.approx(float(expected.trace()), abs=1e-12)


@pytest.mark.sweep(every=4)
def test_hutchinson_is_within_its_error() -> None:
    module, data = mlp(), batches()
    objective, matrix = EmpiricalLoss(module, loss, data), dense(module, data)
    found = trace(objective, 200)
    assert abs(found.mean - float(matrix.trace())) < 3 * found.error
    # The variance over random signs is known: twice the squares off the diagonal.
    off = matrix - torch.diag(matrix.diag())
    assert found.error == pytest.approx(sqrt(2 * float(off.square().sum()) / 200), rel=0.2)
    assert found == trace(objective, 200)
    assert found != trace(objective, 200, seed=1)


def test_hutchinson_is_exact_on_a_diagonal() -> None:
    found = trace(quadratic(torch.diag(torch.arange(1.0, 6.0).double()), torch.ones(5).double()), 3)
    assert found == Estimate(15.0, 0.0, 3)


@pytest.mark.parametrize("size", [5, 40])
def test_known_spectrum(size: int) -> None:
    values = [9.0, -7.0, 4.0, 3.0, *[0.1 / n for n in range(1, size - 3)]]
    matrix, vectors = spectrum(values)
    objective = quadratic(matrix, torch.ones(size).double())
    assert top(objective, 3, tolerance=0).values == pytest.approx((9, -7, 4), abs=1e-10)
    found = top(objective, 3, order="value", tolerance=0)
    assert found.values == pytest.approx((9, 4, 3), abs=1e-10)
    assert float(found.vectors[1] @ vectors[:, 2]) ** 2 == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("matrix", [torch.zeros(40, 40), torch.eye(40), torch.ones(40, 40) / 40])
def test_degenerate_hessians(matrix: Tensor) -> None:
    objective = quadratic(matrix.double(), torch.ones(40).double())
    found, again = top(objective, 3, tolerance=0), top(objective, 3, tolerance=0)
    expected = torch.linalg.eigvalsh(matrix.double()).flip(0)[:3]
    torch.testing.assert_close(double(found.values), expected, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.vectors @ found.vectors.T, torch.eye(3).double(), rtol=0, atol=1e-10)
    assert torch.equal(found.vectors, again.vectors) and found.products == again.products


def test_linear_loss_has_no_curvature() -> None:
    module = nn.Linear(3, 1, bias=False).double()
    objective = EmpiricalLoss(module, lambda model, x: model(x).mean(), [torch.ones(2, 3).double()])
    assert top(objective, 1).values == (0.0,)
    assert gradient_norm(objective) == pytest.approx(sqrt(3))
    assert sharpness(objective, 0.1) == pytest.approx(0.1 * sqrt(3))


def test_sharpness_of_a_quadratic_by_hand() -> None:
    # w = (1, 1), g = (1, 4), |g| = sqrt(17): L + rho |g| + rho^2 g^T A g / (2 |g|^2), g^T A g = 1 + 64.
    objective = quadratic(torch.diag(torch.tensor([1.0, 4.0]).double()), torch.ones(2).double())
    assert objective.value() == 2.5
    assert gradient_norm(objective) == pytest.approx(sqrt(17))
    assert sharpness(objective, 0.1) == pytest.approx(0.1 * sqrt(17) + 0.01 * 65 / (2 * 17), abs=1e-10)
    assert sharpness(objective, 0) == 0
    minimum = quadratic(torch.eye(2).double(), torch.zeros(2).double())
    assert sharpness(minimum) == 0


def test_gradient_is_that_of_all_examples() -> None:
    module, data = mlp(), batches((10, 10, 7))
    whole = [tuple(torch.cat(parts) for parts in zip(*data, strict=True))]
    parts, at_once = EmpiricalLoss(module, loss, data), EmpiricalLoss(module, loss, whole)
    torch.testing.assert_close(parts.gradient(), at_once.gradient(), rtol=0, atol=1e-14)
    assert parts.value() == pytest.approx(at_once.value(), abs=1e-14)
    v = unit(torch.arange(67.0).double())
    torch.testing.assert_close(parts.product(v), at_once.product(v), rtol=0, atol=1e-14)


def test_float32_agrees_with_float64() -> None:
    module, data = mlp(dtype=torch.float32), batches(dtype=torch.float32)
    single = top(EmpiricalLoss(module, loss, data))
    exact = top(EmpiricalLoss(module, loss, data, dtype=torch.float64))
    assert single.vectors.dtype == torch.float32 and exact.vectors.dtype == torch.float64
    assert single.values == pytest.approx(exact.values, rel=1e-5)
    torch.testing.assert_close(single.vectors.double(), exact.vectors, rtol=0, atol=1e-3)


@pytest.mark.quick
def test_flatness_is_a_flat_record_of_all() -> None:
    objective = EmpiricalLoss(mlp(), loss, batches())
    found = flatness(objective, k=3, samples=5, rho=0.1)
    eigen, estimate = top(objective, 3), trace(objective, 5)
    assert found == {
        "loss": objective.value(),
        "gradient_norm": gradient_norm(objective),
        "sharpness": sharpness(objective, 0.1),
        **dict(zip(("lambda_1", "lambda_2", "lambda_3"), eigen.values, strict=True)),
        "trace": estimate.mean,
        "trace_error": estimate.error,
    }
    assert all(type(value) is float for value in found.values())
    assert flatness(objective, k=3, samples=5, rho=0.1) == found


def test_lstm_and_cnn_have_symmetric_products() -> None:
    draw = torch.Generator().manual_seed(3)
    text = (torch.randint(0, 20, (4, 6), generator=draw), torch.randint(0, 20, (4,), generator=draw))
    images = (torch.randn(4, 1, 8, 8, generator=draw), torch.randint(0, 10, (4,), generator=draw))
    for module, batch in ((CharLSTM(20), text), (SmallCNN(image=8), images)):
        objective = EmpiricalLoss(module, loss, [batch], dtype=torch.float64)
        u, v = torch.randn(2, objective.layout.size, generator=draw, dtype=torch.float64)
        assert float(u @ objective.product(v)) == pytest.approx(float(v @ objective.product(u)), rel=1e-9)
        step = 1e-5 * unit(v)
        ahead, behind = (EmpiricalLoss(module, loss, [batch], dtype=torch.float64) for _ in range(2))
        ahead.w.add_(step)
        behind.w.sub_(step)
        slope = (ahead.gradient() - behind.gradient()) / 2e-5
        torch.testing.assert_close(objective.product(unit(v)), slope, rtol=0, atol=1e-8)


@pytest.fixture(scope="module")
def curvlinops() -> ModuleType:
    """curvlinops; it imports torchvision, whose wheel lacks two operators beside a CPU build of torch."""
    if find_spec("curvlinops") is None:
        pytest.skip("curvlinops is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(ImportError):
            operators()
        import curvlinops
    out: ModuleType = curvlinops
    return out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, at its first pass forwards
def test_products_are_those_of_curvlinops(curvlinops: ModuleType) -> None:
    module, data = mlp(), batches()
    operator = curvlinops.HessianLinearOperator(
        module, nn.CrossEntropyLoss(), list(module.parameters()), data, check_deterministic=False
    )
    objective = EmpiricalLoss(module, loss, data)
    v = torch.randn(67, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(objective.product(v), operator @ v, rtol=0, atol=1e-12)
    values, _ = eigsh(operator.to_scipy(), 2, which="LM")
    assert top(objective, tolerance=0).values == pytest.approx(sorted(values, key=abs, reverse=True), abs=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(top, k=0), "top: k must be between 1 and the 67 parameters of the model, got 0"),
        (partial(top, k=68), "top: k must be between 1 and the 67 parameters of the model, got 68"),
        (partial(top, order="size"), "top: order must be one of magnitude, value, got 'size'"),
        (partial(top, tolerance=1.0), r"top: tolerance must be a fraction in \[0, 1\), got 1.0"),
        (partial(trace, samples=1), "trace: samples must be 2 or more to estimate the error, got 1"),
        (partial(sharpness, rho=-0.1), "sharpness: rho must be 0 or more and finite, got -0.1"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(EmpiricalLoss(mlp(), loss, batches()))


def test_too_few_restarts_and_diverged_models_are_told() -> None:
    matrix, _ = spectrum([1.0 + 1e-3 * n for n in range(40)])
    with pytest.raises(RuntimeError, match=r"top: \d of 2 eigenvalues were found to 0 in 1 restarts .* more restarts"):
        top(quadratic(matrix, torch.ones(40).double()), tolerance=0, restarts=1)
    diverged = mlp()
    next(diverged.parameters()).data.fill_(float("nan"))
    with pytest.raises(ValueError, match="the Hessian is not finite at these weights; has the model diverged"):
        top(EmpiricalLoss(diverged, loss, batches()))


def test_records_are_frozen() -> None:
    found = top(EmpiricalLoss(mlp(), loss, batches()), 1)
    assert isinstance(found, Eigen)
    with pytest.raises(AttributeError):
        found.products = 0  # type: ignore[misc]
