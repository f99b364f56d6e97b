"""Options that several commands have, declared once: the engine, its workers and their device, and a kept round."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from undrift.cli.names import DEVICES, ENGINES, completion

KeptRound = Annotated[str | None, typer.Option(help="A round whose checkpoint was kept, or best; default the last.")]
Device = Annotated[
    str | None,
    typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...; see undrift doctor.", autocompletion=completion(DEVICES)),
]


@dataclass(frozen=True)
class EngineOptions:
    """Where a command trains clients; None leaves a setting of the engine as it is."""

    engine: Annotated[
        str | None,
        typer.Option(
            help="Where clients are trained: local, ray or flower; it does not affect results.",
            autocompletion=completion(ENGINES),
        ),
    ] = None
    workers: Annotated[
        str | None, typer.Option(help="Number of workers; auto measures the training of one client and chooses.")
    ] = None
    device: Device = None

    def settings(self) -> dict[str, Any]:
        """The settings of the table `engine` that were given, with None for the others."""
        values: dict[str, Any] = dict(vars(self))
        values["name"] = values.pop("engine")
        if self.workers is not None and self.workers.isdecimal():
            values["workers"] = int(self.workers)
        return values

    def check_workers(self, *engines: str) -> None:
        """Raise if workers are given to runs that all use the local engine, which has one.

        Args:
            engines: the names of the runs' engines.
        """
        if self.workers not in (None, "1", "auto") and set(engines) == {"local"}:
            raise ValueError(f"--workers {self.workers}: the local engine has one; add --engine ray, or leave it out")


@dataclass(frozen=True)
class TrainingOptions(EngineOptions):
    """The same with the settings of GPUs."""

    gpus: Annotated[float | None, typer.Option(help="GPUs per worker: 0.25 puts four workers on each GPU.")] = None
    deterministic: Annotated[
        bool | None,
        typer.Option(
            "--deterministic/--no-deterministic", help="Deterministic kernels: bit-identical results on a GPU, slower."
        ),
    ] = None


def expand_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command as Typer reads it: an argument that is a dataclass of options stands for all its fields.

    Args:
        command: the function of a command; it is called with the dataclass.
    """
    own = signature(command)
    place = next((one for one in own.parameters.values() if is_dataclass(one.annotation)), None)
    if place is None:
        return command
    name, kind = place.name, place.annotation

    @wraps(command)
    def call(**given: Any) -> Any:
        chosen = {field.name: given.pop(field.name) for field in fields(kind)}
        return command(**given, **{name: kind(**chosen)})

    keyword = Parameter.KEYWORD_ONLY
    options = [Parameter(one.name, keyword, default=one.default, annotation=one.type) for one in fields(kind)]
    shown = [options if one is place else [one.replace(kind=keyword)] for one in own.parameters.values()]
    call.__signature__ = own.replace(parameters=[one for several in shown for one in several])  # type: ignore[attr-defined]
    return call
