"""Tasks on tensors: what they take, what they refuse, and how they are evaluated."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from undrift import LoaderTask, Local, Simulation, TensorTask, make
from undrift.core.client.visit import ClientError
from undrift.core.tasks.task import Evaluates, EvaluatesClients


def net() -> nn.Module:
    return nn.Linear(2, 3)


GOOD: dict[str, Any] = {
    "make": net,
    "inputs": torch.randn(600, 2, generator=torch.Generator().manual_seed(0)),
    "targets": torch.arange(600) % 3,
    "clients": [[0, 1], [2], [3], [4]],
}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clients": [[0], [1], [2], [3, 648]]}, r"clients\[3\]: index 648, but there are 600 examples"),
        ({"clients": [[0], [-1]]}, r"clients\[1\]: index -1, but there are 600 examples"),
        ({"clients": [[0.5]]}, r"clients\[0\]: 0.5 is not an integer; give indices from 0 to 599"),
        ({"clients": [["a"]]}, r"clients\[0\]: not a list of indices"),
        ({"clients": [[[0]]]}, r"clients\[0\]: must be a list of indices, got the shape \[1, 1\]"),
        ({"clients": [torch.ones(600, dtype=torch.bool)]}, r"clients\[0\]: is a mask; give the indices"),
        ({"clients": []}, "clients: there is no client; give one entry for each client"),
        ({"clients": 4}, "clients: must be a list with one entry for each client, got int"),
        ({"clients": {0: [1]}}, "clients: must be a list with one entry for each client, got dict"),
        ({"inputs": torch.zeros(3, 2)}, "inputs has 3 examples, but targets 600; give one for each"),
        ({"inputs": {"x": torch.zeros(3, 2)}}, r"inputs\['x'\] has 3 examples, but targets 600"),
        ({"inputs": {}}, "inputs: the dict is empty"),
        ({"inputs": [[1, 2], [3]]}, "inputs: cannot become a tensor"),
        ({"targets": 3}, "targets: must have one entry for each example, got the single value 3"),
        ({"test": torch.zeros(3)}, "test must be a pair of inputs and targets, got Tensor"),
        ({"test": (torch.zeros(3, 2), [0])}, "test inputs has 3 examples, but test targets 1"),
        ({"client_tests": [[0]] * 3}, "client_tests: there are 4 clients, but 3 entries"),
        ({"client_tests": [[0]] * 4}, r"client_tests\[0\]: indices are of examples of test, which is not given"),
        (
            {"make": nn.Linear(2, 3)},
            "TensorTask: make builds .*the model's class or a function .*the model Linear",
        ),
        ({"make": "net"}, "TensorTask: make builds .*, got str"),
        ({"goal": "mae"}, "goal: no metric is named 'mae'"),
    ],
)
def test_refused_when_it_is_made(given: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        TensorTask(**(GOOD | given))


def test_lists_and_arrays_are_taken() -> None:
    inputs, labels = GOOD["inputs"], GOOD["targets"]
    arrays = TensorTask(
        net,
        inputs.numpy().astype(np.float64),
        labels.numpy().astype(np.int32),
        np.arange(8).reshape(4, 2),  # type: ignore[arg-type]
    )
    lists = TensorTask(net, inputs.tolist(), labels.tolist(), [(0, 1), [2, 3], range(4, 6), torch.tensor([6, 7])])
    hashes = set()
    for task in (arrays, lists):
        assert (task.inputs.dtype, task.targets.dtype) == (torch.float32, torch.int64)
        with Simulation(make("fedavg"), task, Local(lr=0.1)) as simulation:
            hashes.add(float(simulation.run(2).params.sum()))
    assert len(hashes) == 1


class Sum(nn.Module):
    """Takes its inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(left + right)
        return out


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, torch.uint8, torch.int32])
def test_classes_of_any_integer_dtype(dtype: Any) -> None:
    classes = torch.arange(600) % 3
    targets = classes.to(dtype) if isinstance(dtype, torch.dtype) else classes.numpy().astype(dtype)
    task = TensorTask(**{**GOOD, "targets": targets, "test": (GOOD["inputs"], targets)})
    assert task.targets.dtype == torch.int64 and "accuracy" in task.evaluate(task.model())
    assert task.label_counts(0).tolist() == [1, 1, 0]  # type: ignore[union-attr]


def test_several_inputs_are_a_dict() -> None:
    with pytest.raises(TypeError, match=r"inputs: got 2 tensors; give several inputs as a dict by the names"):
        TensorTask(**{**GOOD, "inputs": (GOOD["inputs"], GOOD["inputs"])})


def test_inputs_by_name() -> None:
    halves = {"left": GOOD["inputs"] / 2, "right": GOOD["inputs"] / 2}
    task = TensorTask(Sum, halves, GOOD["targets"], [[0, 1], [2, 3]], test=(halves, GOOD["targets"]))
    plain = TensorTask(net, GOOD["inputs"], GOOD["targets"], [[0, 1], [2, 3]], test=(GOOD["inputs"], GOOD["targets"]))
    found = []
    for one in (task, plain):
        with Simulation(make("fedavg"), one, Local(lr=0.1)) as simulation:
            found.append(one.evaluate(simulation.module(simulation.run(2))))
    assert found[0] == pytest.approx(found[1]) and list(found[0]) == ["test_loss", "accuracy"]


@pytest.mark.quick
def test_evaluation_by_hand() -> None:
    test = (GOOD["inputs"][:450], GOOD["targets"][:450])
    assert TensorTask(**GOOD, test=test, client_tests=[[np.int64(0), np.int64(5)]] * 4).client_tests[3][1].tolist() == [  # type: ignore[index]
        int(test[1][0]),
        int(test[1][5]),
    ]
    task = TensorTask(**GOOD, test=test, client_tests=[[0, 5], test, None, []])
    assert isinstance(task, Evaluates) and isinstance(task, EvaluatesClients)
    model = task.model()
    with torch.no_grad():
        right = (model(test[0]).argmax(1) == test[1]).double()
        loss = nn.functional.cross_entropy(model(test[0]), test[1])
    assert task.evaluate(model) == pytest.approx({"test_loss": float(loss), "accuracy": float(right.mean())})
    assert task.evaluate_client(model, 0)["accuracy"] == float(right[[0, 5]].mean())
    assert task.evaluate_client(model, 1) == task.evaluate(model)
    assert task.evaluate_client(model, 2) == {} == task.evaluate_client(model, 3)
    assert TensorTask(**GOOD).evaluate(model) == {}
    numbers = TensorTask(net, GOOD["inputs"], GOOD["inputs"], [[0]], test=test)
    assert numbers.metrics == {} and numbers.label_counts(0) is None


@pytest.mark.parametrize("criterion", [nn.MSELoss(), nn.functional.l1_loss])
def test_numbers_that_would_be_compared_all_with_all_are_refused(criterion: Any) -> None:
    inputs, numbers = torch.randn(12, 6, generator=torch.Generator().manual_seed(0)), torch.arange(12.0)
    given: dict[str, Any] = {"make": lambda: nn.Linear(6, 1), "inputs": inputs, "clients": [range(6), range(6, 12)]}
    task = TensorTask(**given, targets=numbers, criterion=criterion, test=(inputs, numbers))
    message = r"outputs have the shape \[\d+, 1\] and targets \[\d+\], .*targets.reshape\(-1, 1\)"
    with pytest.raises(ClientError, match=message):
        Simulation("fedavg", task).run(1)
    with pytest.raises(ValueError, match=message):
        task.evaluate(task.model())
    own = TensorTask(**given, targets=numbers, criterion=lambda y, t: nn.functional.mse_loss(y.squeeze(1), t))
    shaped = TensorTask(**given, targets=numbers.reshape(-1, 1), criterion=criterion)
    for good in (own, shaped):
        assert Simulation("fedavg", good, Local(lr=0.01)).run(1).round == 1


def test_loaders_refuse_the_same() -> None:
    data = TensorDataset(torch.randn(4, 6), torch.arange(4.0))
    task = LoaderTask(lambda: nn.Linear(6, 1), [data], criterion=nn.MSELoss())
    with pytest.raises(ClientError, match=r"outputs have the shape \[4, 1\] and targets \[4\]"):
        Simulation("fedavg", task).run(1)


def test_negative_targets_have_no_class() -> None:
    """Those that cross entropy ignores, in the task's own count and in that of the batches."""
    targets = torch.tensor([0, 2, -100, 1, -100, 2])
    task = TensorTask(lambda: nn.Linear(2, 3), torch.randn(6, 2), targets, [[0, 1, 2], [2, 4], [3, 5]])
    assert [task.label_counts(client).tolist() for client in range(3)] == [[1, 0, 1], [0, 0, 0], [0, 1, 1]]  # type: ignore[union-attr]
    none = TensorTask(lambda: nn.Linear(2, 3), torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), [[]])
    assert none.label_counts(0).tolist() == []  # type: ignore[union-attr]
    assert Simulation("feddisco", task).run(1).round == 1
