"""Local optimizers by themselves: torch's own, their limits, where moments are between rounds, and those of users."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.rounds import close, part_of, path, watch
from undrift import Algorithm, Local, TensorTask
from undrift.blocks import LocalAdam, LocalAdamW, LocalMuon, LocalSGD, Tuned
from undrift.blocks.local_optimizer.muon import orthogonal
from undrift.core import LocalOptimizer, Step, Vector, cost
from undrift.engine.round.simulation import Simulation
from undrift.testing import ContractError, Quadratics, check_block

BOWL = Quadratics.random(clients=1, sizes=(7,))
BOWLS = Quadratics.random(clients=3, sizes=(3, 5, 2))
LOCAL = Local(lr=0.05, weight_decay=0.1, epochs=1, batch_size=1)
TORCH: dict[str, tuple[LocalOptimizer[Any, Any, Any, Any, Any], Callable[..., torch.optim.Optimizer]]] = {
    "momentum": (LocalSGD(0.9), lambda p, **k: torch.optim.SGD(p, momentum=0.9, **k)),
    "nesterov": (LocalSGD(0.7, True), lambda p, **k: torch.optim.SGD(p, momentum=0.7, nesterov=True, **k)),
    "adam": (LocalAdam(), lambda p, **k: torch.optim.Adam(p, **k)),
    "adamw": (LocalAdamW(), lambda p, **k: torch.optim.AdamW(p, **k)),
    "adamw of other betas": (
        LocalAdamW(0.5, 0.9, 1e-4),
        lambda p, **k: torch.optim.AdamW(p, betas=(0.5, 0.9), eps=1e-4, **k),
    ),
}


def run(algorithm: Algorithm, task: Quadratics, rounds: int, local: Local = LOCAL) -> Tensor:
    return path(algorithm, task, local, rounds)


def descended(
    task: Quadratics, client: int, w: Tensor, steps: int, optimizer: Any, p: nn.Parameter, rates: list[float]
) -> Tensor:
    """The model after some steps of an optimizer of torch on one client's loss."""
    p.data.copy_(w)
    for k in range(steps):
        p.grad = task.curvatures[client] @ (p.detach() - task.optima[client])
        for group in optimizer.param_groups:
            group["lr"] = rates[k]
        optimizer.step()
    return p.detach().clone()


def start(task: Quadratics) -> Tensor:
    return torch.cat([x.reshape(-1) for x in task.start.values()])


@pytest.mark.parametrize("name", TORCH)
def test_a_visit_is_that_of_torch(name: str) -> None:
    block, make = TORCH[name]
    p = nn.Parameter(start(BOWL))
    optimizer = make([p], lr=0.05, weight_decay=0.1)
    expected = descended(BOWL, 0, start(BOWL), 7, optimizer, p, [0.05] * 7)
    close(run(Algorithm(local_optimizer=block), BOWL, 1)[-1], expected, 1e-12)


@pytest.mark.parametrize("name", TORCH)
def test_a_schedule_over_steps_changes_torch_s_rate(name: str) -> None:
    block, make = TORCH[name]
    p = nn.Parameter(start(BOWL))
    rates = [0.05 * x for x in (0.5, 1.0, 1.0, 1.0, 0.1, 0.1, 0.01)]  # two steps of warm-up, then a tenth every two
    expected = descended(BOWL, 0, start(BOWL), 7, make([p], lr=1.0, weight_decay=0.1), p, rates)
    local = replace(LOCAL, step_schedule="warmup(2) + step(every=2)")
    close(run(Algorithm(local_optimizer=block), BOWL, 1, local)[-1], expected, 1e-12)


@pytest.mark.parametrize("moments", ["reset", "keep"])
@pytest.mark.parametrize("name", TORCH)
def test_moments_kept_and_reset(name: str, moments: str) -> None:
    """A client's own optimizer of torch lives for one round, or for all of them."""
    block, make = TORCH[name]
    found = run(Algorithm(local_optimizer=replace(block, moments=moments)), BOWL, 3)  # type: ignore[call-arg]
    w, p = start(BOWL), nn.Parameter(start(BOWL))
    optimizer = make([p], lr=0.05, weight_decay=0.1)
    for t in range(3):
        if moments == "reset" and t:
            optimizer = make([p], lr=0.05, weight_decay=0.1)
        w = descended(BOWL, 0, w, 7, optimizer, p, [0.05] * 7)
        close(found[t], w, 1e-12)


def test_a_client_s_moments_are_its_own() -> None:
    block = LocalAdamW(0.8, 0.95, moments="keep")
    found = run(Algorithm(local_optimizer=block), BOWLS, 2)
    w, held = start(BOWLS), []
    for _ in BOWLS.sizes:
        p = nn.Parameter(w.clone())
        held.append((p, torch.optim.AdamW([p], betas=(0.8, 0.95), weight_decay=0.1)))
    for t in range(2):
        pairs = zip(BOWLS.sizes, held, strict=True)
        ends = [descended(BOWLS, i, w, n, o, p, [0.05] * n) for i, (n, (p, o)) in enumerate(pairs)]
        w = sum(n * end for n, end in zip(BOWLS.sizes, ends, strict=True)) / sum(BOWLS.sizes)  # type: ignore[assignment]
        close(found[t], w, 1e-12)


@pytest.mark.parametrize("decoupled", [False, True])
def test_moments_averaged(decoupled: bool) -> None:
    """Every client goes on from the mean m, v and weights 1 - beta^t of the last round, by hand."""
    block = (LocalAdamW if decoupled else LocalAdam)(0.8, 0.95, 1e-6, "average")
    frames = watch(Algorithm(local_optimizer=block), BOWLS, LOCAL, 2)
    w = start(BOWLS)
    m, v, c1, c2 = torch.zeros_like(w), torch.zeros_like(w), 0.0, 0.0
    for frame in frames:
        ends, moments = [], []
        for i, steps in enumerate(BOWLS.sizes):
            x, own = w.clone(), list[Any]([m.clone(), v.clone(), c1, c2])
            for _ in range(steps):
                g = BOWLS.curvatures[i] @ (x - BOWLS.optima[i]) + (0 if decoupled else 0.1) * x
                own = [a * b + (1 - b) * c for a, b, c in zip(own, (0.8, 0.95) * 2, (g, g * g, 1.0, 1.0), strict=True)]  # type: ignore[operator]
                step = (own[0] / own[2]) / ((own[1] / own[3]) ** 0.5 + 1e-6)
                x = x - 0.05 * (step + (0.1 if decoupled else 0) * x)
            ends.append(x)
            moments.append(own)
        m, v, c1, c2 = (sum(column) / 3 for column in zip(*moments, strict=True))
        w = sum(n * end for n, end in zip(BOWLS.sizes, ends, strict=True)) / sum(BOWLS.sizes)  # type: ignore[assignment]
        close(frame.w, w, 1e-12)
        kept = part_of(frame.after, "local_optimizer")
        close(kept.m, m, 1e-12)
        close(kept.v, v, 1e-12)
        assert (kept.m_weight, kept.v_weight) == pytest.approx((c1, c2), abs=1e-15)
    assert part_of(frames[0].after, "local_optimizer").m_weight == pytest.approx(sum(1 - 0.8**n for n in (3, 5, 2)) / 3)


def test_buffers_averaged() -> None:
    frames = watch(Algorithm(local_optimizer=LocalSGD(0.6, moments="average")), BOWLS, LOCAL, 2)
    w, b = start(BOWLS), torch.zeros(40, dtype=torch.float64)
    for frame in frames:
        ends, buffers = [], []
        for i, steps in enumerate(BOWLS.sizes):
            x, own = w.clone(), b.clone()
            for _ in range(steps):
                own = 0.6 * own + BOWLS.curvatures[i] @ (x - BOWLS.optima[i]) + 0.1 * x
                x = x - 0.05 * own
            ends.append(x)
            buffers.append(own)
        b, w = sum(buffers) / 3, sum(n * end for n, end in zip(BOWLS.sizes, ends, strict=True)) / sum(BOWLS.sizes)  # type: ignore[assignment]
        close(frame.w, w, 1e-12)


def test_without_momentum_it_is_sgd_to_the_bit() -> None:
    expected = run(Algorithm(), BOWLS, 3)
    for moments in ("reset", "keep", "average"):
        for nesterov in (False, True):
            block = LocalSGD(0.0, nesterov, moments)
            assert block.plain and torch.equal(run(Algorithm(local_optimizer=block), BOWLS, 3), expected)


def test_adam_without_memory_goes_along_the_sign() -> None:
    """With both betas 0, m = g and v = g^2: a step of lr g / (|g| + eps)."""
    one = Quadratics.scalar((2.0,), (1.0,), 4.0, (2,))
    found = run(Algorithm(local_optimizer=LocalAdam(0.0, 0.0, 0.5)), one, 1, Local(lr=0.1, batch_size=1))
    first = 4 - 0.1 * 6 / 6.5  # the gradient 2 (4 - 1) = 6
    g = 2 * (first - 1)
    close(found[-1], first - 0.1 * g / (g + 0.5), 1e-15)


def test_a_large_eps_is_sgd() -> None:
    big = 1e7
    found = run(
        Algorithm(local_optimizer=LocalAdamW(0.0, 0.9, big)), BOWLS, 2, replace(LOCAL, lr=0.05 * big, weight_decay=0)
    )
    close(found, run(Algorithm(), BOWLS, 2, replace(LOCAL, weight_decay=0.0)), 1e-7)


@pytest.mark.quick
def test_muon_drives_singular_values_towards_one() -> None:
    """Newton-Schulz acts on the singular values alone: s <- a s + b s^3 + c s^5, from s over the Frobenius norm."""
    for shape in ((6, 9), (9, 6)):
        matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        u, s, v = torch.linalg.svd(matrix, full_matrices=False)
        s = s / s.norm()
        for _ in range(5):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        close(orthogonal(matrix, 5), u @ torch.diag(s) @ v, 1e-12)
    assert torch.equal(orthogonal(torch.zeros(3, 2), 5), torch.zeros(3, 2))


def test_muon_is_torch_s_for_matrices_and_adamw_for_the_rest() -> None:
    """torch's takes bfloat16 for the iteration, ours the model's float32: equal up to bfloat16's rounding."""
    draw = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(12, 5, generator=draw), torch.randn(12, 4, generator=draw)

    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))

    task = TensorTask(make, inputs, targets, [torch.arange(12)], nn.functional.mse_loss)
    model = task.model()
    weights = [p for p in model.parameters() if p.dim() == 2]
    biases = [p for p in model.parameters() if p.dim() == 1]
    muon = torch.optim.Muon(weights, lr=0.01, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(biases, lr=0.01, weight_decay=0.1, betas=(0.9, 0.95))
    for _ in range(6):
        model.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        muon.step()
        adamw.step()
    local = Local(lr=0.01, weight_decay=0.1, epochs=6, batch_size=12)
    simulation = Simulation(Algorithm(local_optimizer=LocalMuon(0.9)), task, local)
    moved = simulation.module(simulation.run(1))
    for (name, found), expected, first in zip(
        moved.named_parameters(), model.parameters(), task.model().parameters(), strict=True
    ):
        far = torch.linalg.vector_norm(expected - first)
        assert torch.linalg.vector_norm(found - expected) < 0.02 * far, name


def test_clipping_acts_before_the_moments_and_decay_is_not_clipped() -> None:
    """One step of Adam from zero moments does not see the length of g; one of momentum does."""
    one = Quadratics.scalar((2.0,), (0.0,), 4.0, (1,))
    local = Local(lr=0.1, batch_size=1, clip=1.0, weight_decay=0.5)
    close(run(Algorithm(local_optimizer=LocalSGD(0.9)), one, 1, local), 4 - 0.1 * (1 + 0.5 * 4))
    close(run(Algorithm(local_optimizer=LocalAdamW(eps=1.0)), one, 1, local), 4 - 0.1 * (1 / (1 + 1) + 0.5 * 4))
    close(run(Algorithm(local_optimizer=LocalAdam(eps=1.0)), one, 1, local), 4 - 0.1 * 3 / (3 + 1))


def test_costs_follow_from_where_the_moments_are() -> None:
    rows = {m: cost(Algorithm(local_optimizer=LocalAdamW(moments=m))) for m in ("reset", "keep", "average")}
    assert [(c.down, c.up, c.client_state, c.server_state) for c in rows.values()] == [
        (1, 1, 0, 1),
        (1, 1, 2, 1),
        (3, 3, 0, 3),
    ]
    assert rows["reset"].stateless and not rows["keep"].stateless and rows["average"].stateless


@pytest.mark.parametrize("moments", ["reset", "keep", "average"])
def test_tuning_takes_the_optimizer_with_new_moments(moments: str) -> None:
    algorithm = Algorithm(local_optimizer=LocalAdamW(0.8, 0.95, moments=moments), personalization=Tuned(2, "all"))
    simulation = Simulation(algorithm, BOWL, LOCAL)
    state = simulation.run(2)
    p = nn.Parameter(state.params.clone())
    optimizer = torch.optim.AdamW([p], betas=(0.8, 0.95), weight_decay=0.1)
    expected = descended(BOWL, 0, state.params, 14, optimizer, p, [0.05] * 14)
    simulation.personal(state, 0)
    close(simulation.worker.model.w, expected, 1e-12)


@dataclass(frozen=True)
class Sign(LocalOptimizer):
    """The sign of the gradient."""

    def adjust(self, grad: Vector, state: None, step: Step) -> Vector:
        return torch.sign(grad)


@dataclass(frozen=True)
class Liar(Sign):
    """Says it is plain SGD."""

    plain = True


@dataclass(frozen=True)
class Lagging(LocalOptimizer[None, None, None, None, list[Tensor]]):
    """Goes along the gradient of the step before, which it does not clone."""

    def begin(self, sent: None, kept: None, start: Any) -> list[Tensor]:
        return [torch.zeros_like(start.w0)]

    def adjust(self, grad: Vector, state: list[Tensor], step: Step) -> Vector:
        state.append(grad)
        return state.pop(0)


@pytest.mark.sweep(every=2)
def test_users_write_their_own() -> None:
    check_block(Sign())
    with pytest.raises(ContractError, match=r"Liar.plain is true, but its steps are not lr times the gradient"):
        check_block(Liar())
    with pytest.raises(ContractError, match="local_optimizer=Lagging keeps a gradient or a direction"):
        check_block(Lagging())
    with pytest.raises(TypeError, match="local_optimizer takes a LocalOptimizer, got Tuned"):
        Algorithm(local_optimizer=Tuned(1))  # type: ignore[arg-type]
