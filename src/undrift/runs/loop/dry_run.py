"""Dry runs: everything that a run needs is built on stand-in data, and one round is trained with a few tiny clients."""

from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from undrift.data import Dataset
from undrift.data.files.stand_in import stand_in
from undrift.data.loader import known_source
from undrift.data.partitions.draw import parse
from undrift.data.partitions.schemes import Corrupt
from undrift.runs.loop.run import start
from undrift.runs.reading.saved_run import Outcome
from undrift.runs.settings.config import Config, OutputConfig
from undrift.runs.settings.named_arguments import parts
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.prepare import Setup, prepare

CLIENTS, COHORT, EXAMPLES = 3, 2, 4
"""How many clients of the partition stay, how many of them take part, and how many examples each has at most."""

_POOL, _CORRUPTED_POOL = 20_000, 600  # examples of the stand-in data; corrupting many images takes long


def dry_run(config: Config) -> Outcome:
    """Train one round of a run on stand-in data, evaluate it and write its folder, which is then deleted.

    The method, its arguments, the partition with its number of clients, the model, augmentation, local settings but
    for the number of epochs, and all measurements of the first round are those of the run. It shows that the run can
    start and end, and nothing about its result.

    Args:
        config: the settings of the run.
    """
    with TemporaryDirectory(prefix="undrift-dry-") as folder:
        setup = shrink(config)
        return start(setup.config, Path(folder) / "run", setup=setup)


def shrink(config: Config) -> Setup:
    """The run, ready to start: on stand-in data, for one round, with the first `CLIENTS` clients that have examples.

    Args:
        config: the settings of the run.
    """
    if config.task is not None:
        raise ConfigError(f"task: a dry run needs stand-in data, and {config.task} has its own; run it for one round")
    scheme = parse(config.partition)
    pool = _CORRUPTED_POOL if isinstance(scheme, Corrupt) else _POOL
    values: dict[str, Any] = {
        "rounds": 1,
        "cohort": min(COHORT, config.clients or COHORT),
        "probability": None,
        "proxy": min(config.proxy, 20),
        "target": None,
    }
    values |= {"local": {**asdict(config.local), "epochs": 1}, "output": OutputConfig(lens_every=0).model_dump()}
    setup = prepare(
        Config.build({**config.model_dump(), **values}), _stand_in(config.data, None if scheme.inner.listed else pool)
    )
    task = setup.data_task
    held = [own[:EXAMPLES] for own in task.clients if len(own)]
    return replace(setup, task=replace(task, clients=held[:CLIENTS]))


@lru_cache(maxsize=4)
def _stand_in(data: str, examples: int | None) -> Dataset | None:
    """Stand-in data for a known data set as a run file names it; None for data of the user, which are loaded.

    Without a number there are as many examples as in the data set.
    """
    name, arguments = parts(data)
    if (source := known_source(name)) is None:
        return None
    return stand_in(name, examples or source.examples, arguments.get("resize", 0))
