"""Tables and archives of one's own that could be read in a wrong way."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undrift.data import DataError, load
from undrift.data.own.labels import is_few_whole, number_classes, number_owners

pa, pq, ipc = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet", ".ipc"))

X, Y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def csv(text: str, rows: int = 40, header: str = "x,label", encoding: str = "utf-8") -> str:
    lines = [header, *(text.format(n=n, even=n % 2 == 0, odd=n % 2) for n in range(rows))]
    Path("rows.csv").write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return "rows.csv"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "images": X, "y": Y}, "images and another array both are the inputs of train; leave one out"),
        ({"inputs": X, "targets": Y, "labels": Y}, "labels and another array both are the targets of train"),
        ({"inputs": X, "targets": Y, "train_x": X, "test_x": X, "test_y": Y}, "train_x and another array both are"),
        (
            {"inputs": X, "targets": Y[:30]},
            r"train must have as many inputs as targets .* 40 inputs, 30 tar",
        ),
        ({"inputs": X, "targets": Y, "owners": Y[:3]}, "got 40 inputs, 40 targets, 3 owners"),
        ({"inputs": X, "targets": np.array(1)}, "got 40 inputs, 0 targets"),
        ({"test_inputs": X, "test_targets": Y}, "it has no training set; name its arrays train_inputs"),
        (
            {"train_x": X, "train_y": Y, "test_x": np.c_[X, X], "test_y": Y},
            r"must have the same columns in train and test, got shapes \[40, 3\], \[40\] and \[40, 6\]",
        ),
        ({"inputs": X, "targets": np.where(Y, b"a", b"")}, "column 'targets' of train has no value in row 0; fill it"),
    ],
)
def test_archives_that_are_refused(arrays: dict[str, Any], message: str) -> None:
    np.savez("rows.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load("rows.npz")


def test_an_archive_with_an_owner_that_is_no_number() -> None:
    np.savez("rows.npz", inputs=X, targets=Y, owners=np.where(Y, np.nan, 1.0))
    with pytest.raises(DataError, match="column 'owners' of train has no value in row 1; fill it"):
        load("rows.npz", owner="owners")


def test_an_index_that_pandas_named_is_no_input() -> None:
    data = load(csv("{n},{n},{odd}", header="Unnamed: 0,x,label"))
    assert data.shape == (1,) and data.title == "rows.csv (without Unnamed: 0)"
    assert load(csv("{n},{n},{odd}", header="Unnamed: 0,x,label"), inputs="Unnamed: 0").shape == (1,)


def test_text_that_is_not_utf_8_is_named() -> None:
    with pytest.raises(DataError, match=r"rows.csv: column 'name' is not UTF-8; save the file as UTF-8"):
        load(csv("Zoë,{n},{odd}", header="name,x,label", encoding="latin-1"))


def test_blanks_around_names_are_left_out() -> None:
    assert load(csv("{n}, {n}, {odd}", header="x, z , label")).shape == (2,)


def test_missing_values_count_where_they_are_used() -> None:
    path = csv("{n},{odd},", header="x,label,note")
    assert load(path, inputs="x").shape == (1,)
    assert load(path).left_out == ("note (no values)",)
    with pytest.raises(DataError, match="column 'note' has no value in row 0 of train; fill it"):
        load(path, inputs="x;note")
    texts = [None if n == 5 else "q" for n in range(40)]
    pq.write_table(pa.table({"x": X[:, 0], "label": Y, "note": texts, "site": texts}), "rows.parquet")
    assert load("rows.parquet", categories="none").title == "rows.parquet (without note, site)"
    with pytest.raises(DataError, match="column 'site' has no value in row 5 of train"):
        load("rows.parquet", owner="site")
    pq.write_table(pa.table({"x": [None, *range(39)], "z": X[:, 0], "label": [bool(y) for y in Y]}), "some.parquet")
    assert load("some.parquet", inputs="z").classes == 2
    with pytest.raises(DataError, match="column 'x' has no value in row 0 of train"):
        load("some.parquet")


def test_texts_of_another_arrow_type() -> None:
    table = pa.table({"x": list(range(40)), "label": pa.array([str(y) for y in Y], type=pa.string_view())})
    with ipc.new_file("rows.arrow", table.schema) as file:
        file.write_table(table)
    assert load("rows.arrow").classes == 2


def test_columns_beside_images_are_named() -> None:
    image = pytest.importorskip("PIL.Image").new("L", (4, 4))
    image.save("one.png")
    coded = [{"bytes": Path("one.png").read_bytes(), "path": None}] * 40
    pq.write_table(pa.table({"image": coded, "label": Y, "name": ["q"] * 40, "age": Y}), "scans.parquet")
    assert load("scans.parquet").title == "scans.parquet (without name, age)"


def test_the_advice_on_classes_works() -> None:
    path = csv("{n},{n}", 30)
    with pytest.raises(DataError, match=r"30 different whole numbers in 30 rows; .* give classes=30"):
        load(path)
    assert load(path, classes=30).classes == 30 and load(path, classes=0).classes == 0
    floats = csv("{n},{odd}.0", 60)
    assert load(floats, classes=2).classes == 2
    shifted = csv("{n},1{odd}")
    with pytest.raises(DataError, match=r"in \[0, 3\), found 10 to 11, 2 different values; give classes=2"):
        load(shifted, classes=3)
    data = load(shifted, classes=2)
    assert data.classes == 2 and set(data.train.targets.tolist()) == {0, 1}
    fractions = csv("{n},{odd}.5")
    with pytest.raises(DataError, match="give classes=0 to predict numbers"):
        load(fractions, classes=2)
    assert load(csv("{n},c{odd}"), classes=2).classes == 2


def test_numbers_by_hand() -> None:
    splits = {"train": np.array(["b", "a", "b"]), "test": np.array(["c"])}
    numbers, classes = number_classes(splits, "y", None)
    assert classes == ("a", "b", "c") and numbers["train"].tolist() == [1, 0, 1] and numbers["test"].tolist() == [2]
    assert number_owners(splits, "y")["train"].tolist() == [1, 0, 1]
    assert is_few_whole(np.array([1.0, 2.0] * 2)) and not is_few_whole(np.array([1.0, np.nan] * 2))
