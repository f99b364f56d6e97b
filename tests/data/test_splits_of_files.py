"""Which files and folders of one's own data are for training and which for the test, and when they are read again."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from undrift.data import DataError, load

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))


def paint(folder: Path, count: int = 3, classes: str = "xy") -> Path:
    for kind in classes:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for n in range(count):
            Image.new("L", (8, 8), n).save(folder / kind / f"{n}.png")
    return folder


def table(path: Path, count: int = 20) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x,label\n" + "".join(f"{n},{n % 2}\n" for n in range(count)))
    return path


def sizes(path: Path, **settings: Any) -> tuple[int, int]:
    data = load(str(path), **settings)
    return len(data.train), len(data.test)


def test_a_folder_that_moved_to_the_test_set_is_read_again(tmp_path: Path) -> None:
    for split, sites in (("train", "ABC"), ("test", "D")):
        for site in sites:
            paint(tmp_path / "scans" / split / site)
    assert sizes(tmp_path / "scans", owner="folder") == (18, 6)
    shutil.move(tmp_path / "scans/train/C", tmp_path / "scans/test/C")
    assert sizes(tmp_path / "scans", owner="folder") == (12, 12)


def test_files_given_to_another_split_of_a_known_data_set_are_read_again(tmp_path: Path) -> None:
    image = np.zeros((28, 28), np.uint8)
    Image.fromarray(image).save(tmp_path / "one.png")
    coded = {"bytes": (tmp_path / "one.png").read_bytes(), "path": None}
    a, b, c = (str(tmp_path / f"{name}.parquet") for name in "abc")
    for path in (a, b, c):
        pq.write_table(pa.table({"image": [coded] * 4, "label": [0, 1, 2, 9]}), path)
    for train, test in (([a, b], [c]), ([a], [b, c])):
        data = load("fashion-mnist", {"train": train, "test": test})
        assert (len(data.train), len(data.test)) == (4 * len(train), 4 * len(test))


@pytest.mark.parametrize(("train", "test"), [("Train", "Test"), ("TRAIN", "VAL"), ("train_images", "test_images")])
def test_folders_of_splits_are_known_by_a_word(tmp_path: Path, train: str, test: str) -> None:
    paint(tmp_path / "pets" / train, 5)
    paint(tmp_path / "pets" / test, 2)
    assert sizes(tmp_path / "pets") == (10, 4)


@pytest.mark.parametrize("names", [("training", "testing"), ("train", "testing"), ("trainset", "valset")])
def test_folders_that_begin_like_a_split_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        paint(tmp_path / "pets" / name)
    with pytest.raises(DataError, match=r"(ing|set): is this a split\? name such folders train and test, or move it"):
        load(str(tmp_path / "pets"))


def test_classes_and_owners_that_are_no_splits(tmp_path: Path) -> None:
    assert sizes(paint(tmp_path / "scenes", 10, classes=("valley", "test", "trains"))) == (27, 3)  # type: ignore[arg-type]
    for city in ("valencia", "rome"):
        paint(tmp_path / "cities" / city, 5)
    assert sizes(tmp_path / "cities", owner="folder") == (18, 2)


def test_a_test_folder_without_training(tmp_path: Path) -> None:
    for name in ("test", "rome"):
        paint(tmp_path / "pets" / name)
    with pytest.raises(DataError, match="there is a folder test and none for training; name that train"):
        load(str(tmp_path / "pets"))


def test_names_with_two_splits_are_refused(tmp_path: Path) -> None:
    table(tmp_path / "both" / "train_val.csv")
    with pytest.raises(DataError, match=r"train_val.csv: its name has train and val; rename it to have one of them"):
        load(str(tmp_path / "both"))
    paint(tmp_path / "pets" / "train-and-test")
    with pytest.raises(DataError, match="train-and-test: its name has train and test; rename it"):
        load(str(tmp_path / "pets"))
    for name in ("train-a", "train-b"):
        paint(tmp_path / "two" / name)
    with pytest.raises(DataError, match="several folders for training, train-a and train-b; put their images into one"):
        load(str(tmp_path / "two"))


def test_the_files_of_a_folder_come_before_those_of_its_data(tmp_path: Path) -> None:
    table(tmp_path / "d" / "data" / "train.csv")
    assert sizes(tmp_path / "d") == (18, 2)
    table(tmp_path / "d" / "notes.csv")
    assert sizes(tmp_path / "d") == (18, 2)
    table(tmp_path / "d" / "train.csv", 40)
    assert sizes(tmp_path / "d") == (36, 4)
    (tmp_path / "d" / "train.csv").unlink()
    (tmp_path / "d" / "data" / "train.csv").rename(tmp_path / "d" / "data" / "rows.csv")
    with pytest.raises(DataError, match=r"several data files \(notes.csv, data.rows.csv\); give the path of one"):
        load(str(tmp_path / "d"))


def test_a_table_beside_an_archive_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "d" / "train.csv")
    np.savez(tmp_path / "d" / "test.npz", inputs=np.ones((4, 1)), targets=np.arange(4) % 2)
    with pytest.raises(DataError, match=r"d: give one .npz file, with arrays train_inputs, .*, or tables only"):
        load(str(tmp_path / "d"))
