"""The experiments of FedWMSAM: every number of the poster, its published figures, both scales."""

from dataclasses import replace

import pytest

from undrift.core.local.presets import preset
from undrift.papers import comparison, paper

PAPER = paper("fedwmsam")
LOCAL = {"cifar10", "fashion-mnist", "shakespeare"}
"""Data on a machine without a network."""


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("key", PAPER.items)
def test_both_scales(key: str) -> None:
    item = PAPER.items[key]
    whole, small = comparison(PAPER, item).trials(), comparison(PAPER, item, "small").trials()
    assert {trial.config.rounds for trial in whole} == {500}
    assert {trial.config.local.epochs for trial in whole} == ({1, 5, 10, 20} if key == "table4" else {5})
    assert {trial.config.data.partition("(")[0] for trial in small} <= LOCAL
    assert max(trial.config.rounds for trial in small) <= 40
    known = {(trial.setting, trial.label) for trial in whole}
    assert {(trial.setting, trial.label) for trial in small} <= known
    for drawing in item.figures:  # what is drawn exists at both scales
        for trials in (whole, small):
            labels, settings = {trial.label for trial in trials}, {trial.setting for trial in trials}
            assert not drawing.methods or labels & set(drawing.methods)
            assert not drawing.settings or settings & set(drawing.settings)
            assert {*drawing.methods} <= {label for _, label in known}
            assert {*drawing.settings} <= {setting for setting, _ in known}


def test_settings_are_those_of_the_preset() -> None:
    values = preset("fedwmsam")
    for trial in comparison(PAPER, PAPER.items["table1"]).trials():
        assert replace(trial.config.local, **values.local) == trial.config.local
        assert trial.config.arguments | dict(values.of(trial.label).arguments) == trial.config.arguments


def test_published_numbers_are_complete() -> None:
    rows = {key: {len(cells) for cells in parts.values()} for key, parts in PAPER.published.items()}
    assert rows == {"table1": {9}, "table2": {9}, "table3": {11}, "table4": {5}, "table5": {7}, "table6": {10}}
    assert {key: len(parts) for key, parts in PAPER.published.items()} == {
        "table1": 12,
        "table2": 4,
        "table3": 1,
        "table4": 4,
        "table5": 1,
        "table6": 1,
    }


def test_published_numbers() -> None:
    found = PAPER.published
    assert found["table1"]["cifar10-dirichlet-0.1"]["fedwmsam"] == 76.64
    assert found["table1"]["cifar100-classes-10"]["fedgamma"] == 1.98
    assert found["table2"]["real-world"]["scaffold"] == 97.49
    assert found["table3"]["all"]["fedavg"] == {
        "rounds@0.7": 254,
        "rounds@0.72": 348,
        "rounds@0.74": 432,
        "seconds": 14.57,
    }
    assert found["table4"]["epochs-20"]["fedsmoo"] == 74.72
    assert found["table5"]["all"]["m-w"] == 73.26
    assert found["table6"]["all"]["mofedsam-rho-0.5"] == 10.0


def test_tables_repeat_each_other_s_numbers() -> None:
    """The setting of Tables 4 to 6 is not stated; that they repeat a column of Table 1 tells which it is."""
    column, found = PAPER.published["table1"]["cifar10-dirichlet-0.1"], PAPER.published
    assert {label: column[label] for label in found["table4"]["epochs-5"]} == found["table4"]["epochs-5"]
    assert (found["table5"]["all"]["none"], found["table5"]["all"]["m-s-w"]) == (column["fedcm"], column["fedwmsam"])
    for label in ("fedwmsam", "mofedsam"):
        assert found["table6"]["all"][f"{label}-rho-0.01"] == column[label]


def test_the_improvements_of_the_ablation() -> None:
    """The poster prints them too, and they agree with the accuracies."""
    found = PAPER.published["table5"]["all"]
    gains = {label: round(float(found[label]) - float(found["none"]), 2) for label in found}  # type: ignore[arg-type]
    assert gains == {"none": 0, "s": 2.01, "m": 2.49, "m-w": 0.97, "s-w": 0.36, "m-s": 3.27, "m-s-w": 4.35}


def test_the_targets_of_table_3_are_the_published_ones() -> None:
    targets = comparison(PAPER, PAPER.items["table3"]).trials()[0].config.target
    published = {measure for cells in PAPER.published["table3"]["all"].values() for measure in dict(cells)}  # type: ignore[arg-type]
    assert isinstance(targets, tuple)
    assert {f"rounds@{target}" for target in targets} | {"seconds"} == published


def test_without_all_parts_it_is_fedcm() -> None:
    trials = {trial.label: trial.config for trial in comparison(PAPER, PAPER.items["table5"]).trials()}
    blocks = trials["none"].algorithm()
    assert blocks.momentum.pace == 0  # type: ignore[attr-defined]
    assert blocks.perturbation is None or blocks.perturbation.rho == 0  # type: ignore[attr-defined]


def test_figure_6_has_six_numbers_of_clients_six_shares_and_five_methods() -> None:
    trials = comparison(PAPER, PAPER.items["figure6"]).trials()
    tenth = [trial.config for trial in trials if trial.config.cohort == 0.1]
    hundred = [trial.config for trial in trials if trial.config.clients == 100]
    assert {config.clients for config in tenth} == {20, 50, 75, 100, 150, 200}
    assert {config.cohort for config in hundred} == {0.05, 0.1, 0.2, 0.4, 0.8, 1.0}
    assert {trial.label for trial in trials} == set(PAPER.published["table4"]["epochs-5"]) and len(trials) == 11 * 5


def test_figures_3_and_5_have_their_split_and_methods() -> None:
    curves = comparison(PAPER, PAPER.items["figure3"]).trials()
    shown = [trial for trial in curves if PAPER.items["figure3"].figures[0].shows(trial.setting, trial.label)]
    assert {trial.config.partition for trial in shown} == {"dirichlet-client(0.6, refill=True)"}
    for drawing in PAPER.items["figure5"].figures:
        assert drawing.methods == ("fedavg", "fedsam", "mofedsam", "fedwmsam")


@pytest.mark.parametrize("key", ["table1", "table5", "table6"])
def test_an_item_names_the_image_that_its_numbers_were_read_from(key: str) -> None:
    assert "poster's image" in PAPER.items[key].differs
