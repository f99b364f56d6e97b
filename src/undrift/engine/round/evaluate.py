"""Evaluation between the rounds of a simulation: with a function of the model, or with the task's own evaluation."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from undrift.core.client.torch_errors import advice
from undrift.core.tasks.task import Evaluates, Task


@runtime_checkable
class HasAccuracy(Protocol):
    """A result with an accuracy and a loss, as `undrift.data.Evaluation`."""

    @property
    def accuracy(self) -> float:
        """The share of correctly classified examples."""

    @property
    def loss(self) -> float:
        """The mean loss."""


Evaluate: TypeAlias = Callable[[nn.Module], float | Tensor | Mapping[str, Any] | HasAccuracy] | int
"""A function of the model that returns a number or numbers by name; or every how many rounds the task evaluates it."""


class Evaluator:
    """Evaluates the global model in some of the rounds.

    Args:
        task: the task, whose `evaluate` is used if no function is given.
        evaluate: see `Evaluate`; None or 0 evaluates nothing.
        every: how many rounds lie between two evaluations with a function; the last round is always evaluated.
    """

    def __init__(self, task: Task, evaluate: Evaluate | None, every: int = 1) -> None:
        given = evaluate if isinstance(evaluate, int) and evaluate < 0 else every
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise ValueError(f"evaluate: the number of rounds between two evaluations must be 1 or more, got {given!r}")
        self.every = every
        self._test: Callable[[nn.Module], Any] | None = None
        if callable(evaluate):
            self._test = evaluate
        elif evaluate:
            if not isinstance(task, Evaluates):
                raise TypeError(
                    f"evaluate={evaluate}: {type(task).__name__} has no method evaluate; give a function of the model, "
                    "evaluate=lambda model: {'accuracy': ...}"
                )
            self._test, self.every = task.evaluate, int(evaluate)

    def due(self, done: int, last: bool) -> bool:
        """Whether the model is evaluated after so many rounds."""
        return self._test is not None and (last or done % self.every == 0)

    def __call__(self, module: nn.Module) -> dict[str, float]:
        """The numbers of a model, by the names of their columns."""
        assert self._test is not None
        try:
            with torch.no_grad():
                found = self._test(module)
        except Exception as error:
            error.add_note(
                "evaluate: it failed on the global model, which is in evaluation mode and without gradients (compute "
                f"some with torch.enable_grad){advice(error)}; history has the rounds so far, rounds() yields states"
            )
            raise
        if isinstance(found, HasAccuracy):
            return {"accuracy": found.accuracy, "test_loss": found.loss}
        if isinstance(found, Mapping) and not found:
            raise ValueError("evaluate: the task has no held-out data; give it test=, or give a function of the model")
        if isinstance(found, Mapping):
            return {str(name): _number(str(name), value) for name, value in found.items()}
        name = getattr(self._test, "__name__", "score").strip("<>")
        name = "score" if name == "lambda" else name
        return {name: _number(name, found)}


def _number(name: str, value: Any) -> float:
    """One number of an evaluation."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        what = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]
        raise TypeError(f"evaluate: {name} must be a number, or numbers by name in a dict, got {what}") from None
