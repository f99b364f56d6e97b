"""The server's half of a task, in a deployment: the clients' data are on the nodes."""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from hashlib import sha256
from typing import Any, NoReturn

from torch import Generator, Tensor, nn

from undrift.core.tasks.evaluation import Goal
from undrift.core.tasks.task import Evaluates, Task
from undrift.engine.round.evaluate import Evaluate, Evaluator
from undrift.runs.setup.custom_tasks import task_name


class ServerTask:
    """The server's half of a task: the model and the central test. The clients' data are on the nodes.

    Args:
        module: the model with its initial weights.
        population: how many clients there are.
        evaluated: returns the numbers of a model by name; none if there is no central test.
        name: the name of the task in the run.
        goal: the metric by which the run is judged.
    """

    def __init__(
        self,
        module: nn.Module,
        population: int,
        evaluated: Callable[[nn.Module], Mapping[str, float]],
        name: str,
        goal: Goal = None,
    ) -> None:
        self.module, self.population, self.evaluated, self.name, self.goal = module, population, evaluated, name, goal

    def model(self) -> nn.Module:
        """A new model with the initial weights."""
        return deepcopy(self.module)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Refused: the server has no batches."""
        _refuse()

    def examples(self, client: int) -> int:
        """0: the clients' data are on the nodes."""
        return 0

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Any]:
        """Refused: the server has no batches."""
        _refuse()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The numbers of a model on the central test; empty without one."""
        return {name: float(x) for name, x in self.evaluated(model).items()}


def server_task(model: nn.Module | Task, population: int | None, test: Evaluate | None) -> ServerTask:
    """The server's half of a task.

    Args:
        model: the model, or the task.
        population: how many clients there are; None takes the number of the task.
        test: a function of the model; None takes the task's own test.
    """
    own = None if isinstance(model, nn.Module) else model
    module = model if isinstance(model, nn.Module) else model.model()
    if own is not None and population not in (None, own.population):
        raise ValueError(f"deploy: the task has {own.population} clients, got population={population}; leave it out")
    count = own.population if own is not None else population
    if count is None:
        raise ValueError("deploy: give the number of clients on all nodes, population=12, or a task")
    if count < 1:
        raise ValueError(f"deploy: population must be 1 or more, the number of all clients, got {count}")
    name = type(module).__name__ if own is None else task_name(own)
    evaluated: Callable[[nn.Module], Mapping[str, float]] = lambda _: {}  # noqa: E731
    if callable(test):
        evaluated = Evaluator(own or ServerTask(module, count, evaluated, name), test)
    elif isinstance(own, Evaluates):
        evaluated = own.evaluate
    return ServerTask(module, count, evaluated, name, getattr(own, "goal", None))


def task_record(task: Task, text: str) -> dict[str, Any]:
    """The record of a task in the run's folder: a hash of the model's names, shapes and dtypes.

    Args:
        task: the task.
        text: its name.
    """
    shapes = {name: f"{x.dtype} {list(x.shape)}" for name, x in task.model().state_dict().items()}
    hashes = {"model": sha256(json.dumps(shapes).encode()).hexdigest()}
    return {"task": text, "kind": "deployment", "clients": task.population, "sha256": hashes}


def _refuse() -> NoReturn:
    raise RuntimeError("the clients' data of a deployment are on its nodes, not on the server")
