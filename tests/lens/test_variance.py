"""Length and variance of gradients: the formulas by brute force, unbiased over every order, filters, no trace."""

from itertools import combinations, permutations, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from undrift.algorithms import fedavg
from undrift.blocks.spectral import Filter, clip_coordinates, gaussian, high_pass, low_pass, moving_average, random_stop
from undrift.core.model.flat_model import Layout, bind
from undrift.core.records.types import Local
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.round.simulation import Simulation
from undrift.lens import HeterogeneityStream, client_vectors, heterogeneity

LAYOUT = Layout(("a", "b"), ((6, 7), (5,)))
SIZES = (23, 10, 4, 1)  # examples of the clients: batches of 5 leave a short one, two full ones, and less than one


def single(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> list[Tensor]:
    """The gradient of every example of every client."""
    draw = torch.Generator().manual_seed(seed)
    common = torch.randn(LAYOUT.size, generator=draw, dtype=torch.float64)
    own = [common + torch.randn(LAYOUT.size, generator=draw, dtype=torch.float64) for _ in sizes]
    return [
        g + 2 * torch.randn(n, LAYOUT.size, generator=draw, dtype=torch.float64)
        for g, n in zip(own, sizes, strict=True)
    ]


def batches(examples: Tensor, size: int, count: int | None = None) -> list[tuple[Tensor, int]]:
    return [(part.mean(dim=0), len(part)) for part in examples.split(size)[:count]]


def square(x: Tensor) -> float:
    return float(x @ x)


def streamed(clients: list[Tensor], size: int = 5, count: int | None = None, **given: Any) -> HeterogeneityStream:
    stream = HeterogeneityStream(LAYOUT, size, **given)
    for k, examples in enumerate(clients):
        stream.add(k, batches(examples, size, count), len(examples))
    return stream


def exact(clients: list[Tensor], size: int, weights: list[float]) -> list[float]:
    """The definitions, with the expectation over batches as a mean over all subsets."""
    means = [x.mean(dim=0) for x in clients]
    whole = sum(p * g for p, g in zip(weights, means, strict=True))
    noise = []
    for x, g in zip(clients, means, strict=True):
        subsets = list(combinations(range(len(x)), min(size, len(x))))
        noise.append(sum(square(x[list(chosen)].mean(dim=0) - g) for chosen in subsets) / len(subsets))
    assert isinstance(whole, Tensor)
    between = sum(p * square(g - whole) for p, g in zip(weights, means, strict=True))
    return [square(whole), between, sum(p * v for p, v in zip(weights, noise, strict=True))]


def numbers(stream: HeterogeneityStream, part: str = "whole") -> list[float]:
    found = stream.result()[part]
    return [found.gradient, found.between, found.within]


@pytest.mark.parametrize("uniform", [False, True])
def test_batches_of_one_example_give_the_definitions(uniform: bool) -> None:
    clients = single()
    weights = [1 / 4] * 4 if uniform else [len(x) / sum(SIZES) for x in clients]
    assert numbers(streamed(clients, 1, uniform=uniform)) == pytest.approx(exact(clients, 1, weights), rel=1e-12)


def test_they_add_up_to_the_squared_length_of_a_batch_s_gradient() -> None:
    """Exactly, if all batches have the same size."""
    clients = single((20, 10))
    lengths = [sum(square(g) for g, _ in batches(x, 5)) / len(batches(x, 5)) for x in clients]
    assert sum(numbers(streamed(clients))) == pytest.approx((20 * lengths[0] + 10 * lengths[1]) / 30)


def test_unbiased_over_every_order_with_a_short_last_batch() -> None:
    """Five examples in batches of 2, 2 and 1: the mean over all orders is the variance over all pairs."""
    (examples,) = single((5,))
    found = [numbers(streamed([examples[list(order)]], 2)) for order in permutations(range(5))]
    assert torch.tensor(found).double().mean(dim=0) == pytest.approx(exact([examples], 2, [1.0]), rel=1e-6, abs=1e-9)


def test_unbiased_from_some_of_the_batches() -> None:
    """Two of four examples each: the plain scatter of noisy gradients is too large, the estimate is not."""
    clients, weights = single((4, 4)), [0.5, 0.5]
    estimates, plain = [], []
    for orders in product(permutations(range(4)), repeat=2):
        chosen = [x[list(order)] for x, order in zip(clients, orders, strict=True)]
        estimates.append(numbers(streamed(chosen, 1, 2)))
        noisy = [x[:2].mean(dim=0) for x in chosen]
        plain.append(square(noisy[0] - noisy[1]) / 4)
    truth = exact(clients, 1, weights)
    means = torch.tensor(estimates, dtype=torch.float64).mean(dim=0)
    assert means.tolist() == pytest.approx(truth, rel=1e-9)
    assert sum(plain) / len(plain) > 1.2 * truth[1]


@pytest.mark.parametrize("filter", [high_pass(0.3), low_pass(0.3), gaussian(0.4), moving_average(0.4)], ids=repr)
def test_linear_filters_commute_with_means(filter: Filter) -> None:
    """Filtering every batch's gradient equals filtering every example's, and the mean of means."""
    clients = single()
    found = streamed(clients, filter=filter)
    after = [torch.stack([filter(g, LAYOUT) for g in x]) for x in clients]
    rest = [x - y for x, y in zip(clients, after, strict=True)]
    for part, expected in (("whole", clients), ("kept", after), ("removed", rest)):
        assert numbers(found, part) == pytest.approx(numbers(streamed(expected)), rel=1e-9)
    mean = torch.cat(clients).mean(dim=0)
    assert found.result()["kept"].gradient == pytest.approx(square(filter(mean, LAYOUT)))
    assert found.result()["removed"].gradient == pytest.approx(square(mean - filter(mean, LAYOUT)))


@pytest.mark.quick
def test_a_projection_splits_every_quantity() -> None:
    found = streamed(single(), filter=high_pass(0.3))
    parts = [numbers(found, part) for part in ("kept", "removed")]
    assert [a + b for a, b in zip(*parts, strict=True)] == pytest.approx(numbers(found))


def test_other_filters_act_on_every_batch() -> None:
    clients, filter = single(), clip_coordinates(1.0)
    stream = HeterogeneityStream(LAYOUT, 5)
    for k, x in enumerate(clients):
        stream.add(k, [(filter(g, LAYOUT), n) for g, n in batches(x, 5)], len(x))
    assert numbers(streamed(clients, filter=filter), "kept") == pytest.approx(numbers(stream))
    drawn = [numbers(streamed(clients, filter=random_stop(0.3), seed=seed), "kept") for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_streams_merge_and_hold_a_few_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.lens.variance.CHUNK", 10)
    clients, given = single(), dict[str, Any](filter=high_pass(0.3))
    whole, merged = streamed(clients, **given), HeterogeneityStream(LAYOUT, 5, **given)
    for k in (2, 0, 3, 1):
        part = HeterogeneityStream(LAYOUT, 5, **given)
        part.add(k, batches(clients[k], 5), len(clients[k]))
        merged.merge(part)
    merged.merge(HeterogeneityStream(LAYOUT, 5, **given))
    for name in ("whole", "kept", "removed"):
        assert numbers(merged, name) == pytest.approx(numbers(whole, name))
    assert len(whole._means.mean) == 2 and merged.clients == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="client 0 is in both"):
        whole.merge(merged)
    with pytest.raises(ValueError, match="same arguments"):
        whole.merge(streamed(clients))


def test_dissimilarity_and_what_is_refused() -> None:
    same = torch.ones(4, LAYOUT.size)
    found = streamed([same, same]).result()["whole"]
    assert found.as_dict() == {"gradient": LAYOUT.size, "between": 0, "within": 0, "dissimilarity": 1}
    assert streamed([same, -same]).result()["whole"].dissimilarity != found.dissimilarity  # nan: no gradient is left
    stream = HeterogeneityStream(LAYOUT, 5)
    with pytest.raises(ValueError, match="no client has been added yet"):
        stream.result()
    with pytest.raises(ValueError, match="a variance needs two batches or more"):
        stream.add(0, batches(torch.ones(20, LAYOUT.size), 5, 1), 20)
    with pytest.raises(ValueError, match="must have 1 to 3 examples, its own, got 4"):
        stream.add(0, batches(same, 5), 3)
    stream.add(0, batches(same, 5), 4)
    with pytest.raises(ValueError, match="client 0 was added before"):
        stream.add(0, batches(same, 5), 4)
    with pytest.raises(ValueError, match="batch_size must be 1 or more"):
        HeterogeneityStream(LAYOUT, 0)


# At the model of a state


def simulation(kind: torch.dtype = torch.float64) -> Simulation:
    draw = torch.Generator().manual_seed(3)
    inputs, targets = torch.randn(38, 6, generator=draw).to(kind), torch.arange(38) % 4
    places = torch.arange(38).split(SIZES)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).to(kind)

    return Simulation(fedavg(), TensorTask(make, inputs, targets, places), Local(batch_size=5, lr=0.1))


def test_equals_brute_force_over_examples() -> None:
    """Gradients of single examples by autograd, in double precision."""
    run = simulation()
    state, bound = run.run(2), bind(run.task.model())
    bound.w.copy_(state.params)
    assert isinstance(run.task, TensorTask)
    examples = []
    for own in run.task.clients:
        one = [(run.task.inputs[i : i + 1], run.task.targets[i : i + 1]) for i in own.tolist()]
        examples.append(torch.stack([bound.gradient(run.task.loss(bound.module, batch)) for batch in one]))
    filter = high_pass(0.2)
    found = heterogeneity(run, state, range(4), filter=filter, samples=None)
    weights = [n / sum(SIZES) for n in SIZES]
    kept = [torch.stack([filter(g, bound.layout) for g in x]) for x in examples]
    for part, clients in (("whole", examples), ("kept", kept)):
        gradient, between, _ = exact(clients, 1, weights)
        assert (found[part].gradient, found[part].between) == pytest.approx((gradient, between), rel=1e-9)
    variance = [float(x.var(dim=0).sum()) * (1 / 5 - 1 / len(x)) if len(x) > 5 else 0.0 for x in examples]
    expected = sum(p * v for p, v in zip(weights, variance, strict=True))
    assert found["whole"].within == pytest.approx(expected, rel=0.3)  # that of one order; unbiased by the tests above
    rows = client_vectors(run, state, range(4), samples=None)
    mean = sum(p * g for p, g in zip(weights, rows, strict=True))
    assert isinstance(mean, Tensor) and found["whole"].gradient == pytest.approx(square(mean), rel=1e-9)


def test_no_trace_and_a_few_batches() -> None:
    run = simulation(torch.float32)
    state, model = run.start(), bind(run.task.model().eval())
    before = [state.params.clone(), model.w.clone(), torch.get_rng_state()]
    found = heterogeneity(run, state, [0, 1], samples=1, model=model)  # two batches at least
    assert set(found) == {"whole"} and found["whole"].clients == 2 and found["whole"].within > 0
    after = [state.params, model.w, torch.get_rng_state()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    model.check()
    assert not model.module.training
    assert heterogeneity(run, state, [0, 1], samples=10) == found
    exactly = heterogeneity(run, state, [0, 1], samples=None, uniform=True)["whole"]
    assert exactly != found["whole"] and exactly.between > 0
    with pytest.raises(ValueError, match="clients must be some that have examples"):
        heterogeneity(run, state, [])
