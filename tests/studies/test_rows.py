"""Rows of a comparison that differ from part to part, and rows with a model of their own."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.runs import ConfigError
from undrift.studies.compare import Comparison, compare

FILE: dict[str, Any] = {
    "seeds": [0],
    "base": {**RUN, "model": "small-cnn"},
    "methods": [{"method": "fedsam", "arguments": {"rho": 0.1}}, {"method": "fedprox", "label": "prox"}],
    "settings": {"plain": {}, "wide": {"rows": {"fedsam": {"arguments": {"rho": 0.5}}}}},
}


LABELS, VARIATIONAL = ("first", "fedavg", "last"), "variational-cnn(latent=8, samples=2)"


def built(**changes: Any) -> Comparison:
    return Comparison.build({**FILE, **changes})


@pytest.mark.quick
def test_a_part_overrides_a_row() -> None:
    found = {(t.setting, t.label): t.config.arguments for t in built().trials()}
    assert found[("plain", "fedsam")] == {"rho": 0.1}
    assert found[("wide", "fedsam")] == {"rho": 0.5}
    assert found[("plain", "prox")] == found[("wide", "prox")] == {}
    again = Comparison.build(tomllib.loads(built().toml()))
    assert again.trials() == built().trials(), "compare.toml has the overrides"


def test_a_part_may_change_the_method_of_a_row() -> None:
    wide = {"rows": {"prox": {"method": "fedprox(0.5) + tuned(1)"}}}
    trial = built(settings={"wide": wide}).trials()[1]
    assert (trial.label, trial.config.method) == ("prox", "fedprox(0.5) + tuned(1)")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"fedsma": {}}, "settings.wide.rows: no row is labelled 'fedsma'; did you mean 'fedsam'"),
        ({"fedsam": {"label": "sam"}}, "settings.wide.rows.fedsam: write method, arguments, local or model"),
        ({"fedsam": 3}, "settings.wide.rows.fedsam: write method, arguments, local or model, got 3"),
        ([1], r"settings.wide.rows: write a table for each row, \[settings.wide.rows.fedsam\], got"),
        ({"fedsam": {"rho": 0.5}}, "settings.wide.rows.fedsam: rho: unknown key"),
        ({"fedsam": {"local": {"lr": 1.0}}}, "fedsam changes lr of local"),
        ({"fedsam": {"model": "cnn"}}, "fedsam has a model of its own, but rows share their model"),
    ],
)
def test_what_a_part_cannot_say_about_rows(rows: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(settings={"wide": {"rows": rows}})


def test_own_models_must_be_allowed_and_the_others_named() -> None:
    rows = [{"method": "fedavg"}, {"method": "fedcr", "model": "variational-cnn", "arguments": {"tuned": 1}}]
    nameless = {key: value for key, value in RUN.items() if key != "model"}
    for changes in ({}, {"own_model": True, "base": nameless}):
        with pytest.raises(ConfigError, match="write own_model = true at the top and the others' model in"):
            built(methods=rows, settings={}, **changes)


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("tiny")
def test_a_row_trains_its_own_model(tmp_path: Path) -> None:
    """The other rows keep theirs, whether they come before or after it; data and partition are shared."""
    own = {"method": "fedcr", "model": VARIATIONAL, "arguments": {"latent": 8, "tuned": 1}}
    rows = [{**own, "label": "first"}, {"method": "fedavg"}, {**own, "label": "last"}]
    table = compare(built(methods=rows, settings={}, own_model=True), tmp_path)
    assert table["failures"] == []
    read = {label: tomllib.loads((tmp_path / label / "seed-0/config.toml").read_text()) for label in LABELS}
    assert [read[label]["model"] for label in LABELS] == [VARIATIONAL, "small-cnn", VARIATIONAL]
    first, _, last = (json.loads((tmp_path / label / "seed-0/summary.json").read_text())["sha256"] for label in LABELS)
    assert first == last
