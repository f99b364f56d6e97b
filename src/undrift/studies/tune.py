"""Tuning: a grid over the learning rate and at most one argument of a method, widened until its best point is inside.

OUT/trials/<values>  a run folder for each point of the grid; with several seeds <values>/seed-<seed>
OUT/tune.json        all trials and the choice
OUT/choice.toml      the settings to run

Trials are scored on examples held out from every client, never on the test set: each client's own model if the method
is personal, else the global model. A task of one's own is scored on the clients' tests it has, or else on its test
data, which should then be data for validation.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from math import inf, isfinite, prod
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from undrift.runs.folder.files import RunError
from undrift.runs.folder.judge import GLOBAL, judged_rows, lost_round, measured_rows
from undrift.runs.loop.run import complete
from undrift.runs.loop.stall import StalledError
from undrift.runs.settings.config import Config, Scalar
from undrift.runs.settings.engine import Workers
from undrift.runs.settings.goals import Column
from undrift.runs.settings.schema import ConfigError, Strict, merge_settings, read_toml, validate
from undrift.runs.setup.prepare import Setup, prepare, variant
from undrift.studies.comparable import check_left_out, check_shared
from undrift.studies.statistics import late_mean
from undrift.util.steps import tell_trial
from undrift.util.storage.files import make_private, write
from undrift.util.storage.metrics import read_rows


def score(rows: Sequence[Mapping[str, Any]], by: str = "best", judged_by: str = GLOBAL) -> float:
    """The mean accuracy on clients' held-out examples, in one round or the last ones; nan if training diverged.

    Of a metric of which less is better it is the negative. Without tests of the clients it is the column that judges.

    Args:
        rows: of the rounds, in order.
        by: "best", "last", or "late" for the mean of the last three evaluations.
        judged_by: the column by which the method is judged; with "accuracy" the global model is scored.
    """
    if has_diverged(rows):
        return float("nan")
    judge, own = Column(judged_by), f"client_{judged_by}"
    column = own if not judge.personal and measured_rows(rows, own) else judge
    sign = -1.0 if judge.minimised else 1.0
    if by != "best" and lost_round(rows, column) is not None:
        return float("nan")
    scores = [sign * float(row[column]) for row in measured_rows(rows, column)]
    if by == "late" or not scores:
        return late_mean(scores)
    return max(scores) if by == "best" else scores[-1]


def has_diverged(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether training diverged: all uploads of some round were rejected, or its loss is not finite.

    Args:
        rows: of the rounds, in order.
    """
    return any((row["clients"] == 0 and row["rejected"]) or not isfinite(row.get("train_loss", 0.0)) for row in rows)


Point = tuple[float, ...]
Watch = Callable[[str, dict[str, Any]], None]

GRID: dict[str, tuple[float, ...]] = {"lr": (0.01, 0.05, 0.1, 0.15)}
HOLDOUT, LEAST = 0.2, 0.1


def _axes(grid: Any) -> Any:
    """A grid whose values are numbers; what is no mapping is left to pydantic."""
    for name, values in grid.items() if isinstance(grid, Mapping) else ():
        if not isinstance(values, list | tuple) or not all(isinstance(x, int | float) for x in values):
            raise ValueError(
                f"grid.{name}: values must be a list of numbers, as in lr = [0.05, 0.1], got {str(values)[:80]!r}"
            )
    return grid


Axes: TypeAlias = Annotated[dict[str, tuple[int | float, ...]], BeforeValidator(_axes)]
"""The axes of a grid, each with its numbers."""


class RefusedValueError(ConfigError):
    """A point of the grid that the settings or the method do not accept."""


class Tuning(Strict):
    """A search over settings of one method.

    Args:
        method: an algorithm's name.
        arguments: its fixed arguments.
        grid: "lr" and at most one argument of the method, each with its first values.
        by: "best" scores a trial by its best round, "last" by its last, "late" by the mean of its last three
            evaluations.
        widenings: how often the grid may be widened.
        seeds: of the trials; the score of a point is the mean over them. Without any it is the seed of `base`.
        base: all other settings of the runs; without `holdout` a fifth of every client's examples is held out.
    """

    method: str
    arguments: dict[str, Scalar] = Field(default_factory=dict)
    grid: Axes = Field(default_factory=lambda: dict(GRID))
    by: Literal["best", "last", "late"] = "best"
    widenings: Annotated[int, Field(ge=0, le=100)] = 6
    seeds: tuple[int, ...] = ()
    base: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        others = [name for name in self.grid if name != "lr"]
        if not self.grid or len(others) > 1:
            raise ValueError(f"grid: takes lr and at most one argument of the method, got {', '.join(self.grid)}")
        for name, values in self.grid.items():
            if len(set(values)) < 2:
                raise ValueError(f"grid.{name}: needs two values at least to widen from, got {list(values)}")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: each once, got {list(self.seeds)}")
        for key in sorted(self.base.keys() & {"method", "arguments"}):
            raise ValueError(f"base.{key}: write it at the top of the file")
        return self

    @classmethod
    def read(cls, path: Path) -> "Tuning":
        """A search from a TOML file."""
        return cls.build(read_toml(path), str(path))

    @classmethod
    def build(cls, values: Mapping[str, Any], source: str = "tune") -> "Tuning":
        """A search from a mapping; raises `ConfigError` if any point of the grid has invalid settings."""
        tuning = validate(cls, values, source)
        for point in product(*tuning.grid.values()):
            tuning.config(point, source)
        return tuning

    def config(
        self, point: Point, source: str = "tune", seed: int | None = None, given: Mapping[str, Any] | None = None
    ) -> Config:
        """The run of a point, with the seed of `base` or with this one; `given` overrides other settings."""
        own = dict(zip(self.grid, point, strict=True))
        local = {"lr": own.pop("lr")} if "lr" in own else {}
        values = {"method": self.method, "arguments": {**self.arguments, **own}, "local": local}
        seeded = {} if seed is None else {"seed": seed}
        config = Config.build(merge_settings(merge_settings(self.base, {**values, **seeded}), given or {}), source)
        if 0 < config.holdout < LEAST:
            raise ConfigError(f"{source}: holdout: trials are scored on it: {LEAST} at least, got {config.holdout}")
        if config.task is not None:  # which has data of its own to score trials on
            return config
        return config if config.holdout else config.model_copy(update={"holdout": HOLDOUT})


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Args:
        axes: the values on each axis, widened.
        scores: the score of every point; -inf where training diverged.
        best: the best point.
        edges: where the best point is on each axis: "inside", "at its limit" (values beyond are invalid) or "at the
            edge" (no widening left).
    """

    axes: dict[str, list[float]]
    scores: dict[Point, float]
    best: Point
    edges: dict[str, str]


def search(grid: Mapping[str, Sequence[float]], evaluate: Callable[[Point], float], widenings: int = 6) -> SearchResult:
    """Evaluate a grid; while its best point is on an edge, add a step beyond that edge and evaluate the new points.

    A method whose best value is outside its grid would be compared at a handicap. Among equal points, one inside wins.

    Args:
        grid: the first values on each axis.
        evaluate: returns the score of a point, larger is better; nan counts as diverged. For an invalid value it raises
            `RefusedValueError`: on the given grid this is an error, beyond it the axis ends there.
        widenings: how often the grid may be widened; axes whose edge is hit are widened together.

    Example:
        >>> result = search({"lr": [0.1, 0.2]}, lambda point: -abs(point[0] - 0.7))
        >>> result.axes, result.best, result.edges
        ({'lr': [0.1, 0.2, 0.4, 0.8, 1.6]}, (0.8,), {'lr': 'inside'})
    """
    axes = {name: sorted(set(values)) for name, values in grid.items()}
    scores = {point: _finite_or_least(evaluate(point)) for point in product(*axes.values())}
    limits: set[tuple[str, bool]] = set()
    for _ in range(widenings):
        hit = _edges_at(axes, _best(axes, scores)) - limits
        if not hit:
            break
        for name, up in sorted(hit):
            line = _line_beyond(axes, name, up)
            try:
                new = {point: _finite_or_least(evaluate(point)) for point in product(*line.values())}
            except RefusedValueError:
                limits.add((name, up))
                continue
            scores |= new
            axes[name] = sorted({*axes[name], *line[name]})
    best = _best(axes, scores)
    left = {name: "at its limit" if (name, up) in limits else "at the edge" for name, up in _edges_at(axes, best)}
    return SearchResult(axes, scores, best, {name: left.get(name, "inside") for name in axes})


def _finite_or_least(score: float) -> float:
    return score if isfinite(score) else -inf


def _best(axes: Mapping[str, list[float]], scores: Mapping[Point, float]) -> Point:
    """The best point; if all diverged the smallest, since smaller steps help."""
    if max(scores.values()) == -inf:
        return tuple(values[0] for values in axes.values())
    return max(product(*axes.values()), key=lambda point: (scores[point], -len(_edges_at(axes, point))))


def _edges_at(axes: Mapping[str, list[float]], point: Point) -> set[tuple[str, bool]]:
    """The edges a point is on: the axis, and whether it is the upper end."""
    ends = [(name, up, values[-up]) for name, values in axes.items() for up in (False, True)]
    own = dict(zip(axes, point, strict=True))
    return {(name, up) for name, up, end in ends if own[name] == end}


def _line_beyond(axes: Mapping[str, list[float]], name: str, up: bool) -> dict[str, list[float]]:
    """The line of points one step beyond an edge."""
    return {other: [value_beyond(values, up)] if other == name else values for other, values in axes.items()}


def value_beyond(values: Sequence[float], up: bool) -> float:
    """The value beyond an end of sorted values: by the last ratio if all are positive, else by the last distance.

    Example:
        >>> [value_beyond(values, up=True) for values in ([0.01, 0.05, 0.1, 0.15], [0.0, 0.5, 1.0], [1, 2, 5])]
        [0.225, 1.5, 12]
    """
    near, end = (values[-2], values[-1]) if up else (values[1], values[0])
    beyond = end * end / near if values[0] > 0 else 2 * end - near
    if all(isinstance(value, int) for value in values):
        return round(beyond) if round(beyond) != end else end + (1 if up else -1)
    return float(f"{beyond:.6g}")


def tune(
    tuning: Tuning, out: Path, watch: Watch | None = None, engine: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Run a search and return the content of tune.json; every trial is stored as a run and not run again.

    Args:
        tuning: the search.
        out: the folder to write to; a search that is already there is resumed.
        watch: called with the name of a trial and each of its rows.
        engine: settings of the engine that override those of the search; a value of None overrides nothing.
    """
    given = {"engine": dict(engine or {})}
    shared: dict[int, Setup] = {}
    ended: dict[str, Config] = {}
    trials = out / "trials"
    seen: dict[Point, dict[int, float]] = {}
    judges = [GLOBAL]  # known once a trial has been prepared
    number, first = count(1), prod(len(set(values)) for values in tuning.grid.values()) * max(1, len(tuning.seeds))
    pool = Workers()

    def evaluate(point: Point) -> float:
        seen[point] = {seed: trial(point, seed) for seed in tuning.seeds}
        return fmean(seen[point].values() or [trial(point, None)])  # nan if any diverged

    def trial(point: Point, seed: int | None) -> float:
        name = _point_name(tuning, point) + ("" if seed is None else f"/seed-{seed}")
        tell_trial(next(number), first, name)
        try:
            config = tuning.config(point, seed=seed, given=given)
        except ConfigError as error:
            raise RefusedValueError(str(error)) from error

        def ready() -> Setup:
            if config.seed not in shared:
                shared[config.seed] = replace(prepare(config), pool=pool)
                check_shared(ended, trials, shared[config.seed])
            return variant(shared[config.seed], config)

        folder = trials / name
        try:
            complete(config, folder, ready, None if watch is None else lambda row: watch(name, row))
        except StalledError:
            if not has_diverged(read_rows(folder)):  # no client took part
                raise
        ended[name] = config
        rows, judges[0] = judged_rows(folder, config if config.goal else Config.read(folder))
        return score(rows[: config.rounds], tuning.by, judges[0])

    make_private(out)
    grid = {name: [float(v) for v in values] if name == "lr" else values for name, values in tuning.grid.items()}
    with pool:
        found = search(grid, evaluate, tuning.widenings)
    check_left_out(ended, trials)  # finished trials may follow new ones in the grid
    for setup in shared.values():
        check_shared(ended, trials, setup)
    return _write(tuning, out, found, seen, judges[0])


def _point_name(tuning: Tuning, point: Point) -> str:
    return "_".join(f"{name}-{value!r}" for name, value in zip(tuning.grid, point, strict=True))


def _write(
    tuning: Tuning, out: Path, result: SearchResult, seen: Mapping[Point, Mapping[int, float]], judge: Column
) -> dict[str, Any]:
    """Write the trials and the choice; the choice has the holdout of the settings, by default none."""
    sign = -1.0 if judge.minimised else 1.0
    if result.scores[result.best] == -inf:
        raise RunError(
            f"{out}: every trial diverged, down to {_point_name(tuning, result.best)}: begin with smaller values"
        )
    config = tuning.config(result.best)
    choice = config.model_copy(update={"holdout": tuning.base.get("holdout", 0.0)})
    trials = [
        {
            **dict(zip(result.axes, point, strict=True)),
            "score": None if value == -inf else sign * value,
            "diverged": value == -inf,
            **({"seeds": {seed: sign * x if isfinite(x) else None for seed, x in own.items()}} if own else {}),
        }
        for point, value in sorted(result.scores.items())
        for own in [seen[point]]
    ]
    summary = {
        "method": tuning.method,
        "by": tuning.by,
        "seeds": list(tuning.seeds) or [config.seed],
        "judged_by": judge,
        "holdout": config.holdout,
        "axes": result.axes,
        "edges": result.edges,
        "choice": dict(zip(result.axes, result.best, strict=True)),
        "score": sign * result.scores[result.best],
        "trials": trials,
        "search": json.loads(tuning.model_dump_json()),
    }
    write(out / "choice.toml", choice.toml())
    write(out / "tune.json", json.dumps(summary, indent=2) + "\n")
    return summary
