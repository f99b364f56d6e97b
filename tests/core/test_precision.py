"""Mixed precision: float32 everywhere but in the passes."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from support.own_dtypes import Texts
from undrift import Local, Simulation, make
from undrift.core.model.flat_model import Bound, bind
from undrift.core.model.oracle import Oracle
from undrift.core.model.precision import INTERVAL, LossScale, autocast, full
from undrift.core.model.random import generator
from undrift.core.server.wire import fingerprint
from undrift.testing import Clinic

INPUTS, LABELS = torch.randn(12, 6, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
LOCAL = Local(lr=0.05, batch_size=4)


def bound(dtype: torch.dtype = torch.float32) -> Bound:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return bind(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(dtype))


def oracle(model: Bound, precision: Any = "fp32", factor: float = 1.0) -> Oracle:
    dtype = model.parameters[0].dtype

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return factor * cross_entropy(model.module(batch[0].to(dtype)).float(), batch[1])

    return Oracle(model, loss, partial(generator, 0, 0, 0), precision)


def losses(model: Bound, asked: Oracle, steps: int = 15) -> list[float]:
    for step in range(steps):
        asked.next(step, (INPUTS, LABELS))
        model.w.sub_(asked.allowed(asked.gradient()), alpha=0.5)
    return [float(x) for x in asked.losses]


def test_the_cache_of_an_autocast_around_a_run_stalls_it_and_ours_does_not() -> None:
    model = bound()
    stalled = []
    with torch.autocast("cpu", dtype=torch.bfloat16):  # its cache keeps the first step's weights
        for _ in range(15):
            loss = cross_entropy(model.module(INPUTS), LABELS)
            model.w.sub_(model.gradient(loss), alpha=0.5)
            stalled.append(float(loss.detach()))
    assert len(set(stalled)) == 1
    plain, model = losses(*[(m := bound()), oracle(m)]), bound()  # type: ignore[arg-type]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        around = losses(model, oracle(model))
        mixed = losses(*[(m := bound()), oracle(m, "bf16")])  # type: ignore[arg-type]
    assert around == plain  # the setting decides, not a context that workers elsewhere do not have
    assert mixed != plain and mixed[-1] < 0.7 * mixed[0] and abs(mixed[-1] - plain[-1]) < 0.03
    assert torch.is_autocast_cache_enabled()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_gradients_are_float32_and_close(precision: Any) -> None:
    full_model, model = bound(), bound()
    exact = oracle(full_model)
    low = oracle(model, precision)
    for each in (exact, low):
        each.next(0, (INPUTS, LABELS))
        each.tap("0")
    g, h = exact.gradient().clone(), low.gradient()
    assert h.dtype == torch.float32 and 0 < (g - h).norm() < 0.02 * g.norm()
    assert low.seen["0"].dtype == torch.float32  # what penalties compute with
    assert low.gradient_at(model.w, (INPUTS, LABELS)).dtype == torch.float32
    assert float(low.forward_at(model.w, (INPUTS, LABELS))) == pytest.approx(float(exact.losses[0]), rel=0.02)


@pytest.mark.quick
def test_an_overflow_is_skipped_and_halves_the_scale() -> None:
    model = bound()
    asked = oracle(model, "fp16", factor=2.0**24)
    assert asked.scale is not None and float(asked.scale.scale) == 2**10
    before = model.w.clone()
    asked.next(0, (INPUTS, LABELS))
    gradient = asked.gradient()
    assert not gradient.any() and float(asked.scale.scale) == 2**9
    assert not asked.allowed(torch.ones_like(gradient)).any()  # nor does a correction or a decay move the model
    model.w.sub_(asked.allowed(gradient))
    assert torch.equal(model.w, before) and int(asked.scale.skipped) == 1
    asked.next(1, (INPUTS, LABELS))
    assert bool(asked.scale.finite)


def test_the_scale_by_hand() -> None:
    scale = LossScale(torch.device("cpu"))
    assert scale.unscale(torch.tensor([1024.0, -2048.0])).tolist() == [1.0, -2.0]
    assert float(scale.scale) == 2**10  # 2 times it is 2^11, and twice that would reach the aim of 2^12
    small = LossScale(torch.device("cpu"))
    small.unscale(torch.tensor([1.0]))
    assert float(small.scale) == 2**21  # the gradient was 2^-10: now its largest entry is 2^11
    for _ in range(INTERVAL - 1):
        small.unscale(torch.tensor([1.0]))
    assert float(small.scale) == 2**22
    small.unscale(torch.tensor([float("nan")]))
    small.unscale(torch.tensor([float("inf"), 1.0]))
    assert float(small.scale) == 2**20 and int(small.skipped) == 2 and not bool(small.finite)
    small.begin()
    assert bool(small.finite)


def test_float16_keeps_small_gradients() -> None:
    exact, low, naive = (bound() for _ in range(3))
    pairs = [(exact, oracle(exact, factor=1e-6)), (low, oracle(low, "fp16", factor=1e-6))]
    for _, each in pairs:
        each.next(0, (INPUTS, LABELS))
        each.gradient()
        each.next(1, (INPUTS, LABELS))
    g, h = (each.gradient().clone() for _, each in pairs)
    with autocast("fp16", torch.device("cpu")):
        loss = 1e-6 * cross_entropy(naive.module(INPUTS), LABELS)
    assert (g - h).norm() < 0.02 * g.norm() < (g - naive.gradient(loss)).norm()


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.4), (torch.float16, 0.8)])
def test_a_model_in_low_precision_trains_with_float32_masters(dtype: torch.dtype, most: float) -> None:
    model = bound(dtype)
    start, asked = model.w.clone(), oracle(model)
    for step in range(3):
        asked.next(step, (INPUTS, LABELS))
        model.w.sub_(asked.allowed(asked.gradient()), alpha=1e-3)
    asked.release()
    own = torch.cat([p.detach().reshape(-1) for p in model.parameters])
    assert model.w.dtype == torch.float32 and own.dtype == dtype and torch.equal(own, model.w.to(dtype))
    alive = asked.gradient_at(model.w, (INPUTS, LABELS)) != 0
    assert float((model.w != start)[alive].float().mean()) > 0.95
    assert float((own != start.to(dtype))[alive].float().mean()) < most  # fewer show in the copies


def test_most_coordinates_of_a_bfloat16_model_move_in_a_round() -> None:
    simulation = Simulation("fedavg", Texts(), Local(lr=1e-3, batch_size=4))
    start = simulation.start()
    moved = simulation.run(1).params != start.params
    assert float(moved.float().mean()) > 0.95


@pytest.mark.parametrize("method", ["fedsam", "moon", "scaffold"])
def test_methods_stay_float32(method: str) -> None:
    states = [Simulation(make(method), Clinic(), replace(LOCAL, precision=x)).run(2) for x in ("fp32", "bf16", "fp16")]
    start = Simulation(make(method), Clinic(), LOCAL).start()
    moved = float((states[0].params - start.params).norm())
    for state in states[1:]:
        assert state.params.dtype == start.params.dtype
        assert float((state.params - states[0].params).norm()) < 0.1 * moved


def test_the_offset_of_sam_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, noted = Oracle.gradient, []

    def noting(self: Oracle, offset: Tensor | None = None) -> Tensor:
        noted.append(offset)
        return asked(self, offset)

    monkeypatch.setattr(Oracle, "gradient", noting)
    for precision in ("bf16", "fp16"):
        Simulation(make("fedfft-d"), Texts(), replace(LOCAL, precision=precision), cohort=1).run(1)
    offsets = [offset for offset in noted if offset is not None]
    assert offsets and all(offset.dtype == torch.float32 and bool(offset.any()) for offset in offsets)


def test_the_precision_is_checked_and_is_deterministic() -> None:
    with pytest.raises(ValueError, match="Local: precision: input should be 'fp32', 'bf16' or 'fp16', got 'fp8'"):
        Local(precision="fp8")  # type: ignore[arg-type]
    hashes = {fingerprint(Simulation("fedavg", Texts(), replace(LOCAL, precision="fp16")).run(1)) for _ in range(2)}
    assert len(hashes) == 1
    assert full(torch.ones(1, dtype=torch.float64)).dtype == torch.float64
