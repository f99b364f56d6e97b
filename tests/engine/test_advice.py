"""Errors of torch whose cause is the model, the data or the device: who, with what batch, and what to do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from undrift import Local, Simulation, TensorTask
from undrift.core.client.torch_errors import advice, describe_batch
from undrift.core.client.visit import ClientError

INPUTS, TARGETS = torch.ones(8, 3), torch.arange(8) % 2
LOCAL = Local(lr=0.1, batch_size=4)


def task(make: Callable[[], nn.Module], inputs: Tensor = INPUTS, targets: Tensor = TARGETS, **more: Any) -> TensorTask:
    return TensorTask(make, inputs, targets, [[0, 1, 2, 3], [4, 5, 6, 7]], **more)


CASES = {
    "shape": (
        task(lambda: nn.Linear(5, 2)),
        r"not take inputs of this shape.*\(the batch is \(\[4, 3\] float32, \[4\] int",
    ),
    "dtype": (task(lambda: nn.Linear(3, 2), INPUTS.long()), r"inputs\.float\(\).*\(the batch is \(\[4, 3\] int64, "),
    "class": (task(lambda: nn.Linear(3, 2), targets=TARGETS + 1), r"Target 2 is out of bounds\.; classes are numbered"),
    "kind": (task(lambda: nn.Linear(3, 2), targets=TARGETS.float()), "takes one class per example, as in targets.long"),
    "token": (
        task(lambda: nn.Sequential(nn.Embedding(2, 2), nn.Flatten(), nn.Linear(6, 2)), INPUTS.long() * 7),
        "an input is beyond the rows of an embedding",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_with_model_and_data(case: str) -> None:
    wrong, message = CASES[case]
    with pytest.raises(ClientError, match=f"round 1, client 0, step 0: .*{message}"):
        Simulation("fedavg", wrong, LOCAL).run(1)


def test_memory_devices_and_errors_of_others() -> None:
    assert "choose a smaller batch_size" in advice(torch.OutOfMemoryError("CUDA out of memory."), INPUTS)
    assert "keep the data on the host" in advice(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert "register_buffer" in advice(RuntimeError("Expected all tensors to be on the same device, but found"))
    assert advice(KeyError("size mismatch")) == advice(OSError("corrupt")) == ""
    assert describe_batch({"x": INPUTS, "n": 3}) == "{x: [8, 3] float32, n: int}" and describe_batch(None) == ""


def test_evaluations_that_fail_or_give_no_number() -> None:
    simulation = Simulation("fedavg", task(lambda: nn.Linear(3, 2)), LOCAL)
    for wrong, shown in (
        (lambda _: None, "score must be a number, .*, got None"),
        (lambda m: m(INPUTS), r"shape \[8, 2\]"),
    ):
        with pytest.raises(TypeError, match=f"evaluate: .*{shown}"):
            simulation.run(1, evaluate=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"evaluate: f1 must be a number, .* got 'high'"):
        simulation.run(1, evaluate=lambda _: {"f1": "high"})
    with pytest.raises(RuntimeError, match="cannot be multiplied") as seen:
        simulation.run(1, evaluate=lambda model: model(torch.ones(2, 9)))
    assert "on the global model" in seen.value.__notes__[0] and "change its layers" in seen.value.__notes__[0]
    with pytest.raises(ValueError, match="between two evaluations must be 1 or more, got -2"):
        simulation.run(1, evaluate=-2)
    with pytest.raises(ValueError, match=r"must be 1 or more, got 1\.5"):
        simulation.run(1, evaluate=lambda _: 1, every=1.5)  # type: ignore[arg-type]
