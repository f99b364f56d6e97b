"""Many small clients at once: the same result as one after the other, and the same bits in any group and order."""

from typing import Any

import pytest
import torch
from torch import Generator, nn
from torch.nn.functional import cross_entropy, mse_loss

from undrift.algorithms import make
from undrift.compose.build import make as compose
from undrift.core.client.vectorised import check_together
from undrift.core.local.settings import Local
from undrift.core.records.rejection import Reason
from undrift.core.records.types import ServerState
from undrift.core.server.step import send
from undrift.core.tasks.example_losses import example_losses
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.round.simulation import Simulation
from undrift.engine.worker.job import Job
from undrift.engine.worker.worker import Worker

SIZES = (7, 40, 23, 12, 10, 33, 5)
SETTINGS: dict[str, Any] = {"lr": 0.1, "batch_size": 10, "epochs": 2, "weight_decay": 1e-3, "clip": 1.0}


def network() -> nn.Module:
    """A small network."""
    return nn.Sequential(nn.Linear(12, 9), nn.Sigmoid(), nn.Linear(9, 4))


def convolutions() -> nn.Module:
    """A small network with a convolution and a normalisation."""
    body = (nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(nn.Unflatten(1, (1, 6, 6)), *body, nn.Flatten(), nn.Linear(12, 4))


def task(make: Any = network, width: Any = 12, **options: Any) -> TensorTask:
    """Clients of unequal sizes."""
    draw = Generator().manual_seed(1)
    inputs = torch.randn(sum(SIZES), width, generator=draw)
    targets = torch.randint(0, 4, (sum(SIZES),), generator=draw)
    clients = torch.split(torch.arange(sum(SIZES)), list(SIZES))
    return TensorTask(make, inputs, options.pop("targets", targets), clients, **options)


def run(method: str, together: int, rounds: int = 2, of: TensorTask | None = None, **settings: Any) -> ServerState:
    """Some rounds."""
    local = Local(**(SETTINGS | settings), together=together)
    return Simulation(compose(method), of or task(), local, failures="raise").run(rounds)


@pytest.mark.sweep(every=3)
@pytest.mark.quick
@pytest.mark.parametrize(
    "method",
    [
        "fedavg",
        "fedprox(0.1)",
        "scaffold",
        "scaffold-i",
        "feddyn",
        "fedcm",
        "fedavg + adaptive-momentum",
        "fedavg + local-momentum",
        "fedsam(rho=0.1) + scaffold",
        "fedavg + sam(rho=0.1, blend=0.5)",
        "fedasam",
        "fednova",
        "fedadam",
        "q-fedavg",
        "fedscam-wa",
        "fedavg + dampened",
        "fedlw",
        "feddisco",
    ],
)
def test_equals_one_after_the_other(method: str) -> None:
    one, many = run(method, 1), run(method, 4)
    start = Simulation(compose(method), task()).start().params
    moved = (one.params - start).norm()
    assert moved > 0
    assert (one.params - many.params).norm() <= 1e-5 * one.params.norm()
    for slot, tree in one.parts.items():
        for x, y in zip(tree or (), many.parts[slot] or (), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("make_model", "width"), [(network, 12), (convolutions, 36)])
def test_grouping_and_order_are_irrelevant_to_the_bit(make_model: Any, width: Any) -> None:
    """Each client alone, in any group and at any row gives the same upload."""
    of = task(make_model, width)
    job = Job(make("fedsam"), of, Local(**SETTINGS, together=4))
    state = Simulation(job.algorithm, of, job.local).start()
    sums = []
    for groups in (
        [[0, 1, 2, 3, 4, 5, 6]],
        [[6, 3], [5, 4, 1], [2, 0]],
        [[i] for i in range(7)],
        [[4, 0, 6, 2, 5, 1, 3]],
    ):
        worker, total = Worker(job), None
        for clients in groups:
            part = worker.serve(send(job.algorithm, state, job.setting), clients, {}, 7)
            assert not part.rejections
            if total is None:
                total = part.total
            else:
                total.merge(part.total)
        sums.append(total.sums["delta"].value())  # type: ignore[union-attr]
    for other in sums[1:]:
        assert torch.equal(sums[0], other)


def test_a_short_client_stands_still_after_its_last_step() -> None:
    uneven = run("fedavg", 3, rounds=1, steps=[1, 9, 2, 5, 3, 1, 4], epochs=1)
    assert (uneven.params - run("fedavg", 1, rounds=1, steps=[1, 9, 2, 5, 3, 1, 4], epochs=1).params).norm() < 1e-5


@pytest.mark.quick
def test_losses_of_examples() -> None:
    draw = Generator().manual_seed(0)
    outputs, classes = torch.randn(5, 3, generator=draw), torch.tensor([0, 2, 1, 1, 0])
    for criterion, targets in ((cross_entropy, classes), (mse_loss, torch.randn(5, 3, generator=draw))):
        each = example_losses(criterion)
        assert each is not None
        torch.testing.assert_close(each(outputs, targets).mean(), criterion(outputs, targets))
    assert example_losses(nn.CrossEntropyLoss()) is None
    with pytest.raises(ValueError, match="one class per example"):
        example_losses(cross_entropy)(outputs, outputs)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("method", "options", "settings", "reason"),
    [
        ("moon", {}, {}, "objective=Contrast does not declare"),
        ("fedper", {}, {}, "personalization=Private does not declare"),
        ("fedfft", {}, {}, "does not declare"),
        ("fedavg", {}, {"step_schedule": "cosine"}, "step_schedule"),
        ("fedavg", {}, {"precision": "bf16"}, "precision bf16"),
        ("fedavg", {"criterion": nn.CrossEntropyLoss()}, {}, "criterion"),
        ("fedavg", {"make": lambda: nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 4))}, {}, "0.running_mean"),
        ("fedavg", {"make": lambda: nn.Sequential(nn.Dropout(), nn.Linear(12, 4))}, {}, "at random .0."),
        ("fedavg", {"make": lambda: nn.Linear(12, 4).double()}, {}, "float64"),
    ],
)
def test_what_cannot_be_vectorised_is_refused_by_name(method: Any, options: Any, settings: Any, reason: Any) -> None:
    with pytest.raises(ValueError, match=f"together = 4 is not possible: .*{reason}.*; set together to 1"):
        Job(compose(method), task(**options), Local(**settings, together=4))
    check_together(compose(method), Local(**settings), task(**options))


class OwnBatches(TensorTask):
    """A task with noisy batches."""

    def batches(self, client: Any, size: Any, generator: Any) -> Any:
        for inputs, targets in super().batches(client, size, generator):
            yield inputs + torch.randn(inputs.shape, generator=generator), targets


class OwnLoss(TensorTask):
    """A task with a scaled loss."""

    def loss(self, model: Any, batch: Any) -> Any:
        return 2 * super().loss(model, batch)


class OwnLosses(OwnLoss):
    """The same, per example too."""

    def losses(self, model: Any, batch: Any) -> Any:
        return 2 * super().losses(model, batch)


@pytest.mark.parametrize(
    ("kind", "reason"), [(OwnBatches, "its own batches"), (OwnLoss, "its own loss"), (OwnLosses, "")]
)
def test_a_derived_task_is_not_bypassed(kind: Any, reason: Any) -> None:
    base = task()
    derived = kind(base.make, base.inputs, base.targets, base.clients)
    if reason:
        with pytest.raises(ValueError, match=f"{kind.__name__} has {reason}, but not its own .*; set together to 1"):
            Job(compose("fedavg"), derived, Local(together=4))
    else:
        Job(compose("fedavg"), derived, Local(together=4))


def test_a_client_that_fails_does_not_take_others_along() -> None:
    bad = task()
    bad.inputs[SIZES[0] + 3] = float("nan")
    found = []
    for together in (1, 4):
        _, record = Simulation(make("fedavg"), bad, Local(**SETTINGS, together=together)).round(
            Simulation(make("fedavg"), bad).start()
        )
        found.append([(rejection.client, rejection.reason) for rejection in record.rejections])
    assert found[0] == found[1] == [(1, Reason.FINITE)]
