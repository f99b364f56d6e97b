"""The experiments of the FedFFT paper: complete, buildable at both scales, and beside the numbers it prints."""

from typing import Any

import pytest

from undrift import make
from undrift.papers import comparison, paper
from undrift.papers.catalogue import Cell

PAPER = paper("fedfft")


def test_the_protocol_of_the_paper() -> None:
    built = comparison(PAPER, PAPER.items["table1"])
    runs = {(trial.setting, trial.label): trial.config for trial in built.trials()}
    assert {len({label for _, label in runs}), len({setting for setting, _ in runs})} == {16, 6}
    first = runs["cifar10-0.6", "fedfft"]
    assert (first.clients, first.cohort, first.rounds, first.model) == (100, 10, 800, "resnet18-imagenet")
    assert (first.local.lr, first.local.decay, first.local.weight_decay) == (0.1, 0.998, 1e-3)
    assert (first.local.epochs, first.local.batch_size) == (5, 50)
    assert first.arguments == {"rho": 0.1, "r": 0.01}
    hundred, tiny = runs["cifar100-0.1", "fedfft-d"], runs["tiny-0.1", "fedfft-d"]
    assert (hundred.local.epochs, hundred.local.batch_size, hundred.rounds) == (2, 20, 800)
    assert (tiny.local.epochs, tiny.local.batch_size, tiny.rounds) == (5, 50, 300)
    assert first.augment == "flip+crop(probability=0.5, fill='mean')", "zeros around normalised images"
    assert tiny.augment == "flip+crop(padding=8, probability=0.5, fill='mean')"
    assert tiny.data == "tiny-imagenet(mean=0.5, std=0.5)"
    slow = {label for (_, label), config in runs.items() if config.local.decay == 0.9995}
    assert slow == {"feddyn", "fedsam-d", "fedsmoo", "fedlesam-d", "fedfft-d"}


@pytest.mark.parametrize("item", ["table1", "table2"])
def test_fedgloss_has_the_arguments_of_the_preset(item: str) -> None:
    """The paper has one constant radius for all methods: nothing warms up."""
    own = [x.config.arguments for x in comparison(PAPER, PAPER.items[item]).trials() if x.label == "fedgloss"]
    found: list[dict[str, Any]] = [{**arguments} for arguments in own]
    assert found and all(make("fedgloss", **values) == make("fedgloss", preset="fedfft") for values in found)


@pytest.mark.parametrize(
    ("key", "part", "row", "printed"),
    [
        ("table1", "cifar10-0.1", "fedfft-d", 83.05),
        ("table1", "cifar100-0.6", "fedlesam-s", 54.61),
        ("table2", "cifar100-densenet121", "fedsam-d", 64.19),
        ("table4", "tiny-0.1", "fedsmoo", {"rounds": 204, "cost": 1.36}),
        ("table5", "cifar10-0.1", "fedgloss", {"seconds": 23.07, "rounds": 487, "total_seconds": 11235.70}),
        ("table10", "all", "fedsam-rho-0.2", 58.49),
        ("table13", "cifar10-0.6", "gradfilter", 82.13),
    ],
)
def test_numbers_are_those_printed(key: str, part: str, row: str, printed: Cell) -> None:
    assert PAPER.published[key][part][row] == printed


def test_all_printed_numbers_are_there() -> None:
    counts = {key: sum(len(rows) for rows in parts.values()) for key, parts in PAPER.published.items()}
    assert counts == {
        "table1": 96,
        "table2": 32,
        "table3": 12,
        "table4": 30,
        "table5": 5,
        "table8": 8,
        "table9": 4,
        "table10": 8,
        "table11": 2,
        "table12": 2,
        "table13": 4,
    }


def test_costs_of_table_4_are_rounds_times_traffic_over_those_of_fedavg() -> None:
    """Checks the printed pairs against each other: FedSMOO exchanges twice the traffic of the others."""
    for part, rows in PAPER.published["table4"].items():
        whole = 300 if part.startswith("tiny") else 800
        for label, cell in rows.items():
            assert isinstance(cell, dict)
            traffic = 2 if label == "fedsmoo" else 1
            assert cell["cost"] == pytest.approx(traffic * cell["rounds"] / whole, abs=0.0051)
