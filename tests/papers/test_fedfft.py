"""The experiments of the FedFFT paper: complete, buildable at both scales, and beside the numbers it prints."""

import pytest

from undrift.papers import Item, comparison, paper
from undrift.papers.catalogue import Cell
from undrift.papers.runner import Scale

PAPER = paper("fedfft")
NUMBERS = (*(f"Table {n}" for n in range(1, 14)), *(f"Figure {n}" for n in range(1, 10)))
OFFLINE = {"cifar10", "fashion-mnist", "shakespeare"}
LONGEST_SMALL = 40  # rounds


def test_every_number_of_the_paper_is_an_item_or_has_a_reason() -> None:
    items = [item.number for item in PAPER.items.values()]
    assert sorted([*items, *PAPER.without]) == sorted(NUMBERS)
    assert all(reason for reason in PAPER.without.values())


@pytest.mark.parametrize("key", PAPER.items)
def test_the_key_of_an_item_is_its_number(key: str) -> None:
    assert PAPER.items[key].number.lower().replace(" ", "") == key


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("key", PAPER.items)
def test_every_item_builds(key: str, scale: Scale) -> None:
    built = comparison(PAPER, PAPER.items[key], scale)
    labels, parts = {row.label for row in built.methods}, set(built.settings)
    for drawing in PAPER.items[key].figures:
        assert set(drawing.methods) <= labels
        assert not drawing.settings or parts & set(drawing.settings)


@pytest.mark.parametrize("key", PAPER.published)
def test_published_numbers_have_a_part_and_a_row(key: str) -> None:
    built = comparison(PAPER, PAPER.items[key])
    labels, parts = {row.label for row in built.methods}, set(built.settings) or {"all"}
    assert set(PAPER.published[key]) <= parts
    assert all(set(rows) <= labels for rows in PAPER.published[key].values())


def own(items: dict[str, Item]) -> list[str]:
    """The keys of the items that have runs of their own."""
    return [key for key, item in items.items() if not item.runs]


@pytest.mark.parametrize("key", own(PAPER.items))
def test_the_small_scale_needs_no_network_and_few_rounds(key: str) -> None:
    built = comparison(PAPER, PAPER.items[key], "small")
    configs = [trial.config for trial in built.trials()]
    assert {config.data for config in configs} <= OFFLINE
    assert {config.model for config in configs} <= {"small-cnn", "resnet8", "lstm"}
    assert max(config.rounds for config in configs) <= LONGEST_SMALL
    assert len(built.seeds) >= 2 or key == "figure5"  # which shows partitions


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
    slow = {label for (_, label), config in runs.items() if config.local.decay == 0.9995}
    assert slow == {"feddyn", "fedsam-d", "fedsmoo", "fedlesam-d", "fedfft-d"}


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
