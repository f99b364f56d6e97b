"""A dry run of every item of every paper: each row in one part, each part with one row; equal ones once."""

import json
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from support.vision import operators
from undrift.papers import comparison, paper, papers
from undrift.papers.runner import dry_run_key
from undrift.runs.loop.dry_run import dry_run
from undrift.studies.compare import Comparison
from undrift.studies.results_sheet import Trial


def crossed(comparison: Comparison) -> Iterator[Trial]:
    """Runs that cover a comparison: the first part with every row, and every part with its first row."""
    trials = [trial for trial in comparison.trials() if trial.config.seed == comparison.seeds[0]]
    first, label = trials[0].setting, trials[0].label
    return (trial for trial in trials if trial.setting == first or trial.label == label)


def selection() -> dict[str, Trial]:
    """Name of a dry run -> the run; the name is that of the first item that needs it."""
    chosen: dict[str, tuple[str, Trial]] = {}
    for name in papers():
        whole = paper(name)
        for key, item in whole.items.items():
            for trial in crossed(comparison(whole, item)):
                label = "-".join(filter(None, (name, key, trial.setting, trial.label)))
                chosen.setdefault(json.dumps(dry_run_key(trial.config), sort_keys=True), (label, trial))
    return dict(chosen.values())


SELECTION = selection()


PARTS = [pytest.param(name, marks=() if i % 8 == 0 else pytest.mark.slow) for i, name in enumerate(SELECTION)]
"""All of them; every eighth is enough for a change that does not concern the papers."""


@pytest.mark.sweep(every=18)
@pytest.mark.parametrize("name", PARTS)
def test_dry_run(name: str) -> None:
    config = SELECTION[name].config
    if "vit" in str(config.model) or "densenet" in str(config.model):
        if find_spec("torchvision") is None or find_spec("timm") is None:
            pytest.skip("the extra `vision` is not installed")
        operators()
    assert dry_run(config).summary["rounds"] == 1
