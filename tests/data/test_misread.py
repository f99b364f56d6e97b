"""Data that could be read in a wrong way: read in the right one, or refused with a name and advice."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from undrift.data import load
from undrift.data.arrays.dataset import DataError
from undrift.data.arrays.images import channels_last
from undrift.data.own.columns import Reading
from undrift.data.own.resolve import _as_inputs, _as_targets, convert

STREAM = np.random.default_rng(0)


def table(folder: Path, text: str, name: str = "rows.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def rows(labels: list[str], header: str = "a,label") -> str:
    return "\n".join([header, *(f"{n}.5,{label}" for n, label in enumerate(labels))]) + "\n"


def pictures(folder: Path, mode: str = "L", high: int = 255) -> Path:
    for kind in ("cats", "dogs"):
        (folder / kind).mkdir(parents=True)
        for n in range(4):
            pixels = STREAM.integers(0, high, (16, 16)).astype(np.uint16 if mode == "I;16" else np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{n}.png")
    return folder


def test_whole_numbers_written_as_floats_are_classes(tmp_path: Path) -> None:
    found = load(table(tmp_path, rows(["0.0", "1.0", "2.0"] * 4)))
    assert found.classes == 3 and found.train.targets.dtype.is_floating_point is False
    assert load(table(tmp_path, rows(["0.0", "1.0", "2.5"] * 4), "fractions.csv")).classes == 0
    assert load(table(tmp_path, rows(["0.0", "1.0"] * 6), "numbers.csv"), classes=0).classes == 0
    many = load(table(tmp_path, rows([f"{n}.0" for n in range(40)]), "many.csv"))
    assert many.classes == 0  # more than a few whole numbers are numbers to predict


def test_a_column_of_labels_is_classes() -> None:
    assert _as_targets(np.array([[0], [2], [1]])).tolist() == [0, 2, 1]
    assert _as_targets(np.array([[0, 1], [1, 0]])).dtype == np.float32
    assert _as_targets(np.array([[0.0], [2.0]])).dtype == np.float32


def test_deep_pixels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x: images of whole numbers must be in 0 to 255, got 0 to 300; scale them"):
        convert((np.array([[[[0, 255], [256, 300]]]], dtype=np.uint16), np.zeros(1, int)), "x")
    assert _as_inputs(np.full((1, 1, 2, 2), 255, dtype=np.int64)).dtype == np.uint8
    with pytest.raises(DataError, match=r"0\.png: its pixels have more than 8 bits \(mode I;16\); scale them"):
        load(str(pictures(tmp_path / "deep", "I;16", 4000)))


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pets")
    assert load(str(folder)).classes == 2
    (folder / "dogs" / "2.png").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"dogs.2\.png: not a readable image"):
        load(str(folder))


@pytest.mark.parametrize("content", [b"not a picture", None])
def test_advice_for_a_damaged_image_is_about_that_image(tmp_path: Path, content: bytes | None) -> None:
    path = pictures(tmp_path / "pets") / "dogs" / "2.png"
    path.write_bytes(path.read_bytes()[:60] if content is None else content)
    with pytest.raises(DataError, match=r"2\.png: not a readable image \([^<]*\); replace or remove it$"):
        load(str(tmp_path / "pets"))


@pytest.mark.parametrize(
    ("name", "sign"), [("rows.csv", ";"), ("rows.csv", "\t"), ("rows.tsv", ","), ("rows.csv", "|")]
)
def test_another_separator_is_named(tmp_path: Path, name: str, sign: str) -> None:
    text = "\n".join([f"a{sign}label", *(f"{n}{sign}{n % 2}" for n in range(20))])
    right = "tabs" if name == "rows.tsv" else "commas"
    with pytest.raises(DataError, match=rf"{name}: its columns must be separated by {right}; its first line is 'a"):
        load(table(tmp_path, text, name))


def test_a_table_of_a_spreadsheet_with_decimal_commas(tmp_path: Path) -> None:
    """The rows have more commas than the first line, so that the file cannot be read at all."""
    text = "\ufeffage;bmi;label\n" + "".join(f"{n};2{n % 9},5;{'ab'[n % 2]}\n" for n in range(20))
    with pytest.raises(
        DataError, match=r"separated by commas; its first line is 'age;bmi;label', and write numbers as"
    ):
        load(table(tmp_path, text))


def test_an_identifier_that_numbers_the_rows_is_no_input(tmp_path: Path) -> None:
    rows = [f"{1000 + n},{n % 7}.5,{n % 2}" for n in range(60)]
    path = table(tmp_path, "\n".join(["customer,x,label", *rows]))
    assert load(path).left_out == ("customer (numbers its rows)",)
    assert [one.name for one in load(path, inputs="customer;x").columns] == ["customer", "x"]
    short = table(tmp_path, "\n".join(["customer,x,label", *rows[:40]]), "short.csv")
    assert load(short).left_out == ()


def test_a_header_without_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.csv: it has no rows; a table has one for each example"):
        load(table(tmp_path, "a,label\n"))


@pytest.mark.parametrize("shape", [(12, 3, 16, 16), (12, 16, 16, 3), (12, 16, 16)])
def test_archives_have_channels_first_or_last(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = STREAM.integers(0, 255, shape).astype(np.uint8)
    np.savez(tmp_path / "images.npz", inputs=images, targets=np.arange(12) % 2)
    found = load(str(tmp_path / "images.npz"))
    assert found.shape == ((1, 16, 16) if len(shape) == 3 else (3, 16, 16))
    assert channels_last(images).shape == (12, 16, 16, found.shape[0])


def test_images_with_other_channels_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "images.npz", inputs=np.zeros((12, 16, 16, 5), np.uint8), targets=np.arange(12) % 2)
    with pytest.raises(DataError, match=r"must have 1 or 3 channels, last or first, got an array \[12, 16, 16, 5\]"):
        load(str(tmp_path / "images.npz"))


@pytest.mark.parametrize("dtype", ["int8", "int64", "float32"])
def test_images_of_another_type_are_refused_with_the_one_that_works(tmp_path: Path, dtype: str) -> None:
    np.savez(tmp_path / "images.npz", inputs=np.zeros((12, 3, 16, 16), dtype), targets=np.arange(12) % 2)
    with pytest.raises(
        DataError,
        match=rf"'inputs' of train is {dtype} of shape \[12, 3, 16, 16\]: images must be uint8, from 0 to 255, and "
        r"rows of numbers an array of two axes; convert it",
    ):
        load(str(tmp_path / "images.npz"))


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the column 'a' is there more than once; rename one of them"):
        load(table(tmp_path, "a,a,label\n" + "1,2,x\n3,4,y\n" * 6))


def test_columns_without_values_and_left_out_ones(tmp_path: Path) -> None:
    bare = load(table(tmp_path, "a,empty,label\n" + "1,,x\n2,,y\n" * 6))
    assert bare.title.endswith("(without empty)") and bare.shape == (1,)
    found = load(table(tmp_path, "a,when,label\n" + "1,2026-01-02,x\n2,2026-01-03,y\n" * 6, "dates.csv"))
    assert found.title.endswith("(without when)") and found.shape == (1,)
    with pytest.raises(DataError, match="column 'when' is neither numbers nor texts"):
        load(str(tmp_path / "dates.csv"), target="when")


def test_a_constant_column_stays_small_in_the_test_set(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    table(tmp_path / "d", "a,b,label\n" + "0.1,1,x\n0.1,2,y\n" * 500, "train.csv")
    table(tmp_path / "d", "a,b,label\n0.2,1,x\n0.1,2,y\n", "test.csv")
    assert float(load(str(tmp_path / "d")).test.inputs.abs().max()) < 2


def split_tables(folder: Path, train: str, test: str) -> str:
    folder.mkdir()
    (folder / "train.csv").write_text(train)
    (folder / "test.csv").write_text(test)
    return str(folder)


def test_labels_and_owners_have_one_type_in_both_splits(tmp_path: Path) -> None:
    texts = split_tables(tmp_path / "texts", rows(["01", "02", "x1"] * 4), rows(["01", "02"]))
    with pytest.raises(DataError, match=r"column 'label' has different types, .* in train and int64 in test"):
        load(texts)
    owned = split_tables(
        tmp_path / "owned", rows(["0,007", "1,A1"] * 4, "a,label,site"), rows(["0,007", "1,007"], "a,label,site")
    )
    with pytest.raises(DataError, match="column 'site' has different types"):
        load(owned, owner="site")


def test_a_few_whole_floats_in_the_test_split_are_classes_too(tmp_path: Path) -> None:
    labels, mixed = (np.arange(100) % 6).astype(float), np.array([0.0, 0.5] * 5)
    inputs: dict[str, Any] = {"x_train": STREAM.random((100, 2)), "x_test": STREAM.random((10, 2))}
    np.savez(tmp_path / "s.npz", **inputs, y_train=labels, y_test=labels[:10])
    assert load(str(tmp_path / "s.npz")).classes == 6
    np.savez(tmp_path / "m.npz", **inputs, y_train=labels.astype(int), y_test=mixed)
    assert load(str(tmp_path / "m.npz")).classes == 0


def test_an_index_of_rows_is_no_input(tmp_path: Path) -> None:
    lines = [f"{n},{n % 7}.5,{'ab'[n % 2]},{n // 20}" for n in range(40)]
    path = table(tmp_path, "\n".join([",a,site,label", *lines]) + "\n")
    for settings in ({"categories": "none"}, {"owner": "site"}):
        found = load(path, **settings)  # type: ignore[arg-type]
        assert found.train.inputs.shape[1] == 1 and "an index" in found.title
    pd = pytest.importorskip("pandas")
    pd.DataFrame({"a": np.arange(40) % 7 / 2, "label": np.arange(40) // 20}).sample(frac=1).to_parquet(
        tmp_path / "p.parquet"
    )
    assert load(str(tmp_path / "p.parquet")).train.inputs.shape[1] == 1


def test_owners_of_an_archive_are_no_input_and_other_arrays_are_refused(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"inputs": STREAM.random((40, 3)), "targets": np.arange(40) % 2}
    np.savez(tmp_path / "o.npz", **arrays, owners=np.arange(40) // 10)
    for settings in ({}, {"owner": "owners"}):
        assert load(str(tmp_path / "o.npz"), **settings).train.inputs.shape[1] == 3  # type: ignore[arg-type]
    np.savez(tmp_path / "v.npz", **arrays, x_val=STREAM.random((4, 3)))
    with pytest.raises(DataError, match=r"and perhaps owners.*found inputs, targets, x_val"):
        load(str(tmp_path / "v.npz"))


def test_a_missing_text_is_named(tmp_path: Path) -> None:
    path = table(tmp_path, rows(["cat,x", "dog,", ",y", "cat,x"] * 3, "a,label,site"))
    with pytest.raises(DataError, match="column 'label' of train has no value in row 2"):
        load(path)
    with pytest.raises(DataError, match="column 'site' of train has no value in row 1"):
        load(table(tmp_path, rows(["cat,x", "dog,"] * 6, "a,label,site"), "s.csv"), owner="site")


def test_folders_with_images_that_are_not_read_are_refused(tmp_path: Path) -> None:
    whole = pictures(tmp_path / "whole")
    (whole / "birds").mkdir()
    Image.new("L", (16, 16)).save(whole / "birds" / "0.bmp")
    with pytest.raises(DataError, match=r"0.bmp: images in folders are .*convert it or move it away"):
        load(str(whole))
    split = pictures(tmp_path / "split" / "train").parent
    (split / "test" / "cats").mkdir(parents=True)
    with pytest.raises(DataError, match="test: there are no images"):
        load(str(split))


def test_settings_of_files_are_refused_for_arrays_and_classes_count() -> None:
    x, y = STREAM.random((60, 2)), np.arange(60) % 7
    assert convert((x, y), "m", Reading(classes=0)).classes == 0
    assert convert((x, (y % 2).astype(float)), "m", Reading(classes=2)).classes == 2
    with pytest.raises(DataError, match="side is a setting of tables and image files"):
        convert((x, y), "m", Reading(side=16))


def test_one_table_in_two_formats_is_refused(tmp_path: Path) -> None:
    folder = Path(split_tables(tmp_path / "both", rows(["a", "b"] * 6), rows(["a", "b"])))
    (folder / "train.csv.gz").write_bytes(gzip.compress((folder / "train.csv").read_bytes()))
    with pytest.raises(DataError, match=r"train.csv and train.csv.gz would be read as different rows"):
        load(str(folder))
