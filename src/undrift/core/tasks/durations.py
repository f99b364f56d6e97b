"""How long a client's task takes in virtual time, from download to arrival.

    2.5                                     seconds, the same for every client and task
    [1, 2, 0.5]                             one number per client
    "uniform(1, 5)"                         drawn for every task, between two numbers
    "exponential(2)"                        with this mean
    "half-normal(1, least=0.1)"             least + |x|, x normal with this standard deviation
    "log-normal(1, sd=0.6)"                 with this median; sd is that of the logarithm
    "mypackage.speeds:f"                    f(client, task), both counted from 0; in Python also the function itself
    "devices('phones.csv')"                 how fast each client is and when it is there, from a file: see `devices`

Every distribution takes `per="step"` or `per="example"`, which make it the time of one local step or example;
`classes=(1, 3, 10)`, factors of which each client has one, drawn once; and `once=True`, which draws once for a client
rather than for every task. What is drawn depends on the run's seed, the task and the client only. Times are whole
nanoseconds, so that no two machines order events differently.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf
from random import Random
from typing import Any, Literal, TypeAlias

from undrift.core.local.amounts import check_population, portable
from undrift.core.local.devices import Devices, file_digests, read_devices
from undrift.core.local.presence import Presence
from undrift.core.model.random import derive
from undrift.core.records.types import Local
from undrift.core.tasks.task import Task
from undrift.util.naming.binding import build
from undrift.util.naming.calls import Call, changed_fields, read_call
from undrift.util.naming.names import suggest
from undrift.util.naming.references import Reference

Durations: TypeAlias = float | str | Sequence[float] | Callable[[int, int], float]
"""How long tasks take: see the module."""

FORMS = (
    'write seconds, a list with one number per client, "exponential(2)" or another distribution, or a reference '
    '"mypackage.speeds:f"'
)
SECOND = 10**9
_LONGEST = 1e9  # seconds, thirty years: times are whole nanoseconds in 64 bits


@dataclass(frozen=True, kw_only=True)
class _Distribution:
    """What all distributions share: see the module."""

    per: Literal["task", "step", "example"] = "task"
    classes: tuple[float, ...] = ()
    once: bool = False

    def __post_init__(self) -> None:
        if self.per not in ("task", "step", "example"):
            raise ValueError(f'durations: per must be "task", "step" or "example", got {self.per!r}')
        if not all(0 < x < inf for x in (*self.numbers, *self.classes)):
            raise ValueError(f"durations: {self!r} must have positive and finite numbers")

    @property
    def numbers(self) -> tuple[float, ...]:
        """Its own numbers, which must be positive."""
        shared = {f.name for f in fields(_Distribution)}
        return tuple(getattr(self, f.name) for f in fields(self) if f.name not in shared)

    def draw(self, random: Random) -> float:
        """Seconds."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Constant(_Distribution):
    seconds: float = 1.0

    def draw(self, random: Random) -> float:
        return self.seconds


@dataclass(frozen=True)
class _Uniform(_Distribution):
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(
                f"durations: uniform must go from a smaller to a larger number, got {self.low}, {self.high}"
            )
        super().__post_init__()

    def draw(self, random: Random) -> float:
        return self.low + (self.high - self.low) * random.random()


@dataclass(frozen=True)
class _Exponential(_Distribution):
    mean: float

    def draw(self, random: Random) -> float:
        return random.expovariate(1 / self.mean)


@dataclass(frozen=True)
class _HalfNormal(_Distribution):
    sd: float
    least: float = 0.001

    def draw(self, random: Random) -> float:
        return self.least + abs(random.gauss(0.0, self.sd))


@dataclass(frozen=True)
class _LogNormal(_Distribution):
    median: float
    sd: float = 0.6

    def draw(self, random: Random) -> float:
        return self.median * random.lognormvariate(0.0, self.sd)


@dataclass(frozen=True)
class DeviceFiles:
    """The files of devices in a text.

    Args:
        file: a CSV file, or FedScale's file of speeds.
        behavior: FedScale's file of behavior; None if there is none.
        sha256: the first signs of their SHA-256; None takes the files as they are.
    """

    file: str
    behavior: str | None = None
    sha256: str | None = None

    def __str__(self) -> str:
        return str(Call("devices", (), changed_fields(self)))

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return [one for one in (self.file, self.behavior) if one is not None]

    def pinned(self) -> "DeviceFiles":
        """With the SHA-256, so that a run with other files is another run."""
        return self if self.sha256 else replace(self, sha256=file_digests(self.file, self.behavior))

    def read(self) -> Devices:
        """What the files have."""
        return read_devices(self.file, self.behavior, self.sha256)


_FORMS: dict[str, Callable[..., Any]] = {
    "devices": DeviceFiles,
    "constant": _Constant,
    "uniform": _Uniform,
    "exponential": _Exponential,
    "half-normal": _HalfNormal,
    "log-normal": _LogNormal,
}


@dataclass(frozen=True)
class Clock:
    """The durations of a run's tasks.

    Args:
        durations: how long tasks take: see the module.
        seed: the run's seed.
        task: has the clients' numbers of examples.
        local: has their numbers of local steps.
    """

    durations: Durations
    seed: int
    task: Task
    local: Local

    def __post_init__(self) -> None:
        check_population("durations", self._found, self.task.population)
        self.presence  # noqa: B018  raises if a file cannot be read

    @cached_property
    def _found(self) -> Any:
        return read_durations(self.durations)

    @cached_property
    def presence(self) -> Presence | None:
        """When clients are there; None if all are, always."""
        if not isinstance(self._found, DeviceFiles) or self._devices.intervals is None:
            return None
        return Presence(self._devices.intervals, self.task.population)

    @cached_property
    def _devices(self) -> Devices:
        found: Devices = self._found.read()
        return found

    @cached_property
    def _size(self) -> int:
        """Bytes of a message with the model, for devices whose speed is per byte."""
        if not any(self._devices.byte):
            return 0
        return sum(one.nbytes for one in self.task.model().parameters())

    def nanoseconds(self, number: int, client: int, version: int) -> int:
        """How long a task takes, one nanosecond at least.

        Args:
            number: of the task.
            client: who does it.
            version: the round of the model it starts from.
        """
        found = self._found
        if isinstance(found, DeviceFiles):
            examples = int(self.task.examples(client))
            steps = self.local.step_count(examples, client, version, self.seed)
            done = sum(self.local.batch_sizes(examples, steps)) if steps else 0
            return min(max(1, self._devices.nanoseconds(client, done, self._size)), round(_LONGEST * SECOND))
        if isinstance(found, _Distribution):
            names = (client,) if found.once else (number, client)
            seconds = found.draw(Random(derive(self.seed, *names, "duration")))  # noqa: S311
            seconds *= self._amount(found, client, version) * self._class_factor(found, client)
        elif callable(found):
            seconds = _seconds(f"durations of client {client}, task {number}", found(client, number))
        else:
            seconds = found[client] if isinstance(found, tuple) else found
        return max(1, round(min(seconds, _LONGEST) * SECOND))

    def _amount(self, found: _Distribution, client: int, version: int) -> int:
        """How many units of work a task has."""
        if found.per == "task":
            return 1
        examples = int(self.task.examples(client))
        return examples if found.per == "example" else self.local.step_count(examples, client, version, self.seed)

    def _class_factor(self, found: _Distribution, client: int) -> float:
        """The factor of the client's class."""
        if not found.classes:
            return 1.0
        return found.classes[derive(self.seed, client, "class") % len(found.classes)]


def read_durations(value: Any) -> Any:
    """Durations that can be used: a number, a tuple, a distribution or a function; a `ValueError` if they cannot."""
    if isinstance(value, str):
        return _read_text(value)
    if callable(value):
        return value
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return tuple(_seconds(f"durations[{client}]", x) for client, x in enumerate(value))
    return _seconds("durations", value)


def portable_durations(value: Any) -> Any:
    """Durations as settings keep them: checked, a function as its reference, files with their hash."""
    found = read_durations(value)
    return str(found.pinned()) if isinstance(found, DeviceFiles) else portable("durations", value)


def _read_text(text: str) -> Any:
    """The distribution or the function in a text."""
    reference = Reference.parse(text)
    if reference is not None:
        found = reference.resolve()
        if not callable(found):
            raise ValueError(f"durations: {text} must be a function of a client and a task, got {type(found).__name__}")
        return found
    call = read_call(text, FORMS)
    if call.name not in _FORMS:
        raise ValueError(f"durations: no distribution is named {call.name!r}; {suggest(call.name, _FORMS)}")
    return build(_FORMS[call.name], call)


def _seconds(name: str, value: Any) -> float:
    """A positive number of seconds, at most `_LONGEST`."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST:
        raise ValueError(f"{name} must be a positive number of seconds, at most {_LONGEST:g}, got {value!r}; {FORMS}")
    return float(value)
