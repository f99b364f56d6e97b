"""The options of commands that train, which say where they do."""

from typing import Annotated, Any

import typer

from undrift.cli.names import DEVICES, ENGINES, completing

Engine = Annotated[
    str | None,
    typer.Option(help="local, ray or flower; it does not affect results.", autocompletion=completing(ENGINES)),
]
Workers = Annotated[
    str | None, typer.Option(help="How many workers the engine starts; auto measures a visit and chooses.")
]
Device = Annotated[
    str | None,
    typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...; see undrift doctor.", autocompletion=completing(DEVICES)),
]
Gpus = Annotated[float | None, typer.Option(help="A worker's share of a GPU: 0.25 puts four on each.")]
Deterministic = Annotated[
    bool | None,
    typer.Option("--deterministic/--no-deterministic", help="Deterministic kernels: equal bits on GPUs, slower."),
]


def placed(
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
