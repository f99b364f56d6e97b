"""Who takes part in a round: which clients are available, and how the cohort is drawn from them."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from numbers import Integral, Real
from pathlib import Path
from random import Random
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from undrift.core.local.presence import PresentNow
from undrift.core.model.random import bernoulli_size, cohort, derive, weighted_draw
from undrift.core.tasks.task import Task
from undrift.util.naming.binding import is_whole
from undrift.util.naming.references import Reference

Present: TypeAlias = Callable[[int, int], bool]
"""Whether a client is available in a round, from both numbers, counted from 0."""

Trace: TypeAlias = str | Present | Sequence[Any] | Mapping[str, Any]
"""When clients are available: see `read_trace`."""

Weights: TypeAlias = Literal["uniform", "examples"] | Sequence[float]
"""With which weights clients are drawn: all alike, by their examples, or one number per client."""

_TRIES = 100  # draws for each client that is to begin, before those who are there are listed

FORM = (
    "write for every client a list of rounds, counted from 1, and [from, to) intervals, [1, 2, [5, 10]], "
    'or {"period": 24, "rounds": [[8, 20]]}'
)


@dataclass(frozen=True)
class Participation:
    """How the clients of a round are drawn.

    Args:
        task: gives the number of clients and of their examples.
        cohort: how many take part; None takes all.
        probability: if given, each takes part with this probability, instead of a cohort of fixed size.
        availability: when clients are available; None makes all available always.
        sampling: the weights with which a cohort is drawn, without replacement.
        empty: whether a round may have no client, as drawn; otherwise a probability is drawn again until it has one.
        separation: clients take turns: each can take part in one round of so many.
    """

    task: Task
    cohort: int | None = None
    probability: float | None = None
    availability: Trace | None = None
    sampling: Weights = "uniform"
    empty: bool = False
    separation: int = 1

    def __post_init__(self) -> None:
        if self.cohort is not None and self.probability is not None:
            raise ValueError(
                f"give cohort= (a fixed number of clients) or probability=, not both; "
                f"got {self.cohort} and {self.probability}"
            )
        for name, kind in (("cohort", Integral), ("probability", Real)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                what = "a whole number of clients" if kind is Integral else "a number above 0 and at most 1"
                raise ValueError(f"{name} must be {what}, got {value!r}")
        if self.cohort is not None and not 1 <= self.cohort <= self.pool:
            turns = f" in {self.separation} turns" if self.separation > 1 else ""
            raise ValueError(
                f"cohort: size must be between 1 and the population of {self.pool}{turns}, got {self.cohort}; "
                "None takes all clients"
            )
        if self.probability is not None and not 0 < self.probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, got {self.probability}")
        if self.weights is not None and self.probability is not None:
            raise ValueError("sampling: weights need a cohort of fixed size; give cohort= instead of probability=")
        if isinstance(self.sampling, str) and self.sampling not in ("uniform", "examples"):
            raise ValueError(
                f'sampling: use "uniform", "examples" or a list with one weight per client, got {self.sampling!r}'
            )
        if self._present is not None:
            self._present(self.task.population - 1, 0)  # a trace with too few clients raises here
        if isinstance(self._present, _Entries):
            self._present.check(self.task.population)

    @property
    def pool(self) -> int:
        """How many clients can take part in a round at least, if all are available."""
        return max(1, self.task.population // self.separation)

    @property
    def fixed(self) -> int | None:
        """The size of every cohort; None if it is drawn."""
        if self.probability is not None:
            return None
        return self.pool if self.cohort is None else self.cohort

    @property
    def expected(self) -> int:
        """How many clients a round has on average, one at least; fewer where clients are not available."""
        if self.fixed is not None:
            return self.fixed
        assert self.probability is not None
        return max(1, round(self.probability * self.pool))

    def size(self, seed: int, round: int) -> int:
        """How many clients take part in a round, at most: there may be fewer available."""
        if self.fixed is not None:
            return self.fixed
        assert self.probability is not None
        available = len(self.available(round))
        return bernoulli_size(seed, round, available, self.probability, self.empty) if available else 0

    def available(self, round: int) -> Sequence[int]:
        """The clients that can take part in a round; a trace is read once for each."""
        everyone, present = range(self.task.population), self._present
        if present is None:
            return everyone
        if round not in self._found:
            self._found.clear()
            self._found[round] = [client for client in everyone if present(client, round)]
        return self._found[round]

    def sample(self, seed: int, round: int) -> list[int]:
        """The clients of a round, sorted: all that are available if they are fewer than the cohort, none if none is."""
        if self._present is None and self.weights is None:
            size = self.size(seed, round)
            return cohort(seed, round, self.task.population, size) if size else []
        available = self.available(round)
        if not available:
            return []
        size = self.size(seed, round)
        if self.weights is not None:
            return sorted(weighted_draw(seed, round, self.masked(self.weights, round), size))
        return sorted(Random(derive(seed, round, "cohort")).sample(available, min(size, len(available))))  # noqa: S311

    def among(self, there: PresentNow) -> Self:
        """The same, of those alone who are there."""
        clients, present = set(there.clients()), self._present

        def both(client: int, round: int) -> bool:
            return client in clients and (present is None or present(client, round))

        return replace(self, availability=both)

    def draw(
        self,
        seed: int,
        round: int,
        size: int,
        busy: Collection[int],
        task: int | None = None,
        there: PresentNow | None = None,
    ) -> list[int]:
        """Clients that begin to train, sorted: so many of those that are available and not busy, or all of them.

        Without busy clients it is the cohort that `sample` draws, of another size.

        Args:
            seed: the run's seed.
            round: the round of the model that they get.
            size: how many.
            busy: those that train already.
            task: the number of the task, if one client begins within a round.
            there: who is there; None takes all.
        """
        number, purpose = (round, "cohort") if task is None else (task, "begin")
        if self.weights is not None:
            weights = self.masked(self.weights, round)
            weights[list(busy)] = 0
            if there is not None:
                weights[~np.isin(np.arange(len(weights)), there.clients())] = 0
            return sorted(weighted_draw(seed, number, weights, size, purpose))
        random = Random(derive(seed, number, purpose))  # noqa: S311
        population, chosen, tries = self.task.population, set[int](), 0
        if self._present is None and (busy or there is not None):
            while len(chosen) < min(size, population - len(busy)) and (there is None or tries < _TRIES * size):
                client = random.randrange(population)  # its cost does not grow with the population
                tries += 1
                if client not in busy and (there is None or client in there):
                    chosen.add(client)
            if there is None or len(chosen) == size:
                return sorted(chosen)
        available = self.available(round)
        if there is not None:  # few are there: the others are chosen from a list of all
            here = there.clients()
            available = here if self._present is None else sorted(set(here).intersection(available))
        out = {*busy, *chosen}
        idle = [client for client in available if client not in out] if out else available
        return sorted({*chosen, *random.sample(idle, min(size - len(chosen), len(idle)))})

    def masked(self, weights: NDArray[np.float64], round: int) -> NDArray[np.float64]:
        """Weights of all clients, 0 for those that are not available."""
        mask = np.zeros(len(weights))
        mask[np.asarray(self.available(round), dtype=np.int64)] = 1
        return weights * mask

    @cached_property
    def examples(self) -> NDArray[np.float64]:
        """How many examples each client has."""
        return np.array([self.task.examples(client) for client in range(self.task.population)], dtype=np.float64)

    @cached_property
    def weights(self) -> NDArray[np.float64] | None:
        """The weights with which the cohort is drawn; None draws all alike."""
        if isinstance(self.sampling, str):
            return self.examples if self.sampling == "examples" else None
        given = np.asarray(self.sampling)
        if given.ndim != 1 or given.dtype.kind not in "iuf":
            raise ValueError(
                'sampling: use "uniform", "examples" or a list with one number per client, '
                f"got {str(self.sampling)[:80]}"
            )
        weights = given.astype(np.float64)
        if len(weights) != self.task.population:
            raise ValueError(
                f"sampling: {len(weights)} weights, but there are {self.task.population} clients; give one per client"
            )
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ValueError("sampling: weights must be finite numbers of 0 or more, not all of them 0")
        return weights

    @cached_property
    def _found(self) -> dict[int, list[int]]:
        """The clients that were available in the last round that was requested."""
        return {}

    @cached_property
    def _present(self) -> Present | None:
        trace = None if self.availability is None else read_trace(self.availability)
        if self.separation == 1:
            return trace

        def present(client: int, round: int) -> bool:
            return client % self.separation == round % self.separation and (trace is None or trace(client, round))

        return present


def read_trace(trace: Trace) -> Present:
    """Whether a client is available in a round, as a function of both numbers, counted from 0 as in all of Python.

    Args:
        trace: such a function, or a reference to one; a list with an entry for every client, or a mapping from clients'
            numbers to entries, in which those not named are always available; or "file:trace.json", which contains
            one of the two. An entry is a list of rounds and [from, to) intervals, or a table with `period` and
            `rounds`, which repeat. Rounds are counted from 1 there, as in every file.

    Example:
        >>> present = read_trace({"0": [1, [5, 10]], "1": {"period": 24, "rounds": [[8, 20]]}})
        >>> present(0, 0), present(0, 9), present(1, 24 + 7), present(2, 0)
        (True, False, True, True)
    """
    if isinstance(trace, str):
        if trace.startswith("file:"):
            return read_trace(_from_file(trace))
        reference = Reference.parse(trace)
        if reference is None:
            raise ValueError(f'availability: write "file:trace.json" or a reference "mypackage.trace:f", got {trace!r}')
        trace = reference.resolve()
    if callable(trace):
        return trace
    return _Entries(trace)


def pin_trace(text: str) -> str:
    """The text of a trace with the hash of its file, so that a run with another trace is another run.

    Args:
        text: "file:trace.json", with the hash or without, or a reference, which stays as it is.
    """
    if not text.startswith("file:") or _PINNED.search(text):
        return text
    return f"{text}#{_digest(_bytes(text))}"


def _from_file(text: str) -> Any:
    """The content of a trace's file, whose hash must be the recorded one."""
    name = _PINNED.sub("", text)
    content, recorded = _bytes(name), text[len(name) + 1 :]
    if recorded and recorded != _digest(content):
        raise ValueError(f"availability: {name} has changed since the run began; restore it, or begin a new run")
    try:
        return json.loads(content)
    except ValueError as error:
        raise ValueError(f"availability: {name} is not JSON: {error}") from None


def _bytes(text: str) -> bytes:
    """The content of a file."""
    try:
        return Path(text.removeprefix("file:")).read_bytes()
    except OSError as error:
        raise ValueError(f"availability: {text} cannot be read: {error.strerror}; give the path of a file") from None


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


_PINNED = re.compile(r"#[0-9a-f]{16}$")
"""The hash at the end of a trace's text; other signs "#" are part of the file's name."""


class _Entries:
    """A trace as lists of intervals."""

    def __init__(self, trace: Any) -> None:
        listed = isinstance(trace, list | tuple)
        if not listed and not isinstance(trace, Mapping):
            raise ValueError(f"availability: {FORM}; got {str(trace)[:80]!r}")
        items = enumerate(trace) if listed else trace.items()
        self.length = len(trace) if listed else None
        self.entries = dict[int, tuple[int, list[tuple[int, int]]]]()
        for key, entry in items:
            if _client(key) in self.entries:
                raise ValueError(f"availability: client {_client(key)} is named twice; name it once")
            self.entries[_client(key)] = _entry(key, entry)

    def check(self, population: int) -> None:
        """Raise if it names a client that there is not."""
        if self.entries and max(self.entries) >= population:
            raise ValueError(
                f"availability: the trace names client {max(self.entries)}, but there are {population} clients, from 0 "
                f"to {population - 1}; leave it out"
            )

    def __call__(self, client: int, round: int) -> bool:
        if self.length is not None and client >= self.length:
            raise ValueError(
                f"availability: the trace has {self.length} clients, none for client {client}; give one for each"
            )
        if client not in self.entries:
            return True
        period, intervals = self.entries[client]
        now = (round % period if period else round) + 1
        return any(first <= now < end for first, end in intervals)


def _client(key: Any) -> int:
    """A client's number."""
    if isinstance(key, bool) or not (str(key).isascii() and str(key).isdigit()):
        raise ValueError(f"availability: a client is a number from 0 on, got {key!r}")
    return int(key)


def _entry(client: Any, entry: Any) -> tuple[int, list[tuple[int, int]]]:
    """The period of a client, 0 if it has none, and its intervals."""
    table = entry if isinstance(entry, Mapping) else {"period": 0, "rounds": entry}
    period, rounds = table.get("period"), table.get("rounds")
    sound = is_whole(period) and period >= 0 and isinstance(rounds, list | tuple) and len(table) == 2
    pairs = [(x, x + 1) if is_whole(x) else _pair(x) for x in rounds or ()] if sound else []
    if not sound or not all(len(pair) == 2 and all(is_whole(x) and x >= 1 for x in pair) for pair in pairs):
        raise ValueError(f"availability of client {client}: {FORM}; got {str(entry)[:80]!r}")
    for first, end in pairs:
        if first >= end or (period and end > period + 1):
            turn = f", or past the end of a period as two: [{first}, {period + 1}] and [1, ...]" if period else ""
            limit = f" and to at most {period + 1}, after the period's last round" if period else ""
            raise ValueError(
                f"availability of client {client}: [{first}, {end}] must go from a round to a later one{limit}; write "
                f"[from, to) with from below to{turn}"
            )
    return period or 0, [(first, end) for first, end in pairs]


def _pair(interval: Any) -> tuple[Any, ...]:
    """An interval as written."""
    return tuple(interval) if isinstance(interval, list | tuple) else ()
