"""Data of one's own: files, folders and functions, wherever the name of a data set is taken."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from undrift.data import DataError, load
from undrift.data.loader import argument_types
from undrift.data.own.files import find_files
from undrift.data.own.resolve import convert, is_path
from undrift.data.own.tables import read_tables

pa = pytest.importorskip("pyarrow")
feather, parquet = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")
Image = pytest.importorskip("PIL.Image")

ROWS = 60
DRAW = np.random.default_rng(3)
TABLE: dict[str, list[Any]] = {
    "height": DRAW.normal(170, 10, ROWS).tolist(),
    "smokes": [bool(i % 2) for i in range(ROWS)],
    "age": [20 + i % 40 for i in range(ROWS)],
    "name": [f"n{i}" for i in range(ROWS)],
    "site": ["rome" if i % 3 else "bonn" for i in range(ROWS)],
    "label": ["well" if i % 4 else "ill" for i in range(ROWS)],
}

FUNCTIONS = """
import numpy as np, torch
from torch.utils.data import Dataset as Data, TensorDataset
from undrift.data import Dataset, Split

class Pairs(Data):
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, i): return torch.full((1, 4, 4), (i % 8) / 8), i % 2

def rows(count: int = 40, shift=0.0):
    x = torch.arange(count * 3).float().view(count, 3) + shift
    return (x, torch.arange(count) % 2), (x[:8], torch.arange(8) % 2)

def images(count: int): return Pairs(count), Pairs(8)
def tensors(): return TensorDataset(torch.zeros(9, 2), torch.rand(9)), TensorDataset(torch.zeros(3, 2), torch.rand(3))
def whole(): return np.zeros((30, 5), int), np.arange(30) % 3
def ready(resize: int = 3): return Dataset("x", "table", Split(torch.zeros(4, resize), torch.zeros(4).long()),
    Split(torch.zeros(2, resize), torch.zeros(2).long()), 1, (), (), "Ready")
def hub():
    import datasets
    part = lambda n: datasets.Dataset.from_dict({"a": [1.0 * i for i in range(n)], "y": [i % 2 for i in range(n)]})
    return datasets.DatasetDict({"train": part(20), "validation": part(4)})
def wrong(): return 3
constant = 3
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a table and a module, apart from this machine's data."""
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_data.py").write_text(FUNCTIONS)
    write(tmp_path / "people.csv")
    return tmp_path


def write(path: Path, **changes: list[Any]) -> Path:
    """The table, as a file of the suffix's format."""
    table = pa.table(TABLE | changes)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".feather":
        feather.write_feather(table, path)
    elif path.suffix == ".arrow":  # a stream, as the datasets library writes it
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    else:
        rows = [",".join(map(str, row)) for row in zip(*(TABLE | changes).values(), strict=True)]
        path.write_text("\n".join([",".join(TABLE | changes), *rows]))
    return path


def paint(path: Path, value: int, size: tuple[int, int] = (6, 6), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, 0, 0)).save(path)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["people.csv", "p.parquet", "p.feather", "p.arrow"])
def test_a_table(name: str, here: Path) -> None:
    write(here / name)
    data = load(name, owner="site")
    assert data.kind == "table" and data.classes == 2 and data.shape == (3,) and data.outputs == 2
    assert (len(data.train), len(data.test)) == (54, 6) and data.title == f"{name} (without name)"
    joined = torch.cat([data.train.inputs, data.test.inputs])
    assert joined.dtype == torch.float32 and len(data.mean) == 3 and data.owner == "site"
    assert torch.allclose(data.train.inputs.mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(data.train.inputs.std(0, correction=0), torch.ones(3), atol=1e-5)
    heights = joined[:, 0].double() * data.std[0] + data.mean[0]
    assert sorted(heights.tolist()) == pytest.approx(sorted(TABLE["height"]), rel=1e-5)
    for split, ill, bonn in ((data.train, 15, 20), (data.test, 15, 20)):
        share = len(split) / ROWS
        assert split.owners is not None
        assert abs(int((split.targets == 0).sum()) - ill * share) <= 1.5  # "ill" comes first in sorted order
        assert abs(int((split.owners == 0).sum()) - bonn * share) <= 1


def test_equal_files_give_equal_data_and_the_hash_is_that_of_the_content(here: Path) -> None:
    first, second = load("people.csv"), load("people.csv")  # the second comes from the cache
    assert first.sha256 == second.sha256 and torch.equal(first.train.inputs, second.train.inputs)
    assert len(list((here / "cache").iterdir())) == 1
    write(here / "other/people.csv")
    assert load("other/people.csv", keep=False).sha256 == first.sha256
    write(here / "people.csv", age=[1] * ROWS)
    changed = load("people.csv")
    assert changed.sha256 != first.sha256 and not torch.equal(changed.train.inputs, first.train.inputs)


def test_what_was_decoded_before_a_file_changed_leaves_the_cache(here: Path) -> None:
    """Not what belongs to another place or to other options; arrays in use stay readable."""
    first = load("people.csv")
    write(here / "other/people.csv")
    others = load("other/people.csv"), load("people.csv", target="height")
    assert len(kept := set((here / "cache").iterdir())) == 3
    write(here / "people.csv", age=[1] * ROWS)
    changed = load("people.csv")
    assert len(now := set((here / "cache").iterdir())) == 3 and len(now & kept) == 2
    assert not torch.equal(first.train.inputs, changed.train.inputs)
    assert torch.equal(load("other/people.csv").train.inputs, others[0].train.inputs)


def test_targets(here: Path) -> None:
    numbers = load("people.csv", target="height")
    assert numbers.classes == 0 and numbers.outputs == 1 and numbers.train.targets.dtype == torch.float32
    assert numbers.shape == (6,)  # smokes, age, two sites and two labels; names are left out
    both = load("people.csv", target=["height", "age"], inputs="smokes")
    assert both.train.targets.shape == (54, 2) and both.outputs == 2 and both.shape == (1,)
    assert load("people.csv", target="smokes").classes == 2
    assert load("people.csv", target="age", classes=0).classes == 0
    write(here / "years.csv", label=[30 + 10 * (i % 3) for i in range(ROWS)])
    years = load("years.csv")
    assert years.classes == 3 and set(years.train.targets.tolist()) == {0, 1, 2}
    write(here / "ten.csv", label=[i % 3 for i in range(ROWS)])
    assert load("ten.csv", classes=10).classes == 10


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        ({"target": "lable"}, {}, "train has no column 'lable'; found height, smokes, age"),
        ({"owner": "place"}, {}, "train has no column 'place'"),
        ({"inputs": "name", "categories": "none"}, {}, "column 'name' is not a column of numbers"),
        ({}, {"y": [0] * ROWS}, "name the column to predict, label or y: target='label'"),
        ({"target": "height"}, {"height": [None, *[1.0] * (ROWS - 1)]}, "column 'height' has no value in row 0"),
        ({}, {"height": [*[1.0] * (ROWS - 1), float("nan")]}, "column 'height' has no value in row 59 of"),
        (
            {"target": "age"},
            {"age": list(range(ROWS))},
            r"60 different whole numbers in 60 rows; .* \"data.csv\(target='age', classes=0\)\"",
        ),
        ({"classes": 3}, {"label": [9] * ROWS}, r"must have whole numbers in \[0, 3\), found 9 to 9"),
        ({"test": 0.001}, {}, "60 examples are too few to hold out"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any, changes: Any, message: str, here: Path) -> None:
    write(here / "bad.parquet", **changes)
    with pytest.raises(DataError, match=message):
        load("bad.parquet", **arguments)


def test_arguments_are_checked(here: Path) -> None:
    with pytest.raises(
        ValueError, match=r"'people.csv' has no argument 'taget'; it takes resize, mean, std, target, in"
    ):
        load("people.csv", taget="x")
    with pytest.raises(ValueError, match="target must be a text, got 3"):
        load("people.csv", target=3)
    with pytest.raises(ValueError, match=r"people.csv: test must be a share"):
        load("people.csv", test=2.0)
    with pytest.raises(ValueError, match="where and hub are for known data sets"):
        load("people.csv", where="there")
    with pytest.raises(DataError, match=f"./none: no such file or folder; .* {here}; give an absolute path"):
        load("./none")
    (here / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"files with .csv, .* are read, not .txt"):
        load("./a.txt")
    (here / "empty").mkdir()
    with pytest.raises(DataError, match="no data set was recognised; it may have train and test files"):
        load("empty")


def test_a_known_name_is_never_a_folder(here: Path) -> None:
    write(here / "cifar10/train.csv")
    assert is_path("./cifar10") and "stride" in argument_types("cifar10") and "target" in argument_types("./cifar10")
    assert load("./cifar10").classes == 2


def test_folders_of_tables(here: Path) -> None:
    write(here / "own/train.parquet")
    write(here / "own/test.parquet", label=["dead"] * ROWS)
    data = load("own")
    assert len(data.train) == len(data.test) == ROWS and data.classes == 3
    assert set(data.test.targets.tolist()) == {0} and set(data.train.targets.tolist()) == {1, 2}
    write(here / "shards/train-0.csv")
    write(here / "shards/train-1.csv", age=[1.5] * ROWS)
    assert len(load("shards").train) == 108
    columns = read_tables(find_files("shards").files)
    assert len(columns["age"]) == 120 and columns["age"].dtype == np.float64
    write(here / "two/a.csv")
    write(here / "two/b.csv")
    with pytest.raises(
        DataError, match=r"several data files \(a.csv, b.csv\)\; give the path of one, or name them train and test"
    ):
        load("two")


def test_images_in_folders(here: Path) -> None:
    for number in range(20):
        paint(here / f"pets/{'cat' if number % 2 else 'dog'}/{number}.png", 10 * number)
    data = load("./pets")
    assert data.kind == "image" and data.shape == (1, 6, 6) and data.classes == 2
    assert (len(data.train), len(data.test)) == (18, 2) and sorted(data.test.targets.tolist()) == [0, 1]
    pixels = data.train.inputs.double() / 255
    assert data.mean[0] == pytest.approx(float(pixels.mean())) and data.std[0] == pytest.approx(
        float(pixels.std(correction=0))
    )
    for split in (data.train, data.test):
        assert ((split.inputs[:, 0, 0, 0] // 10) % 2 == 1 - split.targets).all()  # cats are odd and class 0
    assert load("./pets", resize=12, mean=0.5).shape == (1, 12, 12) and load("./pets", mean=0.5).mean == (0.5,)
    paint(here / "pets/dog/wide.png", 0, (9, 6), "RGB")
    with pytest.raises(DataError, match="is 9 x 6, the first is 6 x 6; to scale all images to one size give side=32"):
        load("./pets")
    assert load("./pets", side=8).shape == (3, 8, 8) and load("./pets", side=8).title == "pets (scaled)"
    paint(here / "pets/lost.png", 0)
    with pytest.raises(DataError, match=r"lost.png: images must be in <class>/"):
        load("./pets")


def test_images_of_sites(here: Path) -> None:
    for split, count in (("train", 6), ("val", 2)):
        for site in ("bonn", "rome"):
            for number in range(count):
                paint(here / f"scans/{split}/{site}/{'ab'[number % 2]}/{number}.png", number, mode="RGB")
    data = load("scans", owner="folder")
    assert data.shape == (3, 6, 6) and (len(data.train), len(data.test)) == (12, 4)
    assert data.train.owners is not None and data.train.owners.tolist() == [0] * 6 + [1] * 6


def test_encoded_images_in_a_table(here: Path) -> None:
    def coded(value: int) -> dict[str, Any]:
        file = io.BytesIO()
        Image.new("RGB", (5, 5), (value, 0, 0)).save(file, "PNG")
        return {"bytes": file.getvalue(), "path": None}

    write(here / "scans.parquet", scan=[coded(i) for i in range(ROWS)])
    data = load("scans.parquet", owner="site")
    assert data.kind == "image" and data.shape == (3, 5, 5) and data.train.owners is not None


def test_archives(here: Path) -> None:
    np.savez("mnist.npz", x_train=np.zeros((9, 4, 4), "u1"), y_train=np.arange(9) % 3, x_test=np.zeros((3, 4, 4), "u1"),
             y_test=np.arange(3))  # fmt: skip
    assert load("mnist.npz").shape == (1, 4, 4) and len(load("mnist.npz").test) == 3
    np.savez("rows.npz", inputs=np.ones((20, 2)), targets=np.ones((20, 2)), owners=np.arange(20) % 2)
    rows = load("rows.npz", owner="owners")
    assert rows.shape == (2,) and rows.train.targets.shape == (18, 2) and rows.train.owners is not None
    np.savez("odd.npz", a=np.ones(3))
    with pytest.raises(DataError, match=r"an archive has arrays inputs and targets, or x and y, .*; found a"):
        load("odd.npz")


def test_saved_to_disk(here: Path) -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_dict(TABLE)
    whole.save_to_disk("one")
    datasets.DatasetDict({"train": whole, "test": whole.select(range(10))}).save_to_disk("both")
    assert len(load("one").train) == 54 and load("one").classes == 2
    assert (len(load("both").train), len(load("both").test)) == (60, 10)


@pytest.mark.quick
def test_functions() -> None:
    rows = load("own_data:rows", count=50, shift=1)
    assert rows.kind == "table" and len(rows.train) == 50 and rows.train.inputs[0, 0] == 1 and rows.classes == 2
    assert rows.name == "own_data:rows" and rows.sha256 == load("own_data:rows", count=50, shift=1).sha256
    assert rows.sha256 != load("own_data:rows", count=50).sha256
    images = load("own_data:images", count=16)
    assert (
        images.kind == "image" and images.shape == (1, 4, 4) and images.train.inputs[3, 0, 0, 0] == round(255 * 3 / 8)
    )
    assert load("own_data:tensors").classes == 0
    text = load("own_data:whole")
    assert text.kind == "text" and text.symbols == 1 and len(text.test) == 3
    assert load("own_data:ready").shape == (3,) and load("own_data:ready", resize=5).shape == (5,)  # its own argument
    assert list(argument_types("own_data:rows"))[-2:] == ["count", "shift"]


def test_a_function_that_returns_a_dataset_dict() -> None:
    pytest.importorskip("datasets")
    data = load("own_data:hub")
    assert (len(data.train), len(data.test)) == (20, 4) and data.classes == 2
    assert load("own_data:hub", target="a", inputs="y").classes == 0


def test_functions_that_fail() -> None:
    for name, message in (
        ("own_data:wrong", "must return a Dataset, a DatasetDict, arrays"),
        ("own_data:constant", "data must be a function that returns a data set, got int"),
        ("own_data:rws", "has no 'rws'; did you mean 'rows'"),
        ("none_data:rows", "no module is named 'none_data'"),
    ):
        with pytest.raises((ValueError, DataError), match=message):
            load(name)
    with pytest.raises(ValueError, match="has no argument 'cnt'"):
        load("own_data:rows", cnt=3)
    images = torch.randn(4, 3, 5, 5)
    with pytest.raises(DataError, match="leave out Normalize"):
        convert((images, torch.zeros(4).long()), "mine")
    with pytest.raises(
        DataError, match="mine: train must have as many inputs as targets and owners, got 4 inputs, 3 targets"
    ):
        convert(((images, torch.zeros(3)), (images, torch.zeros(4))), "mine")
