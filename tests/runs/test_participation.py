"""Who takes part in the rounds of a run: a cohort as a number or a ratio, a probability; and what a failure does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import Simulation
from undrift.cli import app
from undrift.core.client.visit import ClientError
from undrift.core.model.random import bernoulli_size
from undrift.data import DataTask
from undrift.runs import Config, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.loop.run import is_finished
from undrift.runs.setup.open_simulation import open_simulation
from undrift.runs.setup.prepare import prepare

pytestmark = pytest.mark.usefixtures("tiny")


def settings(**changes: Any) -> Config:
    """A run of 8 clients; without a cohort of its own."""
    return Config.build({key: value for key, value in RUN.items() if key != "cohort"} | changes)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_ratio_is_the_same_run_as_its_number(tmp_path: Path) -> None:
    ratio = start(settings(cohort=0.25), tmp_path / "ratio")
    number = start(settings(cohort=2), tmp_path / "number")
    assert ratio.sha256 == number.sha256 and ratio.summary["identity"] == number.summary["identity"]
    assert Config.read(ratio.folder / "config.toml").cohort == 2
    assert [row["clients"] for row in rows(ratio.folder)] == [2, 2]
    assert is_finished(settings(cohort=0.25), number.folder) and is_finished(settings(cohort=0.2), number.folder)
    with pytest.raises(RunError, match=r"cohort: 2 there, 4 given"):
        is_finished(settings(cohort=0.5), number.folder)


def test_each_client_takes_part_with_a_probability(tmp_path: Path) -> None:
    config = settings(probability=0.3, rounds=4)
    outcome = start(config, tmp_path / "run")
    drawn = [bernoulli_size(config.seed, round, 8, 0.3) for round in range(4)]
    assert [row["clients"] for row in rows(outcome.folder)] == drawn and len(set(drawn)) > 1
    result = Config.read(outcome.folder / "config.toml")
    assert result.cohort is None and result.probability == 0.3
    short = start(settings(probability=0.3, rounds=2), tmp_path / "short")
    assert resume(short.folder, rounds=4).sha256 == outcome.sha256
    assert is_finished(config, outcome.folder)
    with pytest.raises(RunError, match=r"probability: 0.3 there, 0.4 given"):
        is_finished(settings(probability=0.4), outcome.folder)
    with pytest.raises(RunError, match=r"probability: 0.3 there, None given"):
        is_finished(settings(), outcome.folder)
    with pytest.raises(RunError, match=r"cohort: None there, 4 given"):
        is_finished(settings(cohort=4), outcome.folder)


def test_the_command_line(tmp_path: Path) -> None:
    flags = ["run", "fedavg", "--clients", "8", "--rounds", "1", "--partition", "iid", "--out"]
    for name, given, expected in (("a", ["--cohort", "0.5"], (4, None)), ("b", ["--probability", "0.5"], (None, 0.5))):
        done = CliRunner().invoke(app, [*flags, str(tmp_path / name), *given])
        assert done.exit_code == 0, done.output
        found = Config.read(tmp_path / name / "config.toml")
        assert (found.cohort, found.probability) == expected
    for given, message in (
        (["--cohort", "half"], "cohort: write a number of clients, 1 or more (cohort = 10), or a ratio"),
        (["--cohort", "4", "--probability", "0.5"], "give cohort or probability, not both"),
    ):
        refused = CliRunner().invoke(app, [*flags, str(tmp_path / "c"), *given])
        assert refused.exit_code == 2 and message in refused.output, refused.output


class Faulty(DataTask):
    """Client 0 fails."""

    def batches(self, client: int, *rest: Any) -> Any:
        if client == 0:
            raise ValueError("client 0 is broken")
        return super().batches(client, *rest)


@pytest.mark.parametrize("failures", ["reject", "raise"])
def test_a_failure_is_rejected_or_ends_the_run(failures: str, tmp_path: Path) -> None:
    ready = prepare(settings(cohort=1.0, failures=failures))
    task = ready.data_task
    faulty = Faulty(task.dataset, task.clients, task.make, seed=task.seed)
    with open_simulation(replace(ready, task=faulty), tmp_path) as simulation:
        assert isinstance(simulation, Simulation) and simulation.failures == failures
        if failures == "raise":
            with pytest.raises(ClientError, match="client 0 is broken"):
                simulation.run(1)
        else:
            _, record = next(iter(simulation.rounds(1)))
            assert record.clients == tuple(range(1, 8)) and [r.client for r in record.rejections] == [0]
