"""Builds what a config describes: data, partition, model, task, engine."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.algorithm import Algorithm
from undrift.core.participation import read_trace
from undrift.core.random import derive
from undrift.core.types import Local
from undrift.data import CorruptTests, Dataset, DataTask, Split, load
from undrift.data.corruption import assign, corrupted
from undrift.data.partition import Partition, parse, partition
from undrift.data.schemes import Scheme, natural
from undrift.engine.backend import Backend, InProcess
from undrift.engine.simulation import Simulation
from undrift.experiment.config import Config
from undrift.experiment.named import check_name, parts
from undrift.experiment.strict import ConfigError
from undrift.models import KINDS, build
from undrift.util.steps import tell

CLIENTS, COHORT = 100, 10  # defaults


@dataclass(frozen=True, eq=False)
class Setup:
    """A run, ready to start.

    Args:
        config: the settings, with a model's name.
        algorithm: the method.
        task: the model, its loss and the clients' data.
        partition: who has which examples.
        local: the settings all clients share.
        pool: Ray workers that outlive the run; None starts workers for this run only.
    """

    config: Config
    algorithm: Algorithm
    task: DataTask
    partition: Partition
    local: Local
    pool: Any = None


def prepare(config: Config, dataset: Dataset | None = None) -> Setup:
    """Load the data, split it over the clients and choose the model.

    Args:
        config: the settings.
        dataset: the data to use instead of loading those that the settings name.
    """
    try:
        scheme = check_names(config)
        name, arguments = parts(config.data)
        tell("loading %s", name)
        dataset = load(name, **arguments) if dataset is None else dataset
        owners = None if dataset.train.owners is None else dataset.train.owners.numpy()
        labels = dataset.train.targets.numpy()
        tell("splitting %s over clients", name)
        owned = natural(scheme)
        wanted = config.clients or (None if owned else CLIENTS)
        split = partition(scheme, labels, clients=wanted, seed=config.seed, owners=owners)
        config = _resolved(config, dataset, split)
        make = maker(str(config.model), dataset)
        make()  # raises here if the model does not fit the data
        if owned is not None:
            dataset = _tested(dataset, split) if owned.test is None else _tested_on(dataset, owned.test)
        dataset, corruptions = _shifted(dataset, split, config.seed)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error
    if owned is not None and owned.test is not None:
        labels = np.where(owners == owned.test, -1, labels)  # the server must not have examples of the test set
    reserved = balanced(labels, config.proxy, config.seed)
    clients = [np.setdiff1d(own, reserved) if len(reserved) else own for own in split.clients]
    task = DataTask(
        dataset,
        clients,
        make,
        config.augment,
        config.holdout,
        config.seed,
        reserved=reserved,
        corruptions=corruptions,
    )
    return Setup(config, config.algorithm(), task, split, config.local.local())


def check_names(config: Config) -> Scheme:
    """The partition of a run; raises if a name is unknown or a trace cannot be read, before anything is loaded."""
    check_name("data", config.data)
    if config.model is not None:
        check_name("model", config.model)
    if config.availability is not None:
        read_trace(config.availability)
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
    if config.model != setup.config.model:
        task = replace(task, make=maker(str(config.model), task.dataset))
    return replace(setup, config=config, algorithm=config.algorithm(), task=task, local=config.local.local())


def balanced(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """The sorted indices of `count` examples, drawn evenly over the classes; those labelled -1 are not drawn."""
    draw, kinds = np.random.default_rng(derive(seed, "proxy")), np.unique(labels[labels >= 0])
    shares = [count // len(kinds) + (i < count % len(kinds)) for i in range(len(kinds))]
    drawn = [draw.permutation(np.flatnonzero(labels == k))[:n] for k, n in zip(kinds, shares, strict=True)]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def _tested(dataset: Dataset, split: Partition) -> Dataset:
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


def _tested_on(dataset: Dataset, owner: int) -> Dataset:
    """The data with all examples of one owner, of both splits, as the test set."""
    splits = (dataset.train, dataset.test)
    kept = [(split, split.owners == owner) for split in splits if split.owners is not None]
    inputs = torch.cat([split.inputs[own] for split, own in kept])
    targets = torch.cat([split.targets[own] for split, own in kept])
    return replace(dataset, test=Split(inputs, targets, torch.full_like(targets, owner)))


def _shifted(dataset: Dataset, split: Partition, seed: int) -> tuple[Dataset, CorruptTests | None]:
    """The data with corrupted training images, and the corrupted tests, if the partition asks for them."""
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


def _resolved(config: Config, dataset: Dataset, split: Partition) -> Config:
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


def default_model(dataset: Dataset, algorithm: Algorithm) -> str:
    """The default model for a data set: small enough for a CPU, and of the kind that the method needs.

    Args:
        dataset: the data.
        algorithm: the method.
    """
    if dataset.kind == "text":
        return "lstm"
    if algorithm.needs.model:
        return next(name for name, kind in KINDS.items() if kind == algorithm.needs.model)
    return "small-cnn" if dataset.shape[1] <= 28 else "cnn"


def maker(model: str, dataset: Dataset) -> Callable[[], torch.nn.Module]:
    """A function that builds a model for a data set; it is sent to the workers, so it holds no data.

    Args:
        model: its name, with arguments as in "vit-tiny(patch=16)".
        dataset: the data; its images have the size of the model's `image`, if that is given.
    """
    name, arguments = parts(model)
    if dataset.kind == "text":
        return partial(build, name, classes=dataset.classes, symbols=dataset.symbols, **arguments)
    channels, side = dataset.shape[:2]
    if arguments.pop("image", side) != side:
        raise ValueError(f"{model}: the images of {dataset.name} have {side} pixels; resize them: [data] resize = ...")
    return partial(build, name, classes=dataset.classes, channels=channels, image=side, **arguments)


@contextmanager
def engine(setup: Setup, states: Path) -> Iterator[Simulation]:
    """The simulation of a run on the backend it names, closed at the end; `states` is the clients' state folder."""
    config = setup.config
    with ExitStack() as stack:
        backend: Backend
        if config.engine.name == "local":
            backend = InProcess(root=states)
        elif config.engine.name == "ray":
            from undrift.engine.ray import RayBackend

            backend = RayBackend(setup.pool or stack.enter_context(workers(config)), root=states)
        else:
            from undrift.engine.flower.backend import FlowerBackend

            backend = FlowerBackend(config.engine.workers, root=states)
        yield stack.enter_context(
            Simulation(
                setup.algorithm,
                setup.task,
                setup.local,
                cohort=None if config.probability else cohort_size(config.cohort, setup.task.population),
                probability=config.probability,
                seed=config.seed,
                bound=config.bound,
                failures=config.failures,
                depth=config.output.checkpoint_every * config.output.keep,
                backend=backend,
                availability=config.availability,
                sampling=config.sampling,
            )
        )


@contextmanager
def workers(config: Config) -> Iterator[Any]:
    """Ray workers for the runs of a config, or None if its engine is not Ray."""
    if config.engine.name != "ray":
        yield None
        return
    from undrift.engine.ray import Pool

    with Pool(config.engine.workers, address=config.engine.address) as pool:
        yield pool


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
