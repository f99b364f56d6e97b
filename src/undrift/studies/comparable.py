"""Whether runs can be compared: the same clients, model, data and initial weights.

A comparison or a search may leave settings out, and data may change between two calls. So its finished runs are checked
against each other, and against the next of them before it starts.
"""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from undrift.models import KINDS
from undrift.runs.folder.files import RunError, same_data, same_init
from undrift.runs.folder.preprocess_file import same_preprocess
from undrift.runs.folder.provenance import find_references, same_references
from undrift.runs.settings.config import Config
from undrift.runs.settings.initial_weights import describe_init
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.custom_tasks import RECORD, same_task, task_record
from undrift.runs.setup.prepare import Setup
from undrift.studies.results_sheet import Trial

_LEFT = ("clients", "model")  # settings whose defaults depend on the data; that of the cohort depends on the clients


def check_default_model(trials: Sequence[Trial], source: str = "the comparison") -> None:
    """Raise a `ConfigError` if rows without a model need different kinds: their default would depend on their order.

    Args:
        trials: all runs.
        source: what to call the comparison in errors.
    """
    needs: dict[str, dict[str, str]] = {}  # of each part, the kinds of model with a row that needs each
    for trial in trials:
        if trial.config.model is None and trial.config.task is None:
            needs.setdefault(trial.setting, {}).setdefault(trial.config.algorithm().needs.model, trial.label)
    for kinds in needs.values():
        for kind, label in kinds.items():
            if kind and len(kinds) > 1:
                other = next(row for need, row in kinds.items() if need != kind)
                known = next((name for name in KINDS if KINDS[name] == kind), "...")
                raise ConfigError(
                    f"{source}: model: {label} needs a {kind} model and {other} does not, so that there is no default "
                    f'for all rows: write model = "{known}" in [base], which every method can train, or '
                    "own_model = true at the top, the others' model in [base], and a model in this row"
                )


def check_left_out(runs: Mapping[str, Config], out: Path, setup: Setup | None = None) -> None:
    """Raise a `RunError` if finished runs of one seed differ in a setting that was left out.

    Args:
        runs: the folder of each finished run, below `out`, and the settings that were given for it.
        out: the folder of all.
        setup: of the next run, if they are of its seed; None compares only the runs.
    """
    for seed in {config.seed for config in runs.values()}:
        differences = []
        for key in _LEFT:
            found: dict[Hashable, str] = {}
            for name, config in runs.items():
                if config.seed == seed and getattr(config, key) is None:
                    found.setdefault(getattr(Config.read(out / name), key), name)
            if setup is not None and found:
                found.setdefault(getattr(setup.config, key), "the next run")
            values = ", ".join(f"{value!r} in {name}" for value, name in found.items())
            differences += [f"{key}: {values}"] if len(found) > 1 else []
        if differences:
            raise RunError(
                f"{out}: runs that are compared have other settings ({'; '.join(differences)}): write in [base] what "
                "the finished runs have, or name another folder with --out"
            )


def check_shared(runs: Mapping[str, Config], out: Path, setup: Setup) -> None:
    """Raise a `RunError` if finished runs have other settings, data or initial weights than the next run.

    Args:
        runs: the folder of each finished run, below `out`, and the settings that were given for it.
        out: the folder of all.
        setup: of the next run, whose data and partition the runs of its seed share.
    """
    config, dataset = setup.config, getattr(setup.task, "dataset", None)
    check_left_out({name: given for name, given in runs.items() if given.seed == config.seed}, out, setup)
    data = [one for one in find_references(config, dataset) if one.kind == "data"]
    record = task_record(setup.task, config.subject) if runs and setup.partition is None else None
    begun = describe_init(getattr(setup.task, "make", None), config.init)
    for name, given in runs.items():
        folder = out / name
        same_references(folder, data)
        if record is not None and (folder / RECORD).exists():
            same_task(folder, record)
        if given.seed != config.seed:
            continue
        if setup.partition is not None:
            same_preprocess(folder, setup.data_task.dataset.preprocess)
            same_data(folder, setup.partition)
        if given.model in (None, config.model):
            same_init(folder, begun)
