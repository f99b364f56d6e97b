"""The loss as a function of a vector, and its surfaces."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from test_curvature import batches, loss, mlp, quadratic, spectrum
from undrift.core.model.flat_model import bind
from undrift.lens.curvature import flatness, top
from undrift.lens.landscape import EmpiricalLoss, Surface, colour_range, random_directions, surface, surfaces
from undrift.testing.tasks import Clinic


class Pair(NamedTuple):
    """A batch with names."""

    inputs: Tensor
    targets: Tensor


def clinic() -> tuple[Clinic, nn.Module, list[tuple[Tensor, Tensor, float]]]:
    """A model with running statistics in training mode, and batches of 6, 3 and 5 examples."""
    task = Clinic()
    draw = torch.Generator().manual_seed(0)
    return task, task.model(), [*task.batches(3, 6, draw), *task.batches(5, 5, draw)]


def test_model_is_left_as_it_was() -> None:
    task, module, data = clinic()
    bound = bind(module)
    module.get_submodule("body").eval()
    modes = [part.training for part in module.modules()]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    stream = torch.get_rng_state()
    objective = EmpiricalLoss(module, task.loss, data)
    flatness(objective, samples=2)
    surface(objective, *random_directions(objective), points=3)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert [part.training for part in module.modules()] == modes
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(torch.get_rng_state(), stream)
    bound.check()


def test_value_is_that_of_evaluation_mode() -> None:
    task, module, data = clinic()
    objective = EmpiricalLoss(module, task.loss, data)
    reference = task.model().eval()
    with torch.no_grad():
        expected = sum(len(batch[1]) * float(task.loss(reference, batch)) for batch in data) / 14
    assert objective.examples == 14
    assert objective.value() == pytest.approx(expected, rel=1e-6)
    next(module.parameters()).data.zero_()
    assert objective.value() == pytest.approx(expected, rel=1e-6), "the objective has a copy of its own"


def test_precision_can_be_raised() -> None:
    task, module, data = clinic()
    objective = EmpiricalLoss(module, task.loss, data, dtype=torch.float64)
    assert objective.w.dtype == objective.gradient().dtype == objective.model.buffers.dtype == torch.float64
    assert objective.value() == pytest.approx(EmpiricalLoss(module, task.loss, data).value(), rel=1e-6)
    assert next(module.parameters()).dtype == torch.float32


def test_every_shape_of_batch_is_counted_and_cast() -> None:
    (x, y), *_ = batches((4,), dtype=torch.float32)
    module = mlp(dtype=torch.float32)
    expected = EmpiricalLoss(module, loss, [(x, y)], dtype=torch.float64).value()
    kinds = [
        ([x, y], loss),
        (Pair(x, y), lambda model, batch: cross_entropy(model(batch.inputs), batch.targets)),
        ({"x": x, "y": y}, lambda model, batch: cross_entropy(model(batch["x"]), batch["y"])),
        ((x, (y, "a note")), lambda model, batch: cross_entropy(model(batch[0]), batch[1][0])),
    ]
    for batch, own in kinds:
        objective = EmpiricalLoss(module, own, [batch], dtype=torch.float64)
        assert objective.examples == 4 and objective.value() == expected


def test_only_trainable_parameters_count() -> None:
    module: Any = mlp()
    module[0].requires_grad_(False)
    objective = EmpiricalLoss(module, loss, batches())
    assert objective.layout.size == 27 and objective.gradient().shape == (27,)


def test_attention_can_be_derived_twice() -> None:
    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 12)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.inner(x).chunk(3, dim=-1)  # the examples as one text
            out: Tensor = scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])
            return out.view(len(x), 4)

    batch = (torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 4)
    objective = EmpiricalLoss(Attentive(), loss, [batch], dtype=torch.float64)
    u, v = torch.randn(2, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert float(u @ objective.product(v)) == pytest.approx(float(v @ objective.product(u)), rel=1e-9)


def test_surface_of_a_quadratic() -> None:
    values = [9.0, 4.0, *[0.1] * 30]
    matrix, _ = spectrum(values)
    objective = quadratic(matrix, torch.zeros(32).double())
    found = surface(objective, *top(objective, tolerance=0).vectors, extent=2.0, points=5)
    a, b = np.meshgrid(found.a, found.b, indexing="ij")
    np.testing.assert_allclose(found.a, [-2, -1, 0, 1, 2])
    np.testing.assert_allclose(found.loss, (9 * a**2 + 4 * b**2) / 2, atol=1e-10)
    assert found.centre == 0
    assert found.norms == pytest.approx((1, 1)) and found.cosine == pytest.approx(0, abs=1e-10)


def test_surface_is_the_loss_at_every_point() -> None:
    module, data = mlp(), batches()
    objective = EmpiricalLoss(module, loss, data)
    first, second = random_directions(objective)
    found = surface(objective, first, second, extent=0.5, points=3)
    x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    for i, a in enumerate((-0.5, 0.0, 0.5)):
        for j, b in enumerate((-0.5, 0.0, 0.5)):
            moved = mlp()
            nn.utils.vector_to_parameters(objective.w + a * first + b * second, moved.parameters())
            assert found.loss[i, j] == pytest.approx(float(cross_entropy(moved(x), y).detach()), abs=1e-12)
    assert found.centre == objective.value()
    assert found.norms == pytest.approx((float(first.norm()), float(second.norm())))
    assert found.cosine == pytest.approx(float(torch.cosine_similarity(first, second, dim=0)))
    assert np.array_equal(surface(objective, first, second, extent=0.5, points=3).loss, found.loss)


def test_filters_have_the_lengths_of_the_models() -> None:
    task, module, data = clinic()
    objective = EmpiricalLoss(module, task.loss, data)
    weights = objective.layout.named(objective.w)
    for direction in random_directions(objective):
        for name, piece in objective.layout.named(direction).items():
            if piece.dim() < 2:
                assert not piece.any()
            else:
                norms = [x.flatten(1).norm(dim=1) for x in (piece, weights[name])]
                torch.testing.assert_close(*norms)


def test_random_directions_follow_the_seed_and_the_scale() -> None:
    objective = EmpiricalLoss(mlp(), loss, batches())
    first, second = random_directions(objective)
    assert torch.equal(random_directions(objective)[0], first)
    assert not torch.equal(random_directions(objective, seed=1)[0], first)
    assert abs(float(torch.cosine_similarity(first, second, dim=0))) < 0.5
    scaled = mlp()
    for p in scaled.parameters():
        p.data.mul_(3)
    torch.testing.assert_close(random_directions(EmpiricalLoss(scaled, loss, batches()))[0], 3 * first)


def test_filter_normalisation_does_not_see_a_rescaled_network() -> None:
    """Without biases, ReLU layers times c and 1 / c are the same function; a filter-normalised surface is as well."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain: Any = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    scaled: Any = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    for factor, index in ((5.0, 0), (0.2, 2)):
        scaled[index].weight.data = plain[index].weight.data * factor
    drawn = surfaces(
        {name: EmpiricalLoss(module, loss, batches()) for name, module in (("plain", plain), ("scaled", scaled))},
        random_directions,
        points=5,
    )
    np.testing.assert_allclose(drawn["plain"].loss, drawn["scaled"].loss, atol=1e-12)
    low, high = colour_range(drawn.values())
    assert low == min(s.loss.min() for s in drawn.values()) and high == max(s.loss.max() for s in drawn.values())


def test_colours_pass_over_what_overflows() -> None:
    steps = np.array([-1.0, 0.0, 1.0])
    losses = np.array([[1.0, np.inf, 2.0], [0.5, 1.0, np.nan], [7.0, 1.0, 1.0]])
    drawn = Surface(steps, steps, losses, (1.0, 1.0), 0.0)
    assert colour_range([drawn]) == (0.5, 7.0)
    with pytest.raises(ValueError, match="colour_range: none of the 9 losses is finite; try a smaller extent"):
        colour_range([Surface(steps, steps, losses * np.nan, (1.0, 1.0), 0.0)])


def test_a_zero_direction_has_no_angle() -> None:
    objective = EmpiricalLoss(mlp(), loss, batches())
    still = torch.zeros_like(objective.w)
    found = surface(objective, still, still, points=3)
    assert found.norms == (0.0, 0.0) and found.cosine == 0.0 and np.ptp(found.loss) == 0


def test_wrong_arguments_are_refused() -> None:
    objective = EmpiricalLoss(mlp(), loss, batches())
    e = torch.ones_like(objective.w)
    draw = partial(surface, objective, e, e)
    with pytest.raises(ValueError, match="surface: extent must be positive and finite, got 0"):
        draw(extent=0)
    with pytest.raises(ValueError, match=r"surface: points must be odd and 3 or more, .* got 4"):
        draw(points=4)
    with pytest.raises(ValueError, match=r"surface: a direction must have 67 elements, got \(5,\)"):
        surface(objective, e[:5], e[:5])
    with pytest.raises(ValueError, match=r"surfaces: all models must be evaluated on the same examples, got \{'a': 27"):
        surfaces({"a": objective, "b": EmpiricalLoss(mlp(), loss, batches((4,)))}, random_directions)
    with pytest.raises(ValueError, match="random_directions: no tensor of the model has two axes"):
        random_directions(quadratic(torch.eye(3).double(), torch.ones(3).double()))


@pytest.mark.parametrize("sizes", [[], [3], [10, 0, 7]])
def test_wrong_sizes_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="EmpiricalLoss: every batch must have one example or more, got 3 batches of"):
        EmpiricalLoss(mlp(), loss, batches(), sizes=sizes)


def test_batches_without_a_length_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"a batch must begin with a tensor whose length is its number of examples, got int; or give"
    ):
        EmpiricalLoss(mlp(), loss, [0])
    with pytest.raises(ValueError, match="got 0 batches"):
        EmpiricalLoss(mlp(), loss, [])
