"""The options of commands that train: the engine, its workers and their device."""

from typing import Annotated, Any

import typer

from undrift.cli.names import DEVICES, ENGINES, completion

Engine = Annotated[
    str | None,
    typer.Option(
        help="Where clients are trained: local, ray or flower; it does not affect results.",
        autocompletion=completion(ENGINES),
    ),
]
Workers = Annotated[
    str | None, typer.Option(help="Number of workers; auto measures the training of one client and chooses.")
]
Device = Annotated[
    str | None,
    typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...; see undrift doctor.", autocompletion=completion(DEVICES)),
]
Gpus = Annotated[float | None, typer.Option(help="GPUs per worker: 0.25 puts four workers on each GPU.")]
Deterministic = Annotated[
    bool | None,
    typer.Option(
        "--deterministic/--no-deterministic", help="Deterministic kernels: bit-identical results on a GPU, slower."
    ),
]


def engine_settings(
    engine: str | None,
    workers: str | None,
    device: str | None,
    gpus: float | None = None,
    deterministic: bool | None = None,
) -> dict[str, Any]:
    """The settings of the engine that flags give; None leaves one as it is.

    Args:
        engine: its name.
        workers: a number or "auto".
        device: the name of a device.
        gpus: a worker's share of a GPU.
        deterministic: whether kernels are deterministic.
    """
    count = int(workers) if workers is not None and workers.isdecimal() else workers
    return {"name": engine, "workers": count, "device": device, "gpus": gpus, "deterministic": deterministic}


def check_workers(workers: str | None, *engines: str) -> None:
    """Raise if workers are given to runs that all use the local engine, which has one.

    Args:
        workers: a number or "auto".
        engines: the names of the runs' engines.
    """
    if workers not in (None, "1", "auto") and set(engines) == {"local"}:
        raise ValueError(f"--workers {workers}: the local engine has one; add --engine ray, or leave it out")
