"""Tables of one's own as a model takes them: texts, missing values, scaling, and statistics from sums over clients."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from undrift.data import DataError, Dataset, load
from undrift.data.arrays.preprocess import Inputs, Preprocess
from undrift.data.own.columns import BEFORE
from undrift.data.own.statistics import exact_deviation, exact_mean, exact_median, exact_mode

pytest.importorskip("pyarrow")

DRAW = np.random.default_rng(5)
ROWS = [
    (
        f"{20 + n % 50},{DRAW.normal(30, 5):.3f},{'fm'[n % 2]},{('north', 'south', 'west')[n % 3]},id-{n},"
        f"{5000 + 120 * (n % 50) + DRAW.normal(0, 50):.2f}"
    ).split(",")
    for n in range(200)
]
NAMES = "age,bmi,sex,region,code,charges"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def write(blank: dict[int, str] | None = None) -> str:
    """The table; rows by number have no value in the named column."""
    names, lines = NAMES.split(","), []
    for number, row in enumerate(ROWS):
        gap = (blank or {}).get(number)
        lines.append(",".join("" if name == gap else value for name, value in zip(names, row, strict=True)))
    Path("insurance.csv").write_text("\n".join([NAMES, *lines]) + "\n")
    return "insurance.csv"


def column(name: str) -> list[str]:
    return [row[NAMES.split(",").index(name)] for row in ROWS]


def all_inputs(data: Dataset) -> torch.Tensor:
    return torch.cat([data.train.inputs, data.test.inputs])


def test_texts_are_inputs_and_what_is_left_out_is_named() -> None:
    data = load(write(), target="charges")
    assert data.shape == (7,) and data.left_out == ("code (200 different texts)",)
    assert [(one.name, one.categories) for one in data.columns] == [
        ("age", ()),
        ("bmi", ()),
        ("sex", ("f", "m")),
        ("region", ("north", "south", "west")),
    ]
    sexes, regions = data.train.inputs[:, 2:4], data.train.inputs[:, 4:7]
    assert set(sexes.unique().tolist()) == {0.0, 1.0} and bool((sexes.sum(1) == 1).all())
    assert bool((regions.sum(1) == 1).all())
    assert data.mean[2:] == (0.0,) * 5 and data.std[2:] == (1.0,) * 5


def test_codes_are_positions_in_sorted_order() -> None:
    data = load(write(), target="charges", categories="codes")
    assert data.shape == (4,)
    codes = all_inputs(data)[:, 3].double() * data.std[3] + data.mean[3]
    assert sorted(codes.round().long().tolist()) == sorted(
        {"north": 0, "south": 1, "west": 2}[x] for x in column("region")
    )


def test_categories_none_leaves_texts_out() -> None:
    data = load(write(), target="charges", categories="none")
    assert data.shape == (2,)
    assert data.left_out == ("sex (texts)", "region (texts)", "code (texts)")


def test_a_target_of_numbers_is_scaled_by_default() -> None:
    data = load(write(), target="charges")
    assert data.train.targets.mean().item() == pytest.approx(0, abs=1e-5)
    assert data.train.targets.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    back = torch.cat([data.train.targets, data.test.targets]).double() * data.target_std[0] + data.target_mean[0]
    assert sorted(back.tolist()) == pytest.approx(sorted(map(float, column("charges"))), rel=1e-5)
    plain = load("insurance.csv", target="charges", scale="inputs")
    assert plain.target_mean == () and float(plain.train.targets.min()) > 4000
    raw = load("insurance.csv", target="charges", scale="none")
    assert raw.mean == () and sorted(all_inputs(raw)[:, 0].tolist()) == sorted(map(float, column("age")))


def test_labels_of_zero_and_one_are_not_scaled() -> None:
    lines = [f"{n}.5,{n % 2},{n // 2 % 2}" for n in range(40)]
    Path("labels.csv").write_text("\n".join(["x,a,b", *lines]))
    assert load("labels.csv", target="a;b").target_mean == ()


@pytest.mark.parametrize("missing", ["mean", "median", "mode"])
def test_missing_values_are_filled_from_the_training_set(missing: str) -> None:
    path = write({3: "age", 8: "age", 11: "sex", 60: "bmi"})
    with pytest.raises(DataError, match="column 'age' has no value in row 3 of train; fill it with missing='mean'"):
        load(path, target="charges", inputs="age;bmi")
    data = load(path, target="charges", missing=missing)
    age, bmi, sex, _ = data.columns
    assert sex.categories == ("f", "m") and sex.fill in (0, 1) and age.fill is not None and bmi.fill is not None
    assert torch.isfinite(all_inputs(data)).all() and len(all_inputs(data)) == 200
    if missing == "mean":
        assert age.fill == pytest.approx(data.mean[0])
    else:
        assert age.fill in set(map(float, column("age")))


def test_rows_with_missing_values_are_dropped() -> None:
    data = load(write({3: "age", 11: "sex", 60: "charges"}), target="charges", missing="drop")
    assert len(all_inputs(data)) == 197


def test_an_empty_text_is_a_category_unless_it_is_filled() -> None:
    path = write({11: "sex"})
    assert load(path, target="charges").columns[2].categories == ("", "f", "m")


def test_a_missing_target_is_never_filled() -> None:
    path = write({60: "charges"})
    with pytest.raises(
        DataError, match="column 'charges' has no value in row 60 of train; fill it, or leave such rows"
    ):
        load(path, target="charges", missing="mean")


@pytest.mark.parametrize(("name", "value"), [("categories", "onehot"), ("missing", "median_"), ("scale", "robust")])
def test_other_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"insurance.csv: {name} must be .*, got '{value}'"):
        load(write(), target="charges", **{name: value})  # type: ignore[arg-type]


def test_what_runs_of_earlier_versions_read_keeps_its_bits() -> None:
    data = load(write(), target="charges", **BEFORE)  # type: ignore[arg-type]
    rows = np.column_stack([np.array(column(name), float) for name in ("age", "bmi")])
    train = load("insurance.csv", target="charges", scale="none", categories="none").train
    raw = np.stack([rows[np.argmin(np.abs(rows - own).sum(1))] for own in train.inputs.double().numpy()])
    mean, std = raw.mean(axis=0), raw.std(axis=0)
    assert data.mean == tuple(mean.tolist()) and data.std == tuple(std.tolist())
    assert torch.equal(data.train.inputs, torch.from_numpy(((raw - mean) / std).astype(np.float32)))
    assert float(data.train.targets.min()) > 4000 and data.statistics == "pooled"


def grouped(rows: np.ndarray, cuts: list[int], order: np.ndarray) -> list[np.ndarray]:
    """The rows in another order, cut into clients."""
    return [rows[order][a:b] for a, b in pairwise([0, *cuts, len(rows)])]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("statistic", [exact_mean, exact_median, exact_mode])
@pytest.mark.parametrize("cuts", [[], [1], [40, 41, 600], list(range(50, 1000, 50))])
def test_statistics_have_the_same_bits_whatever_the_grouping(statistic: object, cuts: list[int]) -> None:
    draw = np.random.default_rng(len(cuts))
    rows = draw.normal(3, 1, (1000, 4)) * np.array([1.0, 1e9, 1e-9, 0.0]) + np.array([0, 1.7e9, 0, 7.0])
    rows[draw.random(rows.shape) < 0.1] = np.nan
    rows[:, 0] = rows[:, 0].round(1)
    clients = grouped(rows, cuts, draw.permutation(1000))
    assert statistic(clients).tolist() == statistic([rows]).tolist()  # type: ignore[operator]
    mean = exact_mean([rows])
    assert exact_deviation(clients, mean).tolist() == exact_deviation([rows], mean).tolist()
    assert np.allclose(mean, np.nanmean(rows, axis=0), rtol=1e-12)
    assert np.allclose(exact_deviation([rows], mean)[:3], np.nanstd(rows, axis=0)[:3], rtol=1e-9)
    middle = [np.quantile(x[np.isfinite(x)], 0.5, method="inverted_cdf") for x in rows.T]
    assert exact_median(clients).tolist() == middle


def test_the_record_applies_what_training_applied() -> None:
    data = load(write({3: "age"}), target="charges", missing="median")
    made = Preprocess.from_record(data.preprocess.record())
    assert made == data.preprocess and made.input_shape == (7,)
    row = torch.tensor([[float("nan"), 30.0, 1.0, float("nan")]], dtype=torch.float64)
    found = Inputs(made)(row)
    assert made.columns[0].fill is not None
    assert found[0, 0].item() == pytest.approx((made.columns[0].fill - data.mean[0]) / data.std[0])
    assert found[0, 2:4].tolist() == [0.0, 1.0] and found[0, 4:].sum() == 1  # the most frequent region
