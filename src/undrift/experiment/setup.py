"""Builds what a config describes: data, partition, model, task."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from undrift.core.algorithm import Algorithm
from undrift.core.evaluation import named_metrics
from undrift.core.participation import read_trace
from undrift.core.task import HasProxy, Task
from undrift.core.types import Local
from undrift.data import Dataset, DataTask
from undrift.data.losses import find_loss
from undrift.data.natural import natural
from undrift.data.partition import Partition, has_clients, parse, partition
from undrift.data.schemes import Scheme
from undrift.engine.job import Job
from undrift.experiment.config import Config
from undrift.experiment.devices import Workers
from undrift.experiment.initial import begun, check_init
from undrift.experiment.judge import has_personal
from undrift.experiment.loading import check_owner, default_clients, load_data
from undrift.experiment.model import check_fit, check_kind, default_model, maker
from undrift.experiment.named import check_name, parts
from undrift.experiment.splits import balanced, shifted, tested, tested_on
from undrift.experiment.strict import ConfigError
from undrift.experiment.tasks import Abilities, abilities, check_given, find_task, judged
from undrift.util.steps import tell, warn

CLIENTS, COHORT = 100, 10  # defaults
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


def prepare(config: Config, dataset: Dataset | None = None, task: Task | None = None) -> Setup:
    """Load the data, split it over the clients and choose the model.

    Args:
        config: the settings.
        dataset: the data to use instead of loading those that the settings name.
        task: the task to use instead of the one that the settings name.
    """
    if config.task is not None:
        return _of_task(config, find_task(config.task) if task is None else check_given(task))
    try:
        scheme = check_names(config)
        name, arguments = parts(config.data)
        tell("loading %s", name)
        dataset = load_data(name, arguments, scheme) if dataset is None else dataset
        check_owner(dataset, scheme)
        owners = None if dataset.train.owners is None else dataset.train.owners.numpy()
        labels = dataset.train.targets.numpy()
        tell("splitting %s over clients", name)
        owned = natural(scheme)
        wanted = config.clients or (None if has_clients(scheme) else default_clients(len(labels), CLIENTS))
        split = partition(scheme, labels, clients=wanted, seed=config.seed, owners=owners)
        config = _resolved(config, dataset, split)
        make = _maker(config, dataset)
        check_kind(config, make, dataset)
        if owned is not None:
            dataset = tested(dataset, split) if owned.test is None else tested_on(dataset, owned.test)
        dataset, corruptions = shifted(dataset, split, config.seed)
        criterion = None if config.loss is None else find_loss(config.loss)
        metrics = named_metrics(config.metrics)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error
    known = split.labels
    if owned is not None and owned.test is not None:
        known = np.where(owners == owned.test, -1, known)  # the server must not have examples of the test set
    reserved = balanced(known, config.proxy, config.seed)
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
    return _judged(config, data_task, split, Abilities() if usual else abilities(data_task))


def _of_task(config: Config, task: Task) -> Setup:
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
    return _judged(config, task, None, abilities(task))


def _judged(config: Config, task: Task, split: Partition | None, able: Abilities, pool: Workers | None = None) -> Setup:
    """The run, with the goal by which it is judged."""
    algorithm, local = config.algorithm(), config.local.local()
    goal = judged(config.goal, task, able, has_personal(algorithm, local))
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
    return _judged(config, task, setup.partition, setup.able, setup.pool)


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
    return begun(maker(str(config.model), dataset), config.init, config.frozen, config.seed)


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
