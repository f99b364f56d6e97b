"""The arguments that simulations and strategies share, checked by kind: the method, the model, the task, `Local`."""

from torch import nn

from undrift.compose.build import make
from undrift.core.algorithm import Algorithm
from undrift.core.task import Task
from undrift.core.types import Local

_TASK = ("population", "model", "loss", "examples", "batches")


def read_method(where: str, method: object) -> Algorithm:
    """A method that was given as such, or as its name or composition.

    Args:
        where: who takes it, for errors.
        method: what was given.

    Example:
        >>> read_method("Simulation", "fedsam")
        Algorithm(perturbation=SAM(rho=0.1, blend=1.0), aggregation=Uniform())
    """
    if isinstance(method, str):
        return make(method)
    if isinstance(method, Algorithm):
        return method
    raise TypeError(
        f'{where}: algorithm must be a method, make("scaffold"), or its name, "scaffold", got {_kind(method)}'
    )


def check_local(where: str, local: object) -> None:
    """Raise if the settings of local training are something else."""
    if not isinstance(local, Local):
        raise TypeError(f"{where}: local must be the settings of local training, Local(lr=0.1), got {_kind(local)}")


def check_model(where: str, model: object) -> None:
    """Raise if a model is something else, as it is if arguments change places."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{where}: model must be a torch.nn.Module, got {_kind(model)}")


def check_task(where: str, task: object) -> None:
    """Raise if a task is something else, as it is if arguments change places."""
    missing = [name for name in _TASK if not hasattr(task, name)]
    if missing or isinstance(task, type):
        lacks = f", which has no {', '.join(missing)}" if missing else ""
        raise TypeError(
            f"{where}: task must be a TensorTask, a LoaderTask or an object with the methods of undrift.Task, "
            f"got {_kind(task)}{lacks}"
        )


def check_client(task: Task, client: int) -> None:
    """Raise if a task has no client of this number."""
    if not 0 <= client < task.population:
        raise ValueError(f"there is no client {client}: the clients are numbered from 0 to {task.population - 1}")


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
