"""The strict protocol: every row of a comparison is tuned alike, on seeds that do not judge it.

- The final seeds are in OUT/compare.toml before the first trial and stay; no trial has one of them.
- Every row starts with the same number of points, over its rate and at most one argument. Its grid is widened until the
  best point is inside; a row whose best point stays at an edge fails.
- A trial is scored as a run is judged, by its late accuracy, on held-out examples; a point by its mean over the seeds.
- OUT/tuning/<setting>/<label>/tune.json has all trials of a row.
- Intervals hold for all differences of the table together.
"""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from undrift.runs.folder.files import RunError
from undrift.runs.settings.schema import Strict, read_toml
from undrift.studies.tune import Axes, Tuning, Watch, tune
from undrift.util.naming.names import suggest

Protocol = Literal["plain", "strict"]
LEAST_SEEDS = 3
"""A strict comparison has this many final seeds at least."""
FIRST: dict[str, tuple[int | float, ...]] = {"lr": (0.05, 0.1, 0.2, 0.4)}
"""The first values of rows without any in `tune`."""
TUNING = "tuning"
"""The folder of all trials, below that of a comparison."""


class TuneConfig(Strict):
    """The table `tune` of a strict comparison.

    Args:
        seeds: of the trials, two or more, none of them a final seed; empty takes the two after the largest final seed.
        grid: the first values of every row: "lr", and possibly an argument that all methods have.
        rows: label -> the first values of this row, "lr" and at most one argument; as many points as `grid` has.
        widenings: how often the grid of a row may be widened before the row fails.
    """

    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = ()
    grid: Axes = Field(default_factory=lambda: dict(FIRST))
    rows: dict[str, Axes] = Field(default_factory=dict)
    widenings: Annotated[int, Field(ge=0, le=100)] = 12

    def seeds_beside(self, final: Sequence[int]) -> tuple[int, ...]:
        """The seeds of the trials.

        Args:
            final: the seeds that judge.
        """
        return self.seeds or (max(final) + 1, max(final) + 2)

    def check(self, final: Sequence[int], labels: Sequence[str]) -> None:
        """Raise a `ValueError` if a trial would have a final seed, or a row another budget than the others.

        Args:
            final: the seeds that judge.
            labels: of the rows.
        """
        if len(final) < LEAST_SEEDS:
            raise ValueError(f"seeds: the strict protocol needs {LEAST_SEEDS} at least, got {list(final)}")
        seeds = self.seeds_beside(final)
        if len(set(seeds)) < max(2, len(seeds)):
            raise ValueError(f"tune.seeds: the strict protocol needs two different seeds or more, got {list(seeds)}")
        for seed in seeds:
            if seed in final:
                raise ValueError(
                    f"tune.seeds: {seed} is one of the final seeds; a row that was tuned on a seed must not be judged "
                    f"on it: take others than {list(final)}"
                )
        points = _points(self.grid)
        for label, grid in {"": self.grid, **self.rows}.items():
            place = f"tune.rows.{label}" if label else "tune.grid"
            if label and label not in labels:
                raise ValueError(f"tune.rows: no row is labelled {label!r}; {suggest(label, labels)}")
            if "lr" not in grid:
                raise ValueError(f"{place}: lr is missing: give its first values, as lr = [0.1, 0.2, 0.4]")
            if _points(grid) != points:
                raise ValueError(
                    f"{place}: has {_points(grid)} points; every row starts with as many as grid, {points}"
                )


def _points(grid: Mapping[str, Sequence[float]]) -> int:
    """How many points a grid has."""
    return prod(len(set(values)) for values in grid.values())


def row_tuning(search: TuneConfig, final: Sequence[int], row: Mapping[str, Any], base: Mapping[str, Any]) -> Tuning:
    """The search of one row in one setting.

    Args:
        search: the table `tune` of the comparison.
        final: the seeds that judge.
        row: its label, method and arguments.
        base: all other settings of its runs; a rate in them is replaced by the tuned one.
    """
    others = {key: value for key, value in base.items() if key != "target"}
    others |= {"local": {key: value for key, value in base.get("local", {}).items() if key != "lr"}}
    grid = search.rows.get(row["label"], search.grid)
    fixed = {name: value for name, value in row["arguments"].items() if name not in grid}
    values = {"method": row["method"], "arguments": fixed, "grid": grid, "by": "late", "base": others}
    own = {"widenings": search.widenings, "seeds": search.seeds_beside(final)}
    return Tuning.build({**values, **own}, f"tune: {row['label']}")


def tuned_row(tuning: Tuning, out: Path, watch: Watch | None = None, engine: Mapping[str, Any] | None = None) -> Any:
    """The content of a row's tune.json, from there if it is of this search.

    Raises a `RunError` if the best point is at an edge; an argument, not the rate, may be at the limit of its values.

    Args:
        tuning: the search.
        out: the row's folder below `TUNING`.
        watch: called with the name of a trial and each of its rows.
        engine: settings of the engine that override those of the search.
    """
    path, settings = out / "tune.json", json.loads(tuning.model_dump_json())
    found = json.loads(path.read_text()) if path.exists() else {}
    if found.get("search") != settings:
        found = tune(tuning, out, watch, engine)
    for name, where in found["edges"].items():
        if where == "at the edge" or (name == "lr" and where != "inside"):
            raise RunError(
                f"{out}: the best {name} is {found['choice'][name]:g}, {where} of its grid, after {tuning.widenings} "
                "widenings: give other first values in [tune], or more widenings"
            )
    return found


def check_begun(out: Path, seeds: Sequence[int]) -> None:
    """Raise a `RunError` if a folder has another comparison, or trials that were begun for other final seeds.

    Args:
        out: of the comparison.
        seeds: that judge.
    """
    path = out / "compare.toml"
    if path.exists() and not (out / TUNING).exists():
        raise RunError(f"{out}: it has a comparison that is not strict; name another folder with --out")
    named = read_toml(path).get("seeds") if path.exists() else None
    if named is not None and list(named) != list(seeds):
        raise RunError(
            f"{out}: its final seeds, {list(named)}, were named before tuning began; got {list(seeds)}: keep them, or "
            "name another folder with --out"
        )
