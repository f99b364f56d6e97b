"""The study of schedules: its clock, its held-out examples, its trials, and its lines."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from support.small_images import small_images
from undrift import Simulation
from undrift.data import DataTask, load
from undrift.data.arrays.dataset import DataError
from undrift.data.partitions.draw import partition

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "studies")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The study with 20 clients of ten examples each and a short clock."""
    import schedules

    sizes = {"CLIENTS": 20, "FLYING": 4, "TRAIN": 200, "HELD": 50, "TEST": 60, "BUDGET": 120, "MARKS": 4, "LAST": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(schedules, name, value)
    return schedules


def test_both_kinds_of_speeds_have_the_same_times() -> None:
    from schedules import SPEEDS, slow_classes, task_seconds

    labels = torch.arange(20_000).numpy() % 10
    dealt = partition("dirichlet-client:0.1", labels, clients=100, seed=3)
    times = {speeds: task_seconds(dealt, speeds, 3) for speeds in SPEEDS}
    assert sorted(times["classes"]) == sorted(times["chance"]) and times["classes"] != times["chance"]
    ordered = sorted(times["chance"])
    assert ordered[89] / ordered[10] == pytest.approx(10, rel=0.1)
    shares = dealt.histogram[:, slow_classes(3)].sum(axis=1)
    by_time = shares[sorted(range(100), key=times["classes"].__getitem__)]
    assert (by_time[1:] >= by_time[:-1]).all() and len(slow_classes(3)) == 3
    assert task_seconds(dealt, "chance", 3) == times["chance"] != task_seconds(dealt, "chance", 4)


def test_images_of_half_the_side_are_means() -> None:
    from schedules import halved

    before, after = small_images(4).train.inputs, halved(small_images(4)).train.inputs
    assert after.shape == (4, 1, 14, 14) and after.dtype == torch.uint8
    assert abs(float(after[1, 0, 2, 3]) - float(before[1, 0, 4:6, 6:8].float().mean())) <= 0.5


def test_tuning_is_judged_on_examples_of_no_client(small: Any) -> None:
    data = small_images(260)
    tuning, final = (small.judged_on(data, seed) for seed in (small.TUNING["classes"], small.SEEDS[0]))
    assert torch.equal(tuning.test.inputs, data.train.inputs[200:250]) and len(tuning.train) == len(final.train) == 200
    assert torch.equal(final.test.inputs, data.test.inputs[:60])
    assert not set(small.TUNING.values()) & set(small.SEEDS)


def test_a_synchronous_run_is_a_plain_one_until_its_time_is_over(small: Any) -> None:
    data, about = small_images(260), small.Run("fashion-mnist", "chance", "FedAvg", 0.1, 0)
    line = small.simulate(data, about)
    assert [mark for mark, _ in line["curve"]] == [30, 60, 90, 120]
    assert line["uploads"] == 4 * line["steps"] and 0 <= line["of_slowest"] <= line["uploads"] and line["age"] == 0
    clients = partition("dirichlet-client:0.1", data.train.targets[:200].numpy(), clients=20, seed=0)
    task = DataTask(small.judged_on(data, 0), clients.clients, partial(small.build, 1, 28), seed=0)
    plain = Simulation("uniform", task, replace(small.LOCAL, lr=0.1), cohort=4, seed=0)
    last = plain.run(line["steps"])
    assert line["curve"][-1][1] == pytest.approx(task.test(plain.module(last)).accuracy, abs=1e-4)
    assert line["bytes_up"] == 4 * len(last.params) * line["uploads"]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("label", ["over-selected", "FADAS", "SCAFFOLD, buffer"])
def test_a_schedule_makes_more_steps_in_the_same_time(small: Any, label: str) -> None:
    lines = [small.simulate(small_images(260), small.Run("x", "classes", name, 0.01, 0)) for name in ("FedAvg", label)]
    assert lines[1]["steps"] > lines[0]["steps"] and lines[1]["uploads"] > lines[0]["uploads"]
    assert lines[0]["slow_classes"] == lines[1]["slow_classes"] and len(lines[1]["recall"]) == 10


def made_line(values: list[float], **others: Any) -> dict[str, Any]:
    return {"curve": [[10 * (i + 1), x] for i, x in enumerate(values)], **others}


def test_a_target_is_reached_by_the_mean_of_three_evaluations() -> None:
    from schedules import recalls, time_to

    line = made_line([0.2, 0.9, 0.2, 0.6, 0.7, 0.8], recall=[0.5] * 9 + [0.9], slow_classes=[8, 9])
    assert time_to(line, 0.55) == 20 and time_to(line, 0.7) == 60 and time_to(line, 0.75) is None
    assert recalls(line, True) == pytest.approx(70) and recalls(line, False) == pytest.approx(50)


def test_a_rate_is_searched_until_it_lies_inside(small: Any) -> None:
    asked = []

    def line(about: Any) -> Any:
        asked.append(about)
        return made_line([1 - abs(about.rate - 0.8)] * 4)

    found = small.tuned("fashion-mnist", "FedAvg", line)
    assert (
        found.best == (0.8,)
        and {(x.speeds, x.seed) for x in asked} == set(small.TUNING.items())
        and max(x.rate for x in asked) == 1.6
    )


def committed() -> tuple[dict[Any, Any], Callable[[Any], Any]]:
    """The lines by what they are about, and the function that gives one."""
    from schedules import LINES, Run
    from shared import read_lines

    lines = read_lines(LINES)
    known = {Run(*(line[key] for key in Run._fields)): line for line in lines}
    assert len(known) == len(lines)
    return known, known.__getitem__


def test_committed_rates_are_those_of_committed_trials() -> None:
    from schedules import SEEDS, tuned

    known, line = committed()
    for data, label, rate in {(x.data, x.label, x.rate) for x in known if x.seed in SEEDS}:
        found = tuned(data, label, line)
        trials = {x.rate for x in known if (x.data, x.label) == (data, label) and x.seed not in SEEDS}
        assert found.best == (rate,) and trials == set(found.axes["lr"]), (data, label)


@pytest.mark.sweep(every=2)
def test_the_beginning_of_one_of_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import schedules

    known, _ = committed()
    about = min((x for x in known if x.label == "FedBuff"), default=None)
    if about is None:
        pytest.skip("no line is there")
    try:
        dataset = schedules.halved(load(about.data))
    except DataError as error:
        pytest.skip(str(error))
    first = known[about]["curve"][:2]
    monkeypatch.setattr(schedules, "MARKS", 2)
    monkeypatch.setattr(schedules, "BUDGET", first[-1][0])
    again = schedules.simulate(dataset, about)["curve"]
    assert [mark for mark, _ in again] == [mark for mark, _ in first]
    assert [x for _, x in again] == pytest.approx([x for _, x in first], abs=0.2)
