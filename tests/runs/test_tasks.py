"""Runs of tasks of one's own: folders, resuming, refusals, comparisons, tuning and reports."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from support import own_tasks
from support.own_tasks import SETTINGS, lines, loaders
from undrift import Local, Simulation, load_run, make
from undrift.cli import app
from undrift.core.server.wire import fingerprint
from undrift.report import collect, render
from undrift.runs import ConfigError, export, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.reading.open_checkpoint import look
from undrift.studies import Comparison, compare
from undrift.studies.tune import Tuning, tune
from undrift.testing import Quadratics


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.quick
def test_a_run_equals_the_simulation_and_is_judged_by_the_first_metric(tmp_path: Path) -> None:
    task = lines(name="lines")
    with Simulation(make("scaffold"), task, Local(**SETTINGS["local"]), cohort=3) as simulation:
        expected = fingerprint(simulation.run(4))
    out = start(task=task, folder=tmp_path / "run", method="scaffold", **SETTINGS)
    rows = rows_of(out.folder)
    assert out.sha256 == expected
    assert (out.summary["judged_by"], out.summary["direction"], out.summary["data"]) == ("mae", "min", "lines")
    assert out.summary["best"] == min(row["mae"] for row in rows) and out.summary["rmse"] == rows[-1]["rmse"]
    assert list(rows[0])[-4:] == ["test_loss", "mae", "rmse", "evaluate_seconds"]
    record = json.loads((out.folder / "task.json").read_text())
    assert (record["kind"], record["clients"], record["examples"]) == ("TensorTask", 4, 48)
    settings = (out.folder / "config.toml").read_text()
    assert 'task = "lines"' in settings and "fashion" not in settings and 'goal = "min mae"' in settings


def test_the_same_script_goes_on_or_returns_the_result(tmp_path: Path) -> None:
    whole = start(task=loaders(), folder=tmp_path / "whole", **SETTINGS)
    start(task=loaders(), folder=tmp_path / "cut", **{**SETTINGS, "rounds": 2})
    again = start(task=loaders(), folder=tmp_path / "cut", resume=True, **SETTINGS)
    assert again.sha256 == whole.sha256 and again.trained
    ended = start(task=loaders(), folder=tmp_path / "cut", resume=True, **SETTINGS)
    assert ended.sha256 == whole.sha256 and not ended.trained
    with pytest.raises(RunError, match="the task noisy rows is not the run's: it differs in its clients"):
        start(task=lines(clients=3, name="noisy rows"), folder=tmp_path / "cut", resume=True, **SETTINGS)
    with pytest.raises(RunError, match=r"contains a run with other settings \(local.lr: 0.05 there, 0.1 given\)"):
        start(
            task=loaders(), folder=tmp_path / "cut", resume=True, **{**SETTINGS, "local": {"lr": 0.1, "batch_size": 4}}
        )
    with pytest.raises(RunError, match=r"exists: name another folder, or continue its run with resume=True$"):
        start(task=loaders(), folder=tmp_path / "cut", **SETTINGS)


def test_another_task_is_refused_by_name(tmp_path: Path) -> None:
    start(task=lines(name="lines"), folder=tmp_path / "run", **SETTINGS)
    for task, part in (
        (lines(seed=1), "its data"),
        (replace(lines(), seed=5), "its initial weights"),
        (lines(clients=3), "its clients .3 instead of 4."),
    ):
        with pytest.raises(
            (RunError, ConfigError), match=f"the task lines is not the run's: it differs in {part}|clients: the"
        ):
            resume(tmp_path / "run", task=task, rounds=5)
    assert resume(str(tmp_path / "run"), task=lines(), rounds=5).summary["rounds"] == 5
    with pytest.raises(ConfigError, match=r"task: lines was made in Python .*resume\(folder, task=task\)"):
        resume(tmp_path / "run", rounds=6)
    answer = CliRunner().invoke(app, ["resume", str(tmp_path / "run"), "--rounds", "6"])
    assert answer.exit_code == 2 and "resume(folder, task=task)" in answer.output


def test_by_reference_on_the_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = [
        "--rounds",
        "2",
        "--cohort",
        "2",
        "--lr",
        "0.05",
        "--batch-size",
        "4",
        "--target",
        "99",
        "--set",
        "task.clients=3",
        "--out",
    ]
    answer = CliRunner().invoke(app, ["run", "fedavg", "--task", "support.own_tasks:lines", *flags, str(folder)])
    assert answer.exit_code == 0, answer.output
    assert "mae " in answer.output and "target 99: in round 1" in answer.output and "%" not in answer.output
    assert json.loads((folder / "task.json").read_text())["clients"] == 3
    answer = CliRunner().invoke(app, ["resume", str(folder), "--rounds", "3", "--json"])
    assert json.loads(answer.stdout)["rounds"] == 3
    for reference, message in (
        ("support.own_tasks:line", "did you mean 'lines'"),
        ("support.own_tasks:Net", "Net is not a task, it has no pop"),
    ):
        answer = CliRunner().invoke(app, ["run", "fedavg", "--task", reference, "--out", str(tmp_path / "no")])
        assert answer.exit_code == 2 and message in answer.output


def test_bad_settings_are_refused_before_training(tmp_path: Path) -> None:
    for given, message in (
        ({"folder": None}, "name a folder"),
        ({"task": nn.Linear(1, 1)}, "task: Linear is not a task, it has no population"),
        ({"method": make("fedavg")}, 'write method="fedprox"'),
        ({"clients": 9}, "clients: the task has 4, got 9; leave it out"),
        ({"goal": "mea"}, "goal: the run does not measure 'mea'; did you mean 'mae'"),
        ({"method": "fedlaw"}, r"task: fedlaw needs proxy data at the server: a method proxy\(\) of the task"),
        ({"cohrot": 2}, "cohrot: unknown key; did you mean 'cohort'"),
        ({"task": lines(name="a:b")}, "a name has no colon and no brackets"),
    ):
        with pytest.raises(ConfigError, match=message):
            start(**{"task": lines(), "folder": tmp_path / "run", **SETTINGS, **given})
    assert not (tmp_path / "run").exists()


def test_loaders_fix_the_batch_size(tmp_path: Path) -> None:
    from torch.utils.data import DataLoader

    from undrift import LoaderTask

    data = [DataLoader(source.dataset, batch_size=6) for source in loaders().sources]
    task = LoaderTask(own_tasks.Net, data, criterion=nn.MSELoss())
    out = start(task=task, folder=tmp_path / "run", rounds=1, local={"lr": 0.05})
    assert "batch_size = 6" in (out.folder / "config.toml").read_text() and out.summary["judged_by"] == "train_loss"
    with pytest.raises(ConfigError, match=r"local.batch_size: the task's loaders have 6, got 4; set 6"):
        start(task=task, folder=tmp_path / "other", rounds=1, local={"batch_size": 4})


def test_personal_methods_are_judged_on_clients_own_tests(tmp_path: Path) -> None:
    own = lines(client_tests=[[0, 1], [2, 3], [4, 5], []], goal=("rmse", "min"))
    out = start(task=own, folder=tmp_path / "own", method="ditto", **SETTINGS)
    assert out.summary["judged_by"] == "personal_rmse" and out.summary["best"] > 0
    last = rows_of(out.folder)[-1]
    clients = json.loads((out.folder / "clients.json").read_text())["rmse"]
    assert clients[3] is None and last["personal_rmse"] == pytest.approx(sum(clients[:3]) / 3)
    assert last["personal_worst_tenth"] == max(clients[:3]), "less is better: the worst is the largest"
    without = start(task=lines(), folder=tmp_path / "without", method="ditto", **SETTINGS)
    assert without.summary["judged_by"] == "mae" and "personal_mae" not in without.summary


def test_models_of_a_task_made_in_python_are_read_with_the_task(tmp_path: Path) -> None:
    task = lines(name="rooms")
    out = start(task=task, folder=tmp_path / "run", method="ditto", **SETTINGS)
    assert "ditto on rooms, 4 of 4 rounds" in repr(out)
    page = out._repr_html_()
    assert "fashion" not in page and "dirichlet" not in page and "rooms" in page and ">best<" in page
    run = load_run(out.folder)
    last: Any
    first: Any
    own: Any
    last, first, own = run.model(task), run.model(task, round=3), run.model(task, client=2)
    assert not torch.equal(first.last.weight, last.last.weight)
    assert not torch.equal(own.last.weight, last.last.weight)
    path = export(out.folder, tmp_path / "own.pt", client=2, task=task)
    assert torch.equal(torch.load(path, weights_only=True)["last.weight"], own.last.weight)
    other = replace(task, targets=task.targets + 1)
    with pytest.raises(RunError, match="it differs in its data"):
        run.model(other, client=2)


def test_fewer_rounds_than_are_done_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(task=lines(), folder=tmp_path / "run", watch=stop, **SETTINGS)
    done = 3  # every round has a checkpoint
    with pytest.raises(RunError, match=f"has {done} rounds already, 2 cannot take any back; give {done} or more"):
        start(task=lines(), folder=tmp_path / "run", resume=True, **{**SETTINGS, "rounds": 2})
    assert "rounds = 4" in (tmp_path / "run" / "config.toml").read_text()
    whole = start(task=lines(), folder=tmp_path / "whole", **SETTINGS)
    assert resume(tmp_path / "run", task=lines()).sha256 == whole.sha256


def test_other_test_data_are_another_task(tmp_path: Path) -> None:
    start(task=lines(), folder=tmp_path / "run", **{**SETTINGS, "rounds": 2})
    other = lines()
    other = replace(other, test=(other.test[0], -other.test[1]))
    with pytest.raises(RunError, match=r"it differs in its test data"):
        start(task=other, folder=tmp_path / "run", resume=True, **SETTINGS)


def test_a_first_evaluation_that_fails_names_the_criterion_or_the_metrics(tmp_path: Path) -> None:
    cases = [
        (nn.MSELoss(reduction="none"), ["mae"], r"criterion: .*returned a tensor of shape \[20, 1\], not one number"),
        (nn.NLLLoss(), ["mae"], r"criterion: .*outputs and targets such as torch.float32 \[20, 1\] and torch"),
        (nn.MSELoss(), {"own": lambda outputs, targets: outputs.nothing}, r"metrics: the first .*AttributeError"),
    ]
    for i, (criterion, metrics, message) in enumerate(cases):
        task = replace(lines(), criterion=criterion, metrics=metrics)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=message):
            start(task=task, folder=tmp_path / str(i), **SETTINGS)


def test_a_round_in_which_nobody_trained_is_not_the_best(tmp_path: Path) -> None:
    shared: dict[str, Any] = {
        "rounds": 3,
        "cohort": 2,
        "target": 0.001,
        "availability": "test_tasks:away_in_the_second_round",
    }
    out = start(task=Quadratics.random(4), folder=tmp_path / "run", **shared)
    assert [("train_loss" in row, row["clients"]) for row in rows_of(out.folder)] == [(True, 2), (False, 0), (True, 2)]
    assert out.summary["best"] > 0 and out.summary["best_round"] != 2 and out.summary["rounds_to_target"] is None


def away_in_the_second_round(client: int, round: int) -> bool:
    return round != 1


def test_a_task_of_its_own_class(tmp_path: Path) -> None:
    out = start(task=Quadratics.random(4), folder=tmp_path / "run", rounds=2, cohort=2)
    assert out.summary["judged_by"] == "train_loss" and out.summary["data"] == "Quadratics"
    with pytest.raises(ConfigError, match="Quadratics was made in Python"):
        look(tmp_path / "run")


def test_compare_tune_and_report(tmp_path: Path) -> None:
    base = {"task": "support.own_tasks:lines", **SETTINGS, "target": "0.9 * baseline"}
    methods = [{"method": "fedavg"}, {"method": "fedprox"}]
    table = compare(Comparison.build({"seeds": [0, 1], "methods": methods, "base": base}), tmp_path / "out")
    assert not table["failures"] and [row["judged_by"] for row in table["rows"]] == ["mae", "mae"]
    text = (tmp_path / "out" / "table.md").read_text()
    assert "| mae" in text and "%" not in text and "lower is better" in text
    base.pop("target")
    found = tune(
        Tuning.build({"method": "fedavg", "grid": {"lr": [0.01, 0.05]}, "widenings": 0, "base": base}), tmp_path / "t"
    )
    scores = {trial["lr"]: trial["score"] for trial in found["trials"]}
    assert (
        found["choice"]["lr"] == min(scores, key=lambda lr: scores[lr]) and found["score"] == min(scores.values()) > 0
    )
    page = render(collect([tmp_path / "out"]))
    assert all(words in page for words in ("Mae over rounds", "Rmse over rounds", "Lower and further left is better"))
    assert "on support.own_tasks:lines" in page and "best %" not in page


def run_script(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, own_tasks.__file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.sweep(every=0)
def test_a_killed_script_is_run_again(tmp_path: Path) -> None:
    whole = run_script(tmp_path / "whole", "local", 0)
    assert whole.returncode == 0, whole.stderr
    assert run_script(tmp_path / "cut", "local", 2).returncode == -9
    assert run_script(tmp_path / "cut", "local", 0).stdout == whole.stdout


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "flower"])
def test_a_task_of_a_script_has_one_hash_on_every_engine(engine: str, tmp_path: Path) -> None:
    here, there = run_script(tmp_path / "here", "local", 0), run_script(tmp_path / "there", engine, 0)
    assert there.stdout.splitlines()[-1:] == here.stdout.splitlines()[-1:] != [], there.stderr


def test_the_fingerprint_is_of_the_content() -> None:
    from undrift.runs.setup.custom_tasks import task_record

    def one(task: Any) -> Any:
        return task_record(task, "x")["sha256"]

    torch.manual_seed(3)
    first = one(loaders())
    torch.manual_seed(4)
    assert one(loaders()) == first, "also if data have noise of their own"
    assert one(lines()) == one(lines()) and one(lines())["data"] != one(lines(seed=1))["data"]
