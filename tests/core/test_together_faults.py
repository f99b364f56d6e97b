"""What several clients at once cannot do: refused, or one client's failure and no other's."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss, poisson_nll_loss

from undrift import Local, Simulation, TensorTask
from undrift.core.client.group import _fold_rows
from undrift.core.server.step import send
from undrift.core.tasks.example_losses import check_shapes, criterion_loss, why_not_single
from undrift.engine.worker.job import Job

CLIENTS = [list(range(i, 12, 4)) for i in range(4)]
INPUTS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(12) % 3


def task(make: Any = lambda: nn.Linear(5, 3), targets: Tensor = CLASSES, **options: Any) -> TensorTask:
    """Four clients of three examples."""
    return TensorTask(make, INPUTS, targets, CLIENTS, **options)


def test_models_that_mix_examples_are_refused() -> None:
    mixing = task(lambda: nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)))
    with pytest.raises(ValueError, match=r"normalises over the examples of a batch \(0\), .* set together to 1"):
        Job(Simulation("fedavg", mixing).job.algorithm, mixing, Local(together=2))


def test_ignored_targets_are_refused() -> None:
    """torch's cross entropy is the mean over the targets that it does not ignore."""
    ignoring = task(targets=torch.where(torch.arange(12) % 4 == 0, -100, CLASSES))
    with pytest.raises(ValueError, match=r"cross entropy leaves out targets of -100 .*; set together to 1"):
        Simulation("fedavg", ignoring, Local(together=2))
    assert why_not_single(ignoring.criterion, ignoring.targets) and not why_not_single(task().criterion, CLASSES)
    assert Simulation("fedavg", ignoring).run(1).round == 1


def test_one_that_fails_takes_no_other_along() -> None:
    """A class that the model does not have, in any group: the same clients, the same bits."""
    bad = task(targets=torch.where(torch.arange(12) == 5, 7, CLASSES))  # of client 1
    found = []
    for groups in ([[0, 1, 2, 3]], [[0, 2], [1, 3]], [[0, 2, 3], [1]]):
        simulation = Simulation("fedavg", bad, Local(batch_size=2, together=4))
        sent, total = send(simulation.job.algorithm, simulation.start(), simulation.job.setting), None
        for clients in groups:
            part = simulation.worker.serve(sent, clients, {}, 4)
            assert [x.client for x in part.rejections] == [1] * (1 in clients)
            if total is None:
                total = part.total
            else:
                total.merge(part.total)
        assert total is not None and sorted(total.clients) == [0, 2, 3]
        found.append(total.sums["delta"].value())
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


class Recurrent(nn.Module):
    """A layer that torch does not vectorise."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(5, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x.unsqueeze(1))[0][:, -1])
        return out


def test_a_layer_that_cannot_be_vectorised_says_how_to_do_without() -> None:
    with pytest.raises(RuntimeError, match=r"Batching rule.*; set together to 1"):
        Simulation("fedavg", task(Recurrent), Local(together=2)).run(1)


def test_an_error_of_vmap_says_how_to_do_without() -> None:
    class Reading(nn.Linear):
        """Reads a number in its pass."""

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * (1 if float(x.detach().sum()) < 1e9 else 2)

    simulation = Simulation("fedavg", task(lambda: Reading(5, 3)), Local(together=2))
    with pytest.raises(RuntimeError, match=r"vmap.*; set together to 1"):
        simulation.run(1)


@pytest.mark.parametrize("criterion", [mse_loss, poisson_nll_loss, nn.PoissonNLLLoss()])
def test_no_output_is_compared_with_every_target(criterion: Any) -> None:
    with pytest.raises(ValueError, match="every output would be compared with every target"):
        criterion_loss(criterion, torch.ones(4, 1), torch.ones(4))


@pytest.mark.parametrize("criterion", [mse_loss, binary_cross_entropy_with_logits])
def test_nor_in_a_group(criterion: Any) -> None:
    numbers = task(lambda: nn.Linear(5, 1), CLASSES.float() / 3, criterion=criterion)
    with pytest.raises(RuntimeError, match="reshape the targets"):
        Simulation("fedavg", numbers, Local(together=2)).run(1)
    check_shapes(torch.ones(3, 1), torch.ones(3, 1))


@pytest.mark.parametrize("together", [1, 2])
def test_a_loss_of_one_element_is_a_number(together: int) -> None:
    def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets).reshape(1)

    def own(kind: Any) -> Any:
        return kind(lambda: nn.Linear(5, 3), INPUTS, CLASSES, CLIENTS, criterion=criterion)

    class Own(TensorTask):
        """Its loss is not checked by the criterion's own function."""

        def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            return criterion(model(batch[0]), batch[1])

    if together == 1:
        states = [Simulation("fedavg", x, failures="raise").run(1) for x in (task(), own(TensorTask), own(Own))]
        assert all(torch.equal(states[0].params, other.params) for other in states)
    else:
        with pytest.raises(ValueError, match="its criterion is not one of torch's"):
            Simulation("fedavg", own(TensorTask), Local(together=2))


def test_a_batch_keeps_its_type() -> None:
    class Batch(NamedTuple):
        """Names."""

        inputs: Tensor
        targets: Tensor

    found = _fold_rows(Batch(torch.zeros(4, 2), torch.zeros(4)), 2)
    assert type(found) is Batch and found.inputs.shape == (2, 2, 2) and found.targets.shape == (2, 2)
