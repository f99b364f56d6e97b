"""The arguments that simulations and strategies share, checked by kind: the method, the model, the task, `Local`."""

from collections.abc import Iterable
from operator import index
from typing import SupportsIndex

from torch import nn

from undrift.compose.build import make
from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import Local
from undrift.core.tasks.task import Task

_TASK = ("population", "model", "loss", "examples", "batches")


def read_method(where: str, method: object) -> Algorithm:
    """A method that was given as such, or as its name or composition.

    Args:
        where: the class that takes it, for errors.
        method: the method, or its name or composition.

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
    """Raise if the settings of local training are not a `Local`."""
    if not isinstance(local, Local):
        raise TypeError(f"{where}: local must be the settings of local training, Local(lr=0.1), got {_kind(local)}")


def check_model(where: str, model: object) -> None:
    """Raise if a model is not a module, for example because arguments are in the wrong order."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{where}: model must be a torch.nn.Module, got {_kind(model)}")


def check_task(where: str, task: object) -> None:
    """Raise if a task has not the methods of one, for example because arguments are in the wrong order."""
    missing = [name for name in _TASK if not hasattr(task, name)]
    if missing or isinstance(task, type):
        lacks = f", which has no {', '.join(missing)}" if missing else ""
        raise TypeError(
            f"{where}: task must be a TensorTask, a LoaderTask or an object with the methods of undrift.Task, "
            f"got {_kind(task)}{lacks}"
        )


def whole_number(name: str, value: object, least: int = 0, what: str = "") -> int:
    """A whole number as Python's own; NumPy's and torch's are taken, booleans and fractions are not.

    Args:
        name: the argument, for errors.
        value: the given value.
        least: the smallest that can work.
        what: what the number counts, for errors.

    Example:
        >>> import numpy
        >>> whole_number("seed", numpy.int64(3))
        3
    """
    sound = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    try:
        found = index(value) if isinstance(value, SupportsIndex) else 0
    except (TypeError, ValueError):
        sound, found = False, 0
    what = what and f", {what}"
    if not sound:
        raise TypeError(f"{name} must be a whole number of {least} or more{what}, got {value!r}")
    if found < least:
        raise ValueError(f"{name} must be {least} or more{what}, got {found}")
    return found


def check_client(task: Task, client: object) -> int:
    """The number of a client as Python's own; raises if the task has no client of this number."""
    population = task.population
    try:
        found = whole_number("client", client)
    except TypeError:
        raise TypeError(
            f"a client is a whole number from 0 to {population - 1}, got {client!r} of type {_kind(client)}"
        ) from None
    except ValueError:
        found = -1
    if not 0 <= found < population:
        raise ValueError(f"there is no client {client}: the clients are numbered from 0 to {population - 1}")
    return found


def check_clients(task: Task, clients: object, *, once: bool = True) -> list[int]:
    """The numbers of clients as a list, each of which the task has; none comes twice.

    Args:
        task: has the number of clients.
        clients: a sequence, an array or a tensor of numbers.
        once: raise if one is named twice.
    """
    if not isinstance(clients, Iterable) or isinstance(clients, str | bytes):
        raise TypeError(f"clients must be a list of clients' numbers, [0, 3, 5], got {clients!r}")
    found = [check_client(task, client) for client in clients]
    different = list(dict.fromkeys(found))
    if once and len(different) < len(found):
        twice = next(client for client in different if found.count(client) > 1)
        raise ValueError(f"clients: client {twice} is named twice; name each client once")
    return different


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
