"""Dry runs build everything and train one round, without data."""

from typing import Any

import pytest

from undrift.runs import Config, ConfigError
from undrift.runs.loop.dry_run import CLIENTS, COHORT, EXAMPLES, dry_run, shrink


@pytest.mark.quick
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedavg", "partition": "dirichlet:0.1"},
        {"method": "fedper", "partition": "classes:5", "holdout": 0.3},
        {"method": "specgrad", "partition": "corrupt", "data": "cifar10"},
        {"method": "fedsam", "data": "shakespeare", "partition": "natural"},
        {"method": "fedlaw", "proxy": 200},
    ],
    ids=lambda settings: settings["method"],
)
def test_trains_and_evaluates_one_round(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    outcome = dry_run(Config.build({"rounds": 500, "local": {"epochs": 5}, **settings}))
    assert outcome.summary["rounds"] == 1
    assert "accuracy" in outcome.summary
    assert outcome.summary["gradients"] > 0
    assert not outcome.folder.exists()


def test_the_partition_is_the_run_s_and_clients_are_few_and_small() -> None:
    setup = shrink(Config.build({"data": "cifar100", "partition": "dirichlet:0.1", "clients": 500, "cohort": 50}))
    assert setup.partition is not None and len(setup.partition.clients) == 500
    assert setup.config.cohort == COHORT
    assert setup.task.population == CLIENTS
    assert max(map(len, setup.data_task.clients)) <= EXAMPLES


def test_a_single_client_trains_alone() -> None:
    outcome = dry_run(Config.build({"clients": 1, "cohort": 1, "partition": "iid"}))
    assert outcome.summary["rounds"] == 1


def test_what_a_run_refuses_is_refused() -> None:
    with pytest.raises(ConfigError, match="reads text data"):
        dry_run(Config.build({"model": "lstm"}))
