"""A study: a comparison whose rows are run and collected one after the other; small raw results for the docs.

    python benchmarks/studies/study.py benchmarks/studies/here/strict-filters.toml [setting ...] [--rows label ...]
                                                                                    [--jobs processes]

The file is a comparison. With `protocol = "strict"` each row is tuned before it is run, as `undrift compare` does it.
Without it the rates are those of the file or of the committed comparison, and the key `about` states where they come
from: the page of such a study shows that it does not meet the protocol. The tables `[published]`, see beside.py, and
`[stated]`, see row_texts.py, and `against`, see protocol_state.py, are for the pages. The folder `runs/here/NAME` has
all runs; a study that was interrupted resumes. Runs and searches that are committed are not computed again, so that a
study can be spread over machines; `--jobs 2` spreads its rows over two processes, with a folder of runs per row. What
is committed is

    benchmarks/studies/results/here/NAME.toml         the tuned comparison, for `undrift compare`
    benchmarks/studies/results/here/NAME.jsonl        one line per run: setting, label, seed, settings, hash, curve
    benchmarks/studies/results/here/rates/NAME.jsonl  one line per tuned row and setting: all trials of its search

`python benchmarks/studies/study.py --config NAME setting/label/seed` prints the settings of a line, for `undrift run`.
"""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
import torch

from rates import collect_searches, restore_searches
from shared import read_lines
from undrift.data.partitions.skew import measure_skew
from undrift.runs.folder.files import read_summary
from undrift.runs.loop.run import is_finished
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import Column
from undrift.runs.settings.schema import merge_settings
from undrift.runs.setup.prepare import prepare
from undrift.studies.compare import Comparison, compare, row_in
from undrift.studies.results_sheet import Trial
from undrift.studies.run_result import result
from undrift.util.naming.names import suggest
from undrift.util.storage.files import write

RESULTS = Path(__file__).parent / "results" / "here"
PAGES_ONLY = ("about", "against", "published", "stated")
"""Keys of a study that a comparison does not have."""


def main() -> None:
    """Tune, run and collect, or print the settings of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the study, or with --config its name")
    parser.add_argument("names", nargs="*", help="settings to run, default all; with --config setting/label/seed")
    parser.add_argument("--config", action="store_true", help="print the settings of a run as TOML")
    parser.add_argument("--rows", nargs="*", default=[], help="labels of the rows to run, default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/here"), help="where the runs are stored")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share the rows, default 1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.config and len(arguments.names) != 1:
        parser.error("--config takes one run, as setting/label/seed")
    if arguments.config:
        print(settings(arguments.file, arguments.names[0]).toml(), end="")
    else:
        study(Path(arguments.file), arguments.runs, arguments.names, arguments.rows, arguments.jobs)


def study(file: Path, runs: Path, names: list[str], rows: Sequence[str] = (), jobs: int = 1) -> None:
    """Run a study, or the named settings and rows of it, and write what is to be committed.

    Args:
        file: the study.
        runs: where the runs are stored.
        names: the settings; none means all.
        rows: the labels of the rows; none means all.
        jobs: how many processes share the rows.
    """
    values = {key: value for key, value in tomllib.loads(file.read_text()).items() if key not in PAGES_ONLY}
    if values.get("protocol") != "strict":
        parts = merge_settings(values.get("settings", {}), committed(file.stem).get("settings", {}))
        values |= {"own_local": True, **({"settings": parts} if parts else {})}
    comparison = Comparison.build(values, str(file))
    known, labels = [*(comparison.settings or [""])], [entry.label for entry in comparison.methods]
    for given, there, what in ((names, known, "setting is named"), (rows, labels, "row is labelled")):
        for name in given:
            if name not in there:
                raise SystemExit(f"{file}: no {what} {name!r}; {suggest(name, there)}")
    chosen = [(setting, label) for setting in names or known for label in rows or labels]
    if jobs > 1:
        spread(file, runs, [row for row in chosen if is_missing(comparison, *row, file.stem)], jobs)
        return
    for setting, label in chosen:
        study_row(comparison, setting, label, runs / file.stem)


def spread(file: Path, runs: Path, rows: Sequence[tuple[str, str]], jobs: int) -> None:
    """Run rows in several processes, each with a folder of runs of its own; all rows run, also after one has failed.

    Args:
        file: the study.
        runs: where the runs are stored.
        rows: setting and label of each.
        jobs: how many processes run at a time.
    """

    def failed(row: tuple[str, str]) -> bool:
        setting, label = row
        own = ["--rows", label, "--runs", str(runs / "-".join(filter(None, row)))]
        return subprocess.run([sys.executable, __file__, str(file), *filter(None, [setting]), *own]).returncode != 0

    with ThreadPoolExecutor(jobs) as pool:
        lost = [row for row, ended in zip(rows, pool.map(failed, rows), strict=True) if ended]
    if lost:
        names = ", ".join("/".join(filter(None, row)) for row in lost)
        raise SystemExit(f"{file}: these rows failed, see their messages above: {names}")


def is_missing(comparison: Comparison, setting: str, label: str, name: str) -> bool:
    """Whether a run of one row in one setting is not committed yet.

    Args:
        comparison: the study.
        setting: the name of a setting; empty where there are none.
        label: of the row.
        name: the study's, of its file.
    """
    done = committed_runs(name)
    return any((setting, label, seed) not in done for seed in comparison.seeds)


def committed_runs(name: str) -> set[tuple[str, str, int]]:
    """Setting, label and seed of every committed run of a study.

    Args:
        name: the study.
    """
    return {(x["setting"], x["label"], x["seed"]) for x in read(name)}


def study_row(comparison: Comparison, setting: str, label: str, out: Path) -> None:
    """Tune one row in one setting, if the study does, and run it with all seeds.

    Args:
        comparison: the study.
        setting: the name of a setting; empty where there are none.
        label: of the row.
        out: the folder of the study's runs.
    """
    if comparison.strict:
        restore_searches(out, RESULTS, out.name)
    if not is_missing(comparison, setting, label, out.name):
        return
    new = partial(missing, committed_runs(out.name), setting, label)
    if not comparison.strict and not has_rate(comparison, setting, label):
        raise SystemExit(f'{setting}/{label}: has no learning rate; only a study with protocol = "strict" tunes')
    table = compare(comparison, out, partial(ended, out, new), only=new)
    if table["failures"]:  # a row without them would be a row of survivors
        errors = "\n".join(f"{failure['run']}: {failure['error']}" for failure in table["failures"])
        raise SystemExit(f"runs failed, so the row is incomplete; mend them and run the study again\n{errors}")


def has_rate(comparison: Comparison, setting: str, label: str) -> bool:
    """Whether a study states the learning rate of a row, so that it is not the default of all settings.

    Args:
        comparison: the study.
        setting: the name of a setting.
        label: of the row.
    """
    part = comparison.settings.get(setting, {})
    row = next(entry for entry in comparison.methods if entry.label == label)
    return any("lr" in place.get("local", {}) for place in (comparison.base, part, row_in(row, part).model_dump()))


def missing(done: set[tuple[str, str, int]], setting: str, label: str, trial: Trial) -> bool:
    """Whether a run is of one row in one setting and not among the committed ones.

    Args:
        done: setting, label and seed of the committed ones.
        setting: the name of a setting.
        label: of the row.
        trial: the run.
    """
    own = trial.setting, trial.label
    return own == (setting, label) and (*own, trial.config.seed) not in done


def ended(out: Path, new: Callable[[Trial], bool], trial: Trial, row: dict[str, Any] | None) -> None:
    """Collect a new run when it has ended; those of rows before it have been collected.

    Args:
        out: the folder of the study's runs.
        new: whether a run is new.
        trial: the run.
        row: of a round; None at the end.
    """
    if row is None and new(trial):
        print(trial.name, flush=True)
        with one_at_a_time():
            collect(Comparison.read(out / "compare.toml"), out, out.name)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process changes the committed results, and keep others waiting."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    folder = os.open(RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def collect(comparison: Comparison, out: Path, name: str) -> None:
    """Add the finished runs of a comparison to the committed lines.

    Args:
        comparison: as it is tuned so far.
        out: the folder of its runs.
        name: the study.
    """
    path = RESULTS / f"{name}.jsonl"
    lines = {(x["setting"], x["label"], x["seed"]): x for x in read(name)}
    for trial in comparison.trials():
        key = trial.setting, trial.label, trial.config.seed
        if key not in lines and is_finished(trial.config, out / trial.name):
            lines[key] = line(trial, out / trial.name)
    write(RESULTS / "machine.json", json.dumps(machine(), indent=1) + "\n")
    write(path, "".join(json.dumps(lines[key]) + "\n" for key in sorted(lines)))
    new = tomllib.loads(comparison.toml())
    parts = merge_settings(committed(name).get("settings", {}), new.get("settings", {}))
    write(RESULTS / f"{name}.toml", tomli_w.dumps({**new, "settings": parts}))
    collect_searches(out, RESULTS, name)


def committed(name: str) -> dict[str, Any]:
    """The tuned comparison of a study as far as it has come; empty at the beginning.

    Args:
        name: the study.
    """
    path = RESULTS / f"{name}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def skew_of(config: Config) -> dict[str, float]:
    """How the clients of a run differ, which depends on its seed.

    Args:
        config: its settings.
    """
    ready = prepare(config)
    assert ready.partition is not None
    found = asdict(measure_skew(ready.data_task.dataset, ready.partition.clients))
    return {kind: round(x, 4) for kind, x in found.items() if x is not None and kind != "clients"}


def line(trial: Trial, folder: Path) -> dict[str, Any]:
    """The raw result of one run.

    Args:
        trial: the run.
        folder: its folder.
    """
    found = result(folder, trial.config)
    kind = Column(found["judged_by"]).kind
    return {
        "setting": trial.setting,
        "label": trial.label,
        "seed": trial.config.seed,
        "lr": trial.config.local.lr,
        "sha256": (read_summary(folder) or {})["sha256"],
        "curve": [[int(point["rounds"]), round(point[kind], 6)] for point in found["curve"]],
        "seconds": round(found["spent"]["seconds"], 1),
        "gradient_ms": round(found["gradient_ms"], 3),
        "gradients": found["spent"]["gradients"],
        "traffic": found["traffic"],
        "stateless": trial.config.algorithm().stateless,
        "skew": skew_of(trial.config),
        "config": trial.config.model_dump(mode="json", exclude_defaults=True),
    }


def machine() -> dict[str, str]:
    """What decides the last bits of a run: processor, its widest instructions, and torch."""
    names = [
        text for text in Path("/proc/cpuinfo").read_text().splitlines() if text.startswith(("model name", "model\t"))
    ]
    capability = torch.backends.cpu.get_cpu_capability()
    return {"processor": "; ".join(dict.fromkeys(names)), "capability": capability, "torch": torch.__version__}


def read(name: str) -> list[dict[str, Any]]:
    """The committed lines of a study; none at its beginning.

    Args:
        name: the study.
    """
    return read_lines(RESULTS / f"{name}.jsonl")


def settings(name: str, run: str) -> Config:
    """The settings of a committed run.

    Args:
        name: the study.
        run: setting/label/seed; label/seed in a study without settings.
    """
    for x in read(name):
        if run == "/".join(filter(None, [x["setting"], x["label"], str(x["seed"])])):
            return Config.build(x["config"], run)
    raise SystemExit(f"{run}: not in {RESULTS / name}.jsonl; its lines have setting, label and seed")


if __name__ == "__main__":
    main()
