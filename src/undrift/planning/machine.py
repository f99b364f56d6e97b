"""The constants of a machine on which the cost of a round depends: defaults, and a file in the user's cache."""

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field

from undrift.data.arrays import cache
from undrift.runs.settings.schema import Strict, validate
from undrift.util.storage.files import write

Seconds = Annotated[float, Field(ge=0)]
"""Seconds of one processor, unless a field's description has another unit."""


class EngineConstants(Strict, extra="ignore"):
    """What an engine adds to a round.

    Args:
        latency: seconds on the clock of a round with a tiny model, beyond what is computed.
        server: of the server for each reply.
        worker: of a worker for each reply.
        taken: of the server per parameter and sum of a reply, beyond merging; on Flower with sending the model.
    """

    latency: Seconds = 0.0
    server: Seconds = 0.0
    worker: Seconds = 0.0
    taken: Seconds = 0.0


class Constants(Strict, extra="ignore"):
    """What the parts of a round cost on a machine; constants that earlier versions stored are ignored.

    Args:
        visit: a visit.
        visit_parameter: a visit, per parameter: loading the model, the displacement, the gate.
        open: beginning and ending a worker's part of a round.
        step: a gradient and a step on an empty batch.
        step_parameter: the same, per parameter.
        gradient: a gradient, per parameter and example.
        touch: one pass over a vector, per parameter.
        sum: adding an upload to an exact sum, per parameter.
        pack: packing an exact sum, per parameter.
        merge: checking and adding a packed sum, per parameter.
        close: the server step, per parameter and sum.
        gather: the server step of a rule that gathers, per parameter and upload.
        client: the server's lists of a round, per client.
        file: reading and writing a client's state.
        byte: the same, per byte.
        disk: bytes per second that reach the disk.
        process: bytes of a process before there is a model.
        ray: what Ray adds.
        flower: what Flower adds.
        model: what `gradient` was measured on.
        machine: where, with which torch and how many threads.
    """

    visit: Seconds
    visit_parameter: Seconds
    open: Seconds
    step: Seconds
    step_parameter: Seconds
    gradient: Seconds
    touch: Seconds
    sum: Seconds
    pack: Seconds
    merge: Seconds
    close: Seconds
    gather: Seconds
    client: Seconds
    file: Seconds
    byte: Seconds
    disk: Annotated[float, Field(ge=0)]
    process: Annotated[float, Field(ge=0)]
    ray: EngineConstants
    flower: EngineConstants
    model: str = "perceptron"
    machine: str = ""


DEFAULTS = Constants(
    visit=0.000577,
    visit_parameter=4.42e-09,
    open=0.000862,
    step=0.000528,
    step_parameter=2.34e-09,
    gradient=9.16e-11,
    touch=7.68e-10,
    sum=4.43e-09,
    pack=1.56e-08,
    merge=2.67e-08,
    close=8.68e-09,
    gather=1.21e-08,
    client=1.65e-05,
    file=0.000956,
    byte=6.91e-09,
    disk=306000000.0,
    process=481000000.0,
    ray=EngineConstants(latency=0.00132, server=0.00398, worker=0.00473, taken=1.11e-08),
    flower=EngineConstants(latency=0.05, server=0.00872, worker=0.00536),
    machine="x86_64, 2 processors, torch 2.13.0+cpu, 1 thread",
)
"""What `undrift doctor --measure` gave on a virtual machine with two processors; yours are measured the same way."""


def constants_file() -> Path:
    """Where `undrift doctor --measure` stores what it measured: in the user's cache folder."""
    return cache.root() / "machine.json"


def save_constants(constants: Constants, file: Path | None = None) -> Path:
    """Write the constants of a machine to a file; None is `constants_file()`."""
    file = file or constants_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, constants.model_dump_json(indent=2) + "\n")
    return file


def load_constants(file: Path | None = None) -> Constants | None:
    """The constants of this machine from a file, by default `constants_file()`; None if nothing was measured.

    Raises:
        ValueError: the file is damaged, or of another version.
    """
    file = file or constants_file()
    if not file.is_file():
        return None
    try:
        return validate(Constants, json.loads(file.read_text(encoding="utf-8")), "")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{file} cannot be used ({error}): write it again with undrift doctor --measure, or delete it"
        ) from None
