"""Dry runs of every item of every paper: each row in one part, each part with one row."""

import json
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from support.vision import operators
from undrift.papers import comparison, paper, papers
from undrift.papers.runner import dry_run_key
from undrift.runs.loop.dry_run import dry_run
from undrift.runs.settings.config import Config

ITEMS = [(name, key) for name in papers() for key in paper(name).items]
DONE: set[str] = set()
"""The runs that were tried: several items share some."""


def crossed(name: str, key: str) -> Iterator[Config]:
    """Runs that cover an item: the first part with every row, and every part with its first row."""
    whole = paper(name)
    runs = comparison(whole, whole.items[key])
    trials = [trial for trial in runs.trials() if trial.config.seed == runs.seeds[0]]
    first, label = trials[0].setting, trials[0].label
    return (trial.config for trial in trials if trial.setting == first or trial.label == label)


def check(config: Config) -> None:
    if "vit" in str(config.model) or "densenet" in str(config.model):
        if find_spec("torchvision") is None or find_spec("timm") is None:
            pytest.skip("the extra `vision` is not installed")
        operators()
    assert dry_run(config).summary["rounds"] == 1


@pytest.mark.sweep(every=48)
@pytest.mark.parametrize(("name", "key"), ITEMS)
def test_a_dry_run_of_an_item(name: str, key: str, turn: int) -> None:
    """One of its runs, another one with every commit."""
    configs = list(crossed(name, key))
    check(configs[turn % len(configs)])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "key"), ITEMS)
def test_every_dry_run_of_an_item(name: str, key: str) -> None:
    for config in crossed(name, key):
        if (text := json.dumps(dry_run_key(config), sort_keys=True)) not in DONE:
            DONE.add(text)
            check(config)
