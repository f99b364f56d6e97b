"""Tasks of one's own in runs: found by reference or made in Python, described, and recognised again by their content.

task.json in a run's folder has the task's name, its size and hashes of its initial weights, of its clients' examples
and of their data. A run resumes only with a task that has the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undrift.core.model.flat_model import bytes_of
from undrift.core.model.modules import plain_state
from undrift.core.records.types import Local
from undrift.core.tasks.evaluation import LOSS, direction_of, evaluating, named_metrics, read_goal
from undrift.core.tasks.example_losses import criterion_loss
from undrift.core.tasks.task import Evaluates, EvaluatesClients, ReadsOnce, Task
from undrift.core.tasks.tensor_task import TensorTask
from undrift.data.tasks.rng_streams import Streams
from undrift.runs.folder.files import RunError, as_json, read_json, reading
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import ACCURACY, GoalText
from undrift.runs.settings.named_arguments import parts
from undrift.runs.settings.schema import ConfigError
from undrift.util.naming.names import suggest
from undrift.util.naming.references import Reference
from undrift.util.storage.files import write

RECORD = "task.json"

_METHODS = ("population", "model", "loss", "examples", "batches")
_SIZE = 8  # examples of each client whose content is hashed, where the task does not fix the size of batches


class Abilities(NamedTuple):
    """What a task measures: its columns, and whether clients have tests of their own."""

    columns: tuple[str, ...] = ("accuracy", LOSS)
    own_tests: bool = True


def find_task(text: str) -> Task:
    """The task that a run's settings name: a reference to it, or to a function that returns it.

    Args:
        text: "package.module:name", with arguments of the function as in "package.module:name(clients=5)".
    """
    name, arguments = parts(text)
    reference = Reference.parse(name)
    if reference is None:
        raise ConfigError(
            f"task: {name} was made in Python and has no reference: give the task in Python, as in resume(folder, "
            "task=task) and export(folder, task=task) of undrift.runs or load_run(folder).model(task); the "
            'command line needs task = "package.module:function"'
        )
    found = reference.resolve()
    if callable(found) and (isinstance(found, type) or not hasattr(found, "batches")):
        try:
            found = partial(found, **arguments)()
        except Exception as error:
            raise ConfigError(f"task: {text} failed with {type(error).__name__}: {error}") from error
    elif arguments:
        raise ConfigError(f"task: {name} is a task, not a function, and takes no arguments; leave out {arguments}")
    return require_task(found, f"task: {text}")


def require_task(task: Any, what: str = "task") -> Task:
    """A task; raises if an object is none.

    Args:
        task: the object.
        what: how to call it in errors.
    """
    missing = [name for name in _METHODS if not hasattr(task, name)]
    if missing:
        raise ConfigError(
            f"{what}: {type(task).__name__} is not a task, it has no {', '.join(missing)}; give a TensorTask, a "
            "LoaderTask or an object with the methods of undrift.Task"
        )
    given: Task = task
    return given


def task_name(task: Task) -> str:
    """The name of a task made in Python: its own, or that of its class."""
    name = getattr(task, "name", "")
    text = name if isinstance(name, str) and name else type(task).__name__
    if any(character in text for character in ":()"):
        raise ConfigError(f"task: a name has no colon and no brackets, got {text!r}")
    return text


def named_config(task: Task | str | None, settings: Mapping[str, Any]) -> Config:
    """The settings of a run that are given by name.

    Args:
        task: of the run, or a reference to it.
        settings: keys of a run file; `local` may be a `Local`, and `engine` a name.
    """
    values = dict(settings)
    if "local" in values and isinstance(values["local"], Local):
        values["local"] = asdict(values["local"])
    if isinstance(values.get("engine"), str):
        values["engine"] = {"name": values["engine"]}
    if not isinstance(values.get("method", ""), str):
        raise ConfigError('method: a run records it as a text: write method="fedprox", with arguments={"mu": 0.1}')
    if task is not None:
        values["task"] = task if isinstance(task, str) else task_name(task)
    size = getattr(task, "batch_size", None)
    local = values.get("local", {})
    if size is not None and isinstance(local, Mapping) and "batch_size" not in local:
        values["local"] = {**local, "batch_size": size}  # that of the task's loaders
    return Config.build(values)


def abilities(task: Task) -> Abilities:
    """What a task measures, from one evaluation of its initial model: one that fails does so before training."""
    model = task.model()
    with evaluating(model):
        try:
            columns = tuple(task.evaluate(model)) if isinstance(task, Evaluates) else ()
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            metrics = getattr(task, "metrics", None)
            frames, parts = [frame for frame, _ in walk_tb(error.__traceback__)], set(map(id, model.modules()))
            if any(id(frame.f_locals.get("self")) in parts for frame in frames):
                raise  # the user's own model: its traceback shows where
            for frame in frames:
                if frame.f_code is criterion_loss.__code__:
                    outputs, targets = (_describe(frame.f_locals[name]) for name in ("outputs", "targets"))
                    raise ConfigError(
                        f"criterion: the first evaluation failed ({type(error).__name__}: {error}); does it take "
                        f"outputs and targets such as {outputs} and {targets}?"
                    ) from error
            if not metrics or not isinstance(metrics, Mapping | Sequence):
                raise  # the user's own evaluation
            raise ConfigError(
                f"metrics: the first evaluation failed ({type(error).__name__}: {error}); do the metrics "
                f"{', '.join(named_metrics(metrics))} fit the model's outputs and the targets?"
            ) from error
        own = isinstance(task, EvaluatesClients) and any(
            task.evaluate_client(model, client) for client in range(task.population)
        )
    return Abilities(columns, own)


def _describe(value: Any) -> str:
    """A tensor by its dtype and shape; anything else by its class."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def resolve_goal(goal: str | None, task: Task, able: Abilities, personal: bool) -> str | None:
    """The goal of a run, complete: that of its settings, of its task, or by what the task measures; None is accuracy.

    Args:
        goal: of the settings.
        task: whose attribute `goal` counts if the settings have none.
        able: what the task measures.
        personal: whether the method has personal models.
    """
    columns = able.columns
    wanted = GoalText.parse(goal) if goal is not None else None
    if wanted is None:
        given = read_goal(getattr(task, "goal", None), dict.fromkeys(columns))
        metrics = [name for name in columns if name != LOSS]
        name = "accuracy" if "accuracy" in metrics else next(iter([*metrics, *columns]), "train_loss")
        wanted = GoalText(*given) if given is not None else GoalText(name, direction_of(name))
    if wanted.metric not in (*columns, "train_loss"):
        raise ConfigError(f"goal: the run does not measure {wanted.metric!r}; {suggest(wanted.metric, columns)}")
    if personal and (not able.own_tests or wanted.metric == "train_loss"):
        wanted = wanted._replace(whole=True)
    return None if wanted == ACCURACY else str(wanted)


def task_record(task: Task, text: str) -> dict[str, Any]:
    """What is written down of a task.

    Args:
        task: the task.
        text: its name or reference.
    """
    examples = [task.examples(client) for client in range(task.population)]
    return {
        "task": text,
        "kind": type(task).__name__,
        "clients": task.population,
        "examples": sum(examples),
        "sha256": {
            "initial weights": _hash(plain_state(task.model())),
            "examples of each client": _hash(examples),
            "data": _data(task, examples),
            **({"test data": _hash([task.test, task.client_tests])} if isinstance(task, TensorTask) else {}),
        },
    }


def same_task(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a run's task into its folder, or raise if the run was started with another task.

    Args:
        folder: the run's folder.
        record: from `task_record`.
    """
    path, now = folder / RECORD, record["sha256"]
    with reading(path):
        before = read_json(path)
        if before is None:
            write(path, as_json(record), follow=False)
            return
        then, clients = {part: str(x) for part, x in before["sha256"].items()}, before["clients"]
    changed = {part: x for part, x in then.items() if now.get(part) != x}
    other = [f"its {part} ({now.get(part, 'none')[:12]} instead of {x[:12]})" for part, x in changed.items()]
    if clients != record["clients"]:
        other = [f"its clients ({record['clients']} instead of {clients})"]
    if other:
        raise RunError(
            f"{folder}: the task {record['task']} is not the run's: it differs in {', '.join(other)}; give the task "
            "that the run was started with, or another folder"
        )


def _data(task: Task, examples: list[int]) -> str:
    """The hash of all data of tensors, or else of the first batch of every client."""
    if isinstance(task, TensorTask):
        return _hash([task.inputs, task.targets, list(task.clients)])
    if isinstance(task, ReadsOnce) and task.reads_once:
        return ""
    size, digest = getattr(task, "batch_size", None) or _SIZE, sha256()
    for client in (client for client, count in enumerate(examples) if count):
        with Streams(0):
            order = torch.Generator().manual_seed(client)
            digest.update(_hash(next(iter(task.batches(client, size, order)))).encode())
    return digest.hexdigest()


def _hash(value: Any) -> str:
    digest = sha256()
    for piece in _bytes(value):
        digest.update(piece)
    return digest.hexdigest()


def _bytes(value: Any) -> Iterator[bytes]:
    """The content of tensors in mappings and lists, and of numbers and texts; other objects count by their class."""
    if isinstance(value, Tensor):
        yield f"{value.dtype}{list(value.shape)}".encode()
        yield bytes_of(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key).encode()
            yield from _bytes(item)
    elif isinstance(value, list | tuple):
        yield f"[{len(value)}]".encode()
        for item in value:
            yield from _bytes(item)
    else:
        yield (repr(value) if isinstance(value, int | float | str | bool) else type(value).__name__).encode()
