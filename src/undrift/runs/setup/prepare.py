"""Builds what a config describes: data, partition, model, task."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.method.algorithm import Algorithm
from undrift.core.model.random import derive
from undrift.core.records.types import Local
from undrift.core.tasks.durations import DeviceFiles, read_durations
from undrift.core.tasks.evaluation import named_metrics
from undrift.core.tasks.participation import read_trace
from undrift.core.tasks.task import HasProxy, Task
from undrift.data import CorruptTests, Dataset, DataTask, Split, load
from undrift.data.loader import known_source
from undrift.data.own.rows import odd_text
from undrift.data.partitions.draw import Partition, parse, partition
from undrift.data.partitions.natural import ByColumn, Natural
from undrift.data.partitions.schemes import Scheme
from undrift.data.tasks.corruption import assign, corrupted
from undrift.data.tasks.losses import LOSSES, find_loss
from undrift.engine.worker.job import Job
from undrift.runs.folder.judge import has_personal
from undrift.runs.folder.preprocess_file import arguments_before
from undrift.runs.settings.config import Config
from undrift.runs.settings.engine import Workers
from undrift.runs.settings.initial_weights import check_init, with_initial_weights
from undrift.runs.settings.named_arguments import check_name, parts
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.choose_model import check_fit, check_kind, default_model, model_maker
from undrift.runs.setup.custom_tasks import Abilities, abilities, find_task, require_task, resolve_goal
from undrift.util.steps import note, tell, warn

EXAMPLES = 100
"""A run that names no number of clients has no more than can have this many examples each."""


def load_data(name: str, arguments: Mapping[str, Any], scheme: Scheme) -> Dataset:
    """The data of a run; with the partition `column:NAME` that column names the owners of data of the user's own.

    Args:
        name: a known data set, a path or a reference.
        arguments: its arguments.
        scheme: the partition.
    """
    owned = scheme.inner
    if not isinstance(owned, ByColumn) or known_source(name) is not None:
        return load(name, **arguments)
    if arguments.get("owner", owned.column) != owned.column:
        raise ValueError(f"{scheme}: {name} has owner = {arguments['owner']!r}; name the same column, or leave it out")
    return load(name, **{**arguments, "owner": owned.column})


def check_owner(dataset: Dataset, scheme: Scheme) -> None:
    """Raise if the partition `column:NAME` names a column that is not that of the data's owners."""
    owned = scheme.inner
    if isinstance(owned, ByColumn) and dataset.owner != owned.column:
        use = f"; its owners are in {dataset.owner!r}: use natural" if dataset.owner else "; use another partition"
        raise ValueError(f"{scheme}: {dataset.name} has no column {owned.column!r} of owners{use}")


def default_clients(examples: int, most: int) -> int:
    """How many clients a run has that names no number: `most`, or fewer if the data are small.

    Args:
        examples: how many training examples there are.
        most: the number for large data sets.

    Example:
        >>> default_clients(60_000, 100), default_clients(1_438, 100), default_clients(30, 100)
        (100, 14, 1)
    """
    return max(1, min(most, examples // EXAMPLES))


def draw_balanced(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """The sorted indices of `count` examples, drawn evenly over the classes; those labelled -1 are not drawn."""
    draw, kinds = np.random.default_rng(derive(seed, "proxy")), np.unique(labels[labels >= 0])
    shares = [count // len(kinds) + (i < count % len(kinds)) for i in range(len(kinds))]
    drawn = [draw.permutation(np.flatnonzero(labels == k))[:n] for k, n in zip(kinds, shares, strict=True)]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def keep_drawn_owners(dataset: Dataset, split: Partition) -> Dataset:
    """The data without the test examples of owners that a natural partition left out."""
    train, test = dataset.train.owners, dataset.test.owners
    if train is None or test is None:
        return dataset
    drawn = train[torch.from_numpy(np.concatenate(split.clients))]
    left = np.setdiff1d(train.numpy(), drawn.numpy())
    kept = torch.from_numpy(~np.isin(test.numpy(), left))
    if not kept.any():
        raise ValueError(f"{split.scheme}: the users that were drawn have no test examples; draw more of them")
    if kept.all():
        return dataset
    return replace(dataset, test=Split(dataset.test.inputs[kept], dataset.test.targets[kept], test[kept]))


def hold_out_owner(dataset: Dataset, owner: int) -> Dataset:
    """The data with all examples of one owner, of both splits, as the test set."""
    splits = (dataset.train, dataset.test)
    kept = [(split, split.owners == owner) for split in splits if split.owners is not None]
    inputs = torch.cat([split.inputs[own] for split, own in kept])
    targets = torch.cat([split.targets[own] for split, own in kept])
    return replace(dataset, test=Split(inputs, targets, torch.full((len(targets),), owner)))


def corrupt_data(dataset: Dataset, split: Partition, seed: int) -> tuple[Dataset, CorruptTests | None]:
    """The data with corrupted training images, and the corrupted tests, if the partition has some."""
    shift = split.corruption
    if shift is None:
        return dataset, None
    if dataset.kind != "image":
        raise ValueError(
            f'corrupt: only images can be corrupted, {dataset.name} is {dataset.kind}; use partition = "{shift.over}"'
        )
    tests = CorruptTests(dataset.test, shift.kinds, shift.severity, seed)
    inputs = corrupted(dataset.train.inputs.numpy(), assign(split, seed), seed, shift.severity)
    return replace(dataset, train=replace(dataset.train, inputs=torch.from_numpy(inputs))), tests


CLIENTS, COHORT = 100, 10  # defaults

_SHOWN = 12  # columns that are named one by one
_BUILD = ("model", "init", "frozen")  # settings of what builds the model


@dataclass(frozen=True, eq=False)
class Setup:
    """A run, ready to start.

    Args:
        config: the settings, with a model's name.
        algorithm: the method.
        task: the model, its loss and the clients' data.
        partition: who has which examples; None for a task of one's own.
        local: the settings all clients share.
        pool: Ray workers that outlive the run, see `Workers`; None starts workers for this run only.
        able: what the task measures.
    """

    config: Config
    algorithm: Algorithm
    task: Task
    partition: Partition | None
    local: Local
    pool: Workers | None = None
    able: Abilities = Abilities()

    @property
    def job(self) -> Job:
        """What its workers share, as long as no state is stored."""
        config = self.config
        return Job(
            self.algorithm,
            self.task,
            self.local,
            config.seed,
            config.bound,
            device=config.engine.device,
            deterministic=config.engine.deterministic,
        )

    @property
    def title(self) -> str:
        """What it trains on, for people."""
        return self.task.dataset.title if isinstance(self.task, DataTask) else self.config.subject

    @property
    def data_task(self) -> DataTask:
        """The task on a data set; raises for a task of one's own."""
        if not isinstance(self.task, DataTask):
            raise ConfigError(
                f"{self.config.subject} is a task of its own, and this needs a run on a data set: data = ..."
            )
        return self.task


def prepare(
    config: Config, dataset: Dataset | None = None, task: Task | None = None, folder: Path | None = None
) -> Setup:
    """Load the data, split it over the clients and choose the model.

    Args:
        config: the settings.
        dataset: the data to use instead of loading those that the settings name.
        task: the task to use instead of the one that the settings name.
        folder: of the run, if it has begun: its data are read as when it began.
    """
    if config.task is not None:
        return _prepare_task(config, find_task(config.task) if task is None else require_task(task))
    try:
        scheme = check_names(config)
        name, arguments = parts(config.data)
        arguments |= arguments_before(folder, name)
        tell("loading %s", name)
        dataset = load_data(name, arguments, scheme) if dataset is None else dataset
        check_owner(dataset, scheme)
        _tell_columns(dataset, name, named="inputs" in arguments)
        owners = None if dataset.train.owners is None else dataset.train.owners.numpy()
        labels = dataset.train.targets.numpy()
        tell("splitting %s over clients", name)
        owned = scheme.inner if isinstance(scheme.inner, Natural) else None
        wanted = config.clients or (None if scheme.inner.fixed else default_clients(len(labels), CLIENTS))
        with _naming_owners(dataset):
            split = partition(scheme, labels, clients=wanted, seed=config.seed, owners=owners)
        if wanted == 1 and config.clients is None:
            columns = _owner_columns(dataset)
            warn(
                "%s: one client, since there are only %d training examples; for several give --clients 4%s",
                *(name, len(labels), f", or --partition column:{columns[0]}" if columns else ""),
            )
        config = _fill_defaults(config, dataset, split)
        make = _maker(config, dataset)
        check_kind(config, make, dataset)
        if owned is not None:
            dataset = keep_drawn_owners(dataset, split) if owned.test is None else hold_out_owner(dataset, owned.test)
        dataset, corruptions = corrupt_data(dataset, split, config.seed)
        criterion = None if config.loss is None else find_loss(config.loss, _class_counts(dataset, split))
        metrics = named_metrics(config.metrics)
        if dataset.target_mean and criterion is not None and criterion not in LOSSES.values():
            warn("loss: %s gets targets with mean 0 and deviation 1; scale='inputs' in data leaves them", config.loss)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error
    known = split.labels
    if owned is not None and owned.test is not None:
        known = np.where(owners == owned.test, -1, known)  # the server must not have examples of the test set
    reserved = draw_balanced(known, config.proxy, config.seed)
    clients = [np.setdiff1d(own, reserved) if len(reserved) else own for own in split.clients]
    if not any(map(len, clients)):
        raise ConfigError(f"proxy: {config.proxy} examples at the server leave none for clients; set a smaller one")
    if len(reserved) < config.proxy:
        warn("proxy: %d examples, not %d: some classes have fewer than their share", len(reserved), config.proxy)
    data_task = DataTask(
        dataset,
        clients,
        make,
        config.augment,
        config.holdout,
        config.seed,
        reserved=reserved,
        corruptions=corruptions,
        criterion=criterion,
        metrics=metrics,
    )
    check_fit(str(config.model), data_task)
    usual = data_task.classifies and not metrics and config.goal is None
    return _finish_setup(config, data_task, split, Abilities() if usual else abilities(data_task))


@contextmanager
def _naming_owners(dataset: Dataset) -> Iterator[None]:
    """Add to an error of a partition which columns may name the clients, if none was given."""
    try:
        yield
    except ValueError as error:
        if not (known := _owner_columns(dataset)):
            raise
        raise ValueError(
            f"{error}; if a column names the client of each row, as {', '.join(known)} may: "
            f"--partition column:{known[0]}"
        ) from None


def _owner_columns(dataset: Dataset) -> list[str]:
    """The columns that may name the client of each example, if none is known to."""
    if dataset.kind == "image":
        return ["folder"] * ("folder (beside images)" in dataset.left_out)
    return [one.name for one in dataset.columns if one.categories and dataset.train.owners is None]


def _tell_columns(dataset: Dataset, name: str, named: bool) -> None:
    """Report which columns of a table models receive, unless they were named, which are left out, and why."""
    if dataset.left_out:
        warn("%s: left out as inputs: %s", name, ", ".join(dataset.left_out))
    for one in dataset.columns:
        if odd := odd_text(one.categories):
            warn("%s: column %r is read as texts, since %r is no number; leave such cells empty", name, one.name, odd)
    if dataset.columns and dataset.targets not in ((), ("targets",)) and not named:
        shown = [f"{one.name}{f' ({len(x)} texts)' if (x := one.categories) else ''}" for one in dataset.columns]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        note("%s: predicts %s from %s%s", name, ", ".join(dataset.targets), ", ".join(shown[:_SHOWN]), more)


def _class_counts(dataset: Dataset, split: Partition) -> list[int]:
    """How many training examples of each class the clients have, a sum over clients; empty if targets are numbers."""
    if not dataset.classes:
        return []
    targets = dataset.train.targets.numpy()
    each = (np.bincount(targets[own], minlength=dataset.classes) for own in split.clients)
    return [int(count) for count in sum(each, np.zeros(dataset.classes, np.int64))]


def _prepare_task(config: Config, task: Task) -> Setup:
    """A run on a task of one's own."""
    if config.clients not in (None, task.population):
        raise ConfigError(f"clients: the task has {task.population}, got {config.clients}; leave it out")
    size = getattr(task, "batch_size", None)
    if size not in (None, config.local.batch_size):
        raise ConfigError(
            f"local.batch_size: the task's loaders have {size}, got {config.local.batch_size}; set {size}"
        )
    if config.algorithm().needs.proxy and not isinstance(task, HasProxy):
        raise ConfigError(f"task: {config.method} needs proxy data at the server: a method proxy() of the task")
    cohort = cohort_size(config.cohort, task.population) if config.probability is None else None
    config = Config.build(config.model_dump() | {"clients": task.population, "cohort": cohort})
    return _finish_setup(config, task, None, abilities(task))


def _finish_setup(
    config: Config, task: Task, split: Partition | None, able: Abilities, pool: Workers | None = None
) -> Setup:
    """The run, with the goal by which it is judged."""
    algorithm, local = config.algorithm(), config.local
    goal = resolve_goal(config.goal, task, able, has_personal(algorithm, local))
    return Setup(config.model_copy(update={"goal": goal}), algorithm, task, split, local, pool, able)


def check_names(config: Config) -> Scheme:
    """The partition of a run; raises if a name is unknown or a trace cannot be read, before anything is loaded."""
    if config.task is None:
        check_name("data", config.data)
    if config.model is not None:
        check_name("model", config.model)
    check_init(config.init)
    if config.availability is not None:
        read_trace(config.availability)
    if isinstance(devices := read_durations(config.durations or 1.0), DeviceFiles):
        devices.read()
    return parse(config.partition)


def variant(setup: Setup, config: Config) -> Setup:
    """The same data and partition with another method, model or other local settings, without loading data again.

    Args:
        setup: of a run that differs from this one at most in `method`, `arguments`, `local`, `weights` and `model`.
        config: the settings; without a model they take that of the setup.
    """
    resolved = {name: getattr(setup.config, name) for name in ("clients", "cohort", "partition")}
    config = Config.build(config.model_dump() | resolved | {"model": config.model or setup.config.model})
    task = setup.task
    if isinstance(task, DataTask) and any(getattr(config, x) != getattr(setup.config, x) for x in _BUILD):
        task = replace(task, make=_maker(config, task.dataset))
        check_fit(str(config.model), task)
    if isinstance(task, DataTask) and config.algorithm().needs.model:
        check_kind(config, task.make, task.dataset)
    return _finish_setup(config, task, setup.partition, setup.able, setup.pool)


def _fill_defaults(config: Config, dataset: Dataset, split: Partition) -> Config:
    """The settings with all defaults that depend on the data filled in."""
    clients = len(split.clients)
    cohort = cohort_size(config.cohort, clients) if config.probability is None else None
    chosen = {"clients": clients, "cohort": cohort, "partition": split.scheme}
    chosen |= {"model": config.model or default_model(dataset, config.algorithm())}
    return Config.build(config.model_dump() | chosen)


def cohort_size(cohort: float | None, clients: int) -> int:
    """How many clients take part in a round.

    Args:
        cohort: an int is the number itself; a float is a ratio of the clients, rounded, at least one client; None
            takes 10, or all if there are fewer.
        clients: how many clients there are.

    Example:
        >>> cohort_size(0.1, 226), cohort_size(0.1, 3), cohort_size(1.0, 4), cohort_size(1, 4), cohort_size(None, 4)
        (23, 1, 4, 1, 4)
    """
    if isinstance(cohort, float):
        return max(1, int(cohort * clients + 0.5))
    return min(COHORT, clients) if cohort is None else cohort


def expected_cohort(config: Config, clients: int) -> int:
    """How many clients take part in a round, on average if each does with a probability.

    Args:
        config: the settings of a run.
        clients: how many clients there are.

    Example:
        >>> expected_cohort(Config(probability=0.25), 80), expected_cohort(Config(cohort=0.5), 80)
        (20, 40)
    """
    if config.probability is None:
        return cohort_size(config.cohort, clients)
    return max(1, round(config.probability * clients))


def _maker(config: Config, dataset: Dataset) -> Callable[[], torch.nn.Module]:
    """A function that builds the model of a run, with its initial weights and its frozen parts."""
    return with_initial_weights(model_maker(str(config.model), dataset), config.init, config.frozen, config.seed)


def environment() -> dict[str, str | int]:
    """What the bits of a result may depend on."""
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": sys.platform,
        "threads": torch.get_num_threads(),
        "processor": torch.backends.cpu.get_cpu_capability(),
    }
