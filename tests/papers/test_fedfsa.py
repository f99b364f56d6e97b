"""The experiments of the FedFSA paper: complete, buildable at both scales, and beside the numbers it prints."""

from dataclasses import replace
from typing import Any

import pytest

from undrift.algorithms import make
from undrift.compose.build import resolve
from undrift.papers import comparison, paper
from undrift.papers.catalogue import Cell
from undrift.papers.runner import Scale
from undrift.runs.folder.judge import config_column
from undrift.studies.results_sheet import Trial

PAPER = paper("fedfsa")
TUNED = ("table1", "table2", "figure3a", "figure4")


def trials(key: str, scale: Scale = "paper") -> dict[tuple[str, str], Trial]:
    """The runs of an item with its first seed, by part and row."""
    built = comparison(PAPER, PAPER.items[key], scale)
    return {(t.setting, t.label): t for t in built.trials() if t.config.seed == built.seeds[0]}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("key", PAPER.items)
def test_every_row_is_judged_by_personal_models_on_held_out_data(key: str, scale: Scale) -> None:
    for trial in trials(key, scale).values():
        assert config_column(trial.config) == "personal_accuracy"
        assert trial.config.holdout == 0.3
        assert trial.config.partition.startswith(("classes(", "dirichlet-client(")), "equal sizes"
        expected = 10 if key in TUNED else 0
        assert trial.config.algorithm().personalization.tuning == expected, f"{key} {trial.label}"


def test_the_protocol_of_section_5_1() -> None:
    built = comparison(PAPER, PAPER.items["table1"])
    assert built.seeds == (23, 100, 200)
    assert (len(built.settings), len(built.methods)) == (8, 8)
    for (part, label), trial in trials("table1").items():
        config = trial.config
        assert (config.clients, config.cohort) == (100, 0.1)
        assert config.rounds == (250 if part.startswith("fmnist") else 500)
        slow = part.startswith("tiny") or label in ("fedsmoo", "fedspeed")
        decay = 0.998 if slow else 1.0
        assert config.local == replace(
            config.local, lr=0.1, decay=decay, weight_decay=0.0, clip=10.0, epochs=10, batch_size=48
        )
        assert config.augment == ("none" if part.startswith("fmnist") else "flip+crop")
        assert config.model == ("variational-cnn(body='cnn', latent=512, samples=18)" if label == "fedcr" else "cnn")
    partitions = {part: trial.config.partition for (part, _), trial in trials("table1").items()}
    assert list(partitions.values()) == [
        *("classes(5)", "dirichlet-client(0.5)") * 2,
        *("classes(15)", "dirichlet-client(0.3)", "classes(50)", "dirichlet-client(0.3)"),
    ]


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize(
    ("part", "preset"),
    [
        ("fmnist-pat5", "fedfsa"),
        ("cifar10-dir0.5", "fedfsa"),
        ("cifar100-pat15", "fedfsa-cifar100"),
        ("tiny-dir0.3", "fedfsa-tiny"),
    ],
)
def test_arguments_agree_with_the_presets(part: str, preset: str) -> None:
    found = trials("table1")
    for label in ("fedsam", "mofedsam", "fedsmoo", "fedspeed"):
        config, own = found[part, label].config, resolve(preset, label)
        assert config.algorithm().perturbation == make(label, **own.arguments).perturbation
        assert config.local.decay == own.local["decay"]
    ours = found[part, "fedfsa"].config.arguments
    assert ours == {**resolve(preset, "fedfsa").arguments, "tuned": 10}
    assert found[part, "fedavg-ft"].config.arguments == resolve(preset, "fedavg-ft").arguments


def test_figures_with_resnet_have_the_radii_of_section_5_3() -> None:
    resnet, expected = resolve("fedfsa-resnet18", "fedfsa").arguments, {"cifar10-cnn": (0.1, 0.2, 2)}
    assert trials("figure3b")["cifar100-dir0.3", "fedfsa"].config.arguments == resnet
    own = (resnet["rho"], resnet["larger"], resnet["count"])
    expected |= {"cifar100-cnn": (0.05, 0.9, 2), "cifar10-resnet18": own, "cifar100-resnet18": own}
    for (part, _), trial in trials("figure5").items():
        block: Any = trial.config.algorithm().perturbation
        assert (block.rho, block.larger, block.count) == expected[part]
        assert trial.config.local.buffers == ("keep" if part.endswith("resnet18") else "average")


@pytest.mark.parametrize(
    ("key", "part", "row", "printed"),
    [
        ("table1", "fmnist-pat5", "fedala", (92.99, 0.22)),
        ("table1", "cifar10-dir0.5", "mofedsam", (88.16, 0.25)),
        ("table1", "cifar100-dir0.3", "fedfsa", (60.87, 0.61)),
        ("table1", "tiny-pat50", "fedcr", (23.71, 0.78)),
        ("table2", "cifar100-dir1", "fedsmoo", (46.58, 0.52)),
        ("table2", "tiny-50", "fedspeed", (31.60, 0.25)),
        ("figure3a", "cifar100-dir0.3", "fedfsa", 60.87),
    ],
)
def test_numbers_are_those_printed(key: str, part: str, row: str, printed: Cell) -> None:
    assert PAPER.published[key][part][row] == printed


def test_all_printed_numbers_are_there() -> None:
    """Three cells of Table 1 and three of Table 2 are dashes; Table 2 repeats a column of Table 1."""
    counts = {key: sum(len(rows) for rows in parts.values()) for key, parts in PAPER.published.items()}
    assert counts == {"table1": 8 * 8 - 3, "table2": 4 * 8 - 3, "figure3a": 6}
    assert PAPER.published["table2"]["tiny-100"] == PAPER.published["table1"]["tiny-dir0.3"]


def test_rows_that_a_small_scale_leaves_out_take_their_overrides_with_them() -> None:
    assert {label for _, label in trials("table2", "small")} == {"fedavg-ft", "fedsam", "mofedsam", "fedfsa"}
