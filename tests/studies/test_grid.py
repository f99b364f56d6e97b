"""The key `grid`: each combination of its values is a row or a setting."""

from typing import Any

import pytest

from undrift.runs.settings.schema import ConfigError
from undrift.studies.compare import Comparison
from undrift.studies.grid import expand, value_name

FEDAVG = {"method": "fedavg"}


def built(**changes: Any) -> Comparison:
    return Comparison.build({"methods": [FEDAVG], "seeds": [0], **changes})


def test_a_grid_in_a_row_is_a_row_for_each_combination() -> None:
    rows: list[dict[str, Any]] = [FEDAVG, {"method": "fedsam", "grid": {"arguments.rho": [0.05, 1e-05]}}]
    grid = {"arguments": {"larger": [0.2, 0.5], "count": [2, 3]}}
    rows += [{"method": "fedfsa", "label": "fsa", "arguments": {"rho": 0.1}, "grid": grid}]
    comparison = built(methods=rows)
    assert [entry.label for entry in comparison.methods] == [
        "fedavg",
        "fedsam-rho-0.05",
        "fedsam-rho-1e-05",
        *[f"fsa-larger-{x}-count-{n}" for x in (0.2, 0.5) for n in (2, 3)],
    ]
    assert comparison.baseline == "fedavg"
    assert comparison.methods[-1].arguments == {"larger": 0.5, "count": 3, "rho": 0.1}
    assert Comparison.build(comparison.model_dump()) == comparison
    rates = [{"method": "fedavg", "grid": [{"local.lr": [0.1, 0.2]}, {"local.clip": [1.0]}]}]
    labels = [entry.label for entry in built(methods=rates, own_local=True).methods]
    assert labels == ["fedavg-lr-0.1", "fedavg-lr-0.2", "fedavg-clip-1.0"]


def test_lists_of_arguments_are_still_read() -> None:
    old = {"method": "fedfsa", "label": "fsa", "arguments": {"larger": [0.2, 0.5], "rho": 0.1, "count": [2]}}
    new = {"method": "fedfsa", "label": "fsa", "arguments": {"rho": 0.1}}
    with pytest.warns(DeprecationWarning, match=r"write grid.arguments.larger = \[...\] in the row"):
        found = built(methods=[old])
    assert found == built(methods=[{**new, "grid": {"arguments": {"larger": [0.2, 0.5], "count": [2]}}}])
    assert list(found.methods[0].arguments) == ["larger", "rho", "count"]  # in the order of the file


def test_a_grid_is_a_setting_for_each_combination() -> None:
    grid = {"partition": ["dirichlet:0.1", "iid"], "local": {"epochs": [1, 5]}}
    comparison = built(base={"local": {"lr": 0.05}}, grid=grid)
    names = [f"partition-{p}-epochs-{n}" for p in ("dirichlet-0.1", "iid") for n in (1, 5)]
    assert list(comparison.settings) == names
    last = comparison.trials()[-1].config
    assert (last.partition, last.local.epochs, last.local.lr) == ("iid", 5, 0.05)
    assert built(grid={"partition": "iid", "local.epochs": [1, 5]}).settings["partition-iid-epochs-5"] == {
        "partition": "iid",
        "local": {"epochs": 5},
    }


def test_settings_are_combined_with_the_grid_and_grids_follow_each_other() -> None:
    both = built(settings={"even": {"partition": "iid"}, "skewed": {}}, grid={"clients": [20, 50]})
    assert list(both.settings) == ["even-clients-20", "even-clients-50", "skewed-clients-20", "skewed-clients-50"]
    assert both.settings["even-clients-50"] == {"partition": "iid", "clients": 50}
    own = built(settings={"even": {"partition": "iid"}, "rates": {"grid": {"local.lr": [0.1, 0.2]}}})
    assert list(own.settings) == ["even", "rates-lr-0.1", "rates-lr-0.2"]
    all_of_them = built(settings={"rates": {"grid": {"local.lr": [0.1, 0.2]}}}, grid={"clients": [20]})
    assert list(all_of_them.settings) == ["rates-lr-0.1-clients-20", "rates-lr-0.2-clients-20"]
    one_by_one = built(grid=[{"clients": [20, 50]}, {"cohort": [5]}])
    assert list(one_by_one.settings) == ["clients-20", "clients-50", "cohort-5"]
    same_end = built(grid={"local.clip": [1.0], "engine.workers": [1], "output.keep": [1], "local.epochs": [1]})
    assert list(same_end.settings) == ["clip-1.0-workers-1-keep-1-epochs-1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": {"local.epochs": []}}, "grid: local.epochs has no value: write at least one"),
        ({"grid": {"clients": [5, 5]}}, "two settings would be named 'clients-5'"),
        ({"grid": 3}, "grid: must be a table of keys and values"),
        ({"grid": {"local.epoch": [1]}}, "epoch-1/fedavg: local.epoch: unknown key; did you mean 'epochs'"),
        ({"grid": {"seed": [1]}}, "settings.seed-1.seed: every row has its own: write it in seeds"),
        ({"grids": {}}, "grids: unknown key; did you mean 'grid'"),
        (
            {"methods": [{"method": "fedsam", "grid": {"arguments.rho": []}}]},
            "fedsam: grid: arguments.rho has no value",
        ),
        ({"methods": [{"method": "fedsam", "grid": {"arguments.rh": [1, 2]}}]}, "fedsam-rh-1: "),
        ({"methods": [{"method": "fedsam", "grids": {}}]}, "methods.0.grids: unknown key; did you mean 'grid'"),
        ({"settings": {"a": {"grid": []}}}, "a: grid: must be a table of keys and values"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(**change)


def test_other_files_are_left_as_they_are() -> None:
    values = {"methods": [1], "seeds": [0]}
    assert expand(values, "x") == values
    with pytest.raises(ConfigError, match="methods"):
        Comparison.build(values)
    assert value_name("scaffold + sam(rho=0.05)") == "scaffold-sam-rho-0.05"
