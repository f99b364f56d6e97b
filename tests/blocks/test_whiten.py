"""Damped whitening against the formula written out, and its limits."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracle.whitening import written_out
from undrift import Algorithm, Local, Simulation, make
from undrift.blocks import SAM, CommonRepresentation, Filters, Uniform, Whiten
from undrift.blocks import center as filtered
from undrift.blocks.spectral.whiten import damp, factorise, rows
from undrift.testing import Clinic, clinic

STREAM = torch.Generator().manual_seed(0)


def damp_gradient(grad: Tensor, inputs: Tensor, share: float) -> Tensor:
    return damp(grad.clone(), factorise(inputs, share))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=STREAM, dtype=torch.float64)


@pytest.mark.parametrize("share", [1e-5, 1e-3, 0.05, 1.0, 1e3])
@pytest.mark.parametrize(("count", "width"), [(1, 7), (5, 7), (7, 7), (40, 7)])
def test_the_smaller_system_gives_the_formula(count: int, width: int, share: float) -> None:
    grad, inputs = normal(3, width), normal(count, width) + 1.0
    torch.testing.assert_close(
        damp_gradient(grad, inputs, share), written_out(grad, inputs, share), rtol=1e-9, atol=1e-11
    )
    single = damp_gradient(grad.float(), inputs.float(), share)
    if share >= 1e-3:
        torch.testing.assert_close(single.double(), written_out(grad, inputs, share), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("count", "width"), [(64, 1152), (1500, 400)])
@pytest.mark.parametrize("kind", ["normal", "one mean", "rank one"])
def test_the_smallest_share_is_solved_in_single_precision(kind: str, count: int, width: int) -> None:
    inputs = normal(count, width)
    if kind != "normal":
        inputs = inputs * 1e-3 + 1.0 if kind == "one mean" else normal(count, 1) @ normal(1, width)
    grad = normal(3, width)
    found = damp_gradient(grad.float(), inputs.float(), 1e-5).double()
    expected = damp_gradient(grad, inputs, 1e-5)
    assert (found - expected).norm() < 0.02 * expected.norm()


def test_numbers_by_hand() -> None:
    # One input (3, 4) has all of the energy: its direction keeps 0.25 / (0.25 + 1) = 1/5, the other keeps everything.
    # (10, 5) = 10 (0.6, 0.8) + 5 (0.8, -0.6), so the result is 2 (0.6, 0.8) + 5 (0.8, -0.6) = (5.2, -1.4).
    one = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    grad = torch.tensor([[10.0, 5.0]], dtype=torch.float64)
    expected = torch.tensor([[5.2, -1.4]], dtype=torch.float64)
    torch.testing.assert_close(damp_gradient(grad, one, 0.25), expected)
    torch.testing.assert_close(damp_gradient(grad, one.expand(4, 2), 0.25), expected)
    # Four orthogonal inputs of one length have a quarter each: with a share of a quarter, all keep half.
    grad = normal(2, 4)
    torch.testing.assert_close(damp_gradient(grad, torch.eye(4, dtype=torch.float64), 0.25), grad / 2)


def test_the_size_of_the_inputs_does_not_matter() -> None:
    grad, inputs = normal(3, 5).float(), normal(4, 5).float()
    expected = damp_gradient(grad, inputs, 0.05)
    for size in (1e-30, 1e30):
        torch.testing.assert_close(damp_gradient(grad, inputs * size, 0.05), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(damp_gradient(grad, inputs * 0, 0.05), grad)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 3, 3),
        nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(2, 1)),
        nn.Conv2d(2, 3, 3, dilation=2, padding=2, bias=False),
    ],
    ids=str,
)
def test_patches_times_weights_are_the_outputs(layer: nn.Conv2d) -> None:
    images = normal(4, 2, 9, 8).float()
    outputs = layer(images) - (0 if layer.bias is None else layer.bias[:, None, None])
    found = (rows(images, layer, 10_000) @ layer.weight.flatten(1).T).view(4, -1, 3).transpose(1, 2)
    torch.testing.assert_close(found, outputs.flatten(2))
    assert torch.equal(rows(images[0], layer), rows(images[:1], layer))


@pytest.mark.parametrize(("patches", "side"), [(10_000, 32), (256, 16), (64, 8), (63, 7), (16, 4), (1, 1)])
def test_the_number_of_patches(patches: int, side: int) -> None:
    """Every ceil(sqrt(32 * 32 / patches))-th place of both axes, from the first corner."""
    layer, images = nn.Conv2d(1, 2, 3, padding=1), normal(2, 1, 32, 32).float()
    found, apart = rows(images, layer, patches), -(-32 // side)
    assert found.shape == (2 * len(range(0, 32, apart)) ** 2, 9)
    assert len(range(0, 32, apart)) ** 2 <= patches
    every = rows(images, layer, 10_000).view(2, 32, 32, 9)[:, ::apart, ::apart]
    assert torch.equal(found, every.reshape(-1, 9))


def test_large_images_are_read_at_a_part_of_their_places() -> None:
    layer, images = nn.Conv2d(1, 2, 3, padding=1), normal(2, 1, 32, 32).float()
    assert rows(images, layer).shape == (2 * 64, 9)
    corner = torch.nn.functional.pad(images[0, 0], (1, 1, 1, 1))[:3, :3].flatten()
    assert torch.equal(rows(images, layer)[0], corner)


class Net(nn.Module):
    """A convolution, one with groups, and two dense layers, of which one is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.groups = nn.Conv2d(4, 4, 1, groups=2)
        self.head = nn.Linear(4 * 4, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.groups(self.first(images).relu()).flatten(1))
        return logits


class Images:
    """Two clients with ten images of 4 x 4 each."""

    population = 2

    def __init__(self) -> None:
        stream = torch.Generator().manual_seed(1)
        self.images = torch.rand(2, 10, 1, 4, 4, generator=stream)
        self.labels = torch.randint(3, (2, 10), generator=stream)

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return Net()

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def examples(self, client: int) -> int:
        return 10

    def batches(self, client: int, size: int, generator: torch.Generator) -> Any:
        for i in range(0, 10, size):
            yield self.images[client, i : i + size], self.labels[client, i : i + size]


def by_hand(task: Images, share: float, lr: float, sizes: tuple[int, int], every: int, passes: int) -> Tensor:
    """A round in which a layer's gradient is damped by the inverse for the last batch whose number `every` divides."""
    ends = []
    for client in range(2):
        net: Any = task.model()
        batches = [batch for _ in range(passes) for batch in task.batches(client, 5, torch.Generator())]
        kept: list[Tensor] = []
        for step, (images, labels) in enumerate(batches):
            net.zero_grad()
            hidden = net.groups(net.first(images).relu()).flatten(1).detach()
            task.loss(net, (images, labels)).backward()
            patches = [images[i, 0, a : a + 3, b : b + 3].flatten() for i in range(5) for a in (0, 1) for b in (0, 1)]
            if step % every == 0:
                kept = [torch.stack(patches), hidden]
            for layer, inputs, size in zip((net.first, net.head), kept, sizes, strict=True):
                grad = layer.weight.grad.flatten(1).double()
                layer.weight.grad = written_out(grad, inputs.double(), share, size).float().view_as(layer.weight)
            with torch.no_grad():
                for p in net.parameters():
                    if p.grad is not None:
                        p -= lr * p.grad
        ends.append(nn.utils.parameters_to_vector(net.parameters()).detach())
    return torch.stack(ends).mean(dim=0)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("center", "sizes"), [(None, (0, 0)), ("inputs", (9, 16)), ("positions", (9, 4)), ("maps", (9, 4))]
)
def test_a_round_equals_a_loop_over_plain_tensors(center: str | None, sizes: tuple[int, int]) -> None:
    task, share, lr = Images(), 0.1, 0.5
    algorithm = Algorithm(spectral=Whiten(share, center), aggregation=Uniform())
    simulation = Simulation(algorithm, task, Local(lr=lr, epochs=1, batch_size=5))
    torch.testing.assert_close(simulation.run(1).params, by_hand(task, share, lr, sizes, 1, 1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_factors_are_kept_for_some_steps_of_a_visit(every: int) -> None:
    task, local = Images(), Local(lr=0.5, epochs=3, batch_size=5)
    algorithm = Algorithm(spectral=Whiten(0.1, "maps", every), aggregation=Uniform())
    found = Simulation(algorithm, task, local).run(1).params
    torch.testing.assert_close(found, by_hand(task, 0.1, 0.5, (9, 4), every, 3), rtol=1e-4, atol=1e-5)
    other = by_hand(task, 0.1, 0.5, (9, 4), 3 - min(every, 2), 3)
    assert (found - other).abs().max() > 1e-3


def test_one_step_is_the_default() -> None:
    assert Whiten() == Whiten(every=1, patches=64)
    assert make("whitened") == make("whitened", every=1, patches=64)
    assert make("whitened", every=5, patches=16).spectral == Whiten(0.1, "maps", 5, 16)


@pytest.mark.parametrize("every", [1, 4, 100])
def test_a_resumed_run_is_the_same_within_a_period(every: int) -> None:
    """A visit has 5 steps, so that a period that went on between visits would be in its middle here."""
    algorithm, local = Algorithm(spectral=Whiten(0.1, "maps", every)), Local(lr=0.05, batch_size=4, steps=5)
    simulation, again = (Simulation(algorithm, Clinic(), local, cohort=2, seed=3) for _ in range(2))
    stopped = simulation.run(1)
    assert torch.equal(simulation.run(2, stopped).params, again.run(3).params)
    fresh = Simulation(algorithm, Clinic(), local, cohort=2, seed=3)
    assert torch.equal(fresh.run(2, stopped).params, simulation.run(2, stopped).params)


@pytest.mark.parametrize(("center", "plain"), [(None, {}), ("maps", {"spectral": Filters(gradient=filtered("maps"))})])
def test_a_large_share_gives_the_host_or_the_filter(center: str | None, plain: dict[str, Any]) -> None:
    ends = []
    for spectral in (plain, {"spectral": Whiten(1e12, center)}):
        algorithm = Algorithm(SAM(0.1), **spectral)
        ends.append(Simulation(algorithm, Clinic(), Local(lr=0.05, epochs=1, batch_size=4)).run(2).params)
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-7)


def test_the_inputs_stay_as_they_are() -> None:
    """The means are removed from a copy: what a dense layer takes in here is the memory of the data."""

    class Flat(Images):
        def model(self) -> nn.Module:
            torch.manual_seed(0)
            return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

    task = Flat()
    before = task.images.clone()
    Simulation(Algorithm(spectral=Whiten(0.1, "maps")), task, Local(lr=0.5, epochs=2, batch_size=5)).run(1)
    assert torch.equal(task.images, before)


def test_another_block_may_read_what_a_layer_puts_out() -> None:
    """FedCR reads the output of a layer whose inputs are read here."""
    algorithm = Algorithm(objective=CommonRepresentation(3, 4, 0.01), spectral=Whiten())
    state = Simulation(algorithm, clinic(algorithm), Local(lr=0.05, epochs=1, batch_size=4)).run(2)
    assert torch.isfinite(state.params).all()
