"""The experiments of the FedSCAM paper: complete, buildable at both scales, and beside the numbers it prints."""

import pytest

from undrift import make
from undrift.papers import comparison, paper
from undrift.papers.catalogue import Cell
from undrift.papers.runner import Scale

PAPER = paper("fedscam")
SCALES: tuple[Scale, Scale] = ("paper", "small")


def test_all_printed_numbers_are_there() -> None:
    counts = {key: sum(map(len, parts.values())) for key, parts in PAPER.published.items()}
    assert counts == {"table1": 6, "table2": 39, "section5.2": 4}


@pytest.mark.parametrize(
    ("key", "part", "row", "printed"),
    [
        ("table1", "all", "fedscam", 65.41),
        ("table1", "all", "fedwmsam", 52.68),
        ("table2", "alpha-0.1", "fedscam-sam", 48.77),
        ("table2", "alpha-0.5", "fedlesam", 60.62),
        ("table2", "alpha-1.0", "fedprox", 71.59),
        ("section5.2", "resnet18", "fedscam", 62.60),
    ],
)
def test_numbers_are_those_printed(key: str, part: str, row: str, printed: Cell) -> None:
    assert PAPER.published[key][part][row] == printed


def test_published_differences_are_those_of_the_text() -> None:
    """The text repeats some differences: FedLESAM +0.35 on Fashion-MNIST, FedSCAM +2.81 and +4.60 over FedSAM."""
    first, text = PAPER.published["table1"]["all"], PAPER.published["section5.2"]

    def gap(rows: dict[str, Cell], better: str, worse: str) -> float:
        above, below = rows[better], rows[worse]
        assert isinstance(above, float)
        assert isinstance(below, float)
        return above - below

    assert gap(first, "fedlesam", "fedscam") == pytest.approx(0.35)
    assert gap(text["small-cnn"], "fedscam", "fedsam") == pytest.approx(2.81)
    assert gap(text["resnet18"], "fedscam", "fedsam") == pytest.approx(4.60)


def test_the_protocol_of_the_paper() -> None:
    first = {trial.label: trial.config for trial in comparison(PAPER, PAPER.items["table1"]).trials()}["fedscam"]
    assert (first.clients, first.cohort, first.rounds, first.model) == (10, 10, 10, "resnet18-bn")
    assert (first.local.lr, first.local.epochs, first.local.batch_size) == (0.01, 5, 256)
    assert (first.local.decay, first.local.weight_decay, first.local.clip) == (1.0, 0.0, None)
    assert first.algorithm() == make("fedscam", rho=0.05, batches=3, length=512, alpha=1, kappa=0.5, gamma=1, beta=0.8)
    second = comparison(PAPER, PAPER.items["table2"])
    runs = {(trial.setting, trial.label): trial.config for trial in second.trials()}
    assert len(runs) == 39
    assert {config.rounds for config in runs.values()} == {15}
    assert {config.local.batch_size for config in runs.values()} == {64}
    text = {trial.setting: trial.config for trial in comparison(PAPER, PAPER.items["section5.2"]).trials()}
    assert (text["resnet18"].rounds, text["resnet18"].local.epochs) == (50, 1)
    assert (text["small-cnn"].rounds, text["small-cnn"].model) == (30, "small-cnn")


@pytest.mark.parametrize(
    ("key", "name", "values"),
    [("figure22", "rho", (0.01, 0.05, 0.1)), ("figure24", "gamma", (0, 1, 5)), ("figure26", "beta", (0, 0.8, 2))],
)
def test_a_sensitivity_study_varies_one_argument(key: str, name: str, values: tuple[float, ...]) -> None:
    for scale in SCALES:
        rows = comparison(PAPER, PAPER.items[key], scale).methods
        assert tuple(row.arguments[name] for row in rows) == values
        assert len({str({**row.arguments, name: None}) for row in rows}) == 1
