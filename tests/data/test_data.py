"""Data sets: the table, where each is looked for, what is read, what is kept."""

import gzip
import io
import os
import time
import zipfile
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from undrift.data import SOURCES, DataError, Dataset, Split, available, load
from undrift.data.arrays import cache
from undrift.data.arrays.images import decode, read_idx, read_npz
from undrift.data.arrays.text import ALPHABET, UNKNOWN, encode, roles, window_bounds, windows, words
from undrift.data.files import find as places
from undrift.data.files.known import find_source

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
Image = pytest.importorskip("PIL.Image")

FOLDERS = [Path(part) for part in os.environ.get("UNDRIFT_DATA", "").split(os.pathsep) if part]
DRAW = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees this machine's data, cache or hub."""
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(places, "DEBIAN", tmp_path / "debian")


def pictures(count: int, shape: tuple[int, ...] = (8, 8, 3)) -> np.ndarray[Any, Any]:
    return DRAW.integers(0, 256, (count, *shape), dtype=np.uint8)


def coded(images: np.ndarray[Any, Any], coding: str = "PNG") -> list[dict[str, Any]]:
    """Images as the hub stores them."""
    out = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, coding)
        out.append({"bytes": file.getvalue(), "path": None})
    return out


def put(path: Path, **columns: Sequence[Any]) -> Path:
    """A Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: pa.array(list(values)) for name, values in columns.items()}), path)
    return path


def cifar(folder: Path, coding: str = "PNG", train: int = 6) -> np.ndarray[Any, Any]:
    """A small CIFAR-10: its training images."""
    images = pictures(train)
    put(folder / "train.parquet", img=coded(images, coding), label=[n % 10 for n in range(train)])
    put(folder / "test.parquet", img=coded(pictures(2), coding), label=[1, 9])
    return images


def first(images: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2)


@pytest.mark.quick
def test_parquet_of_the_hub_s_schema(tmp_path: Path) -> None:
    images = cifar(tmp_path / "data/cifar10")
    data = load("cifar10")
    assert (data.name, data.kind, data.title, data.classes) == ("cifar10", "image", "CIFAR-10", 10)
    assert data.shape == (3, 8, 8) and data.train.inputs.dtype == torch.uint8
    assert torch.equal(data.train.inputs, first(images))
    assert data.train.targets.tolist() == [0, 1, 2, 3, 4, 5] and data.test.targets.tolist() == [1, 9]
    assert len(data.test) == 2 and data.train.owners is None


def test_jpeg_is_named(tmp_path: Path) -> None:
    cifar(tmp_path / "data/cifar10", "JPEG")
    assert load("cifar10").title == "CIFAR-10 (JPEG)"
    assert load("cifar10").title == "CIFAR-10 (JPEG)"  # from the cache too


def test_several_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "data/cifar100/data"
    images = pictures(5)
    for number, part in enumerate((slice(0, 3), slice(3, 5))):
        put(
            folder / f"train-0000{number}-of-00002.parquet",
            img=coded(images[part]),
            fine_label=range(*part.indices(5)),
            coarse_label=[19 - n for n in range(*part.indices(5))],
        )
    put(folder / "test-00000-of-00001.parquet", img=coded(pictures(1)), fine_label=[99], coarse_label=[19])
    fine, coarse = load("cifar100"), load("cifar100-coarse")
    assert torch.equal(fine.train.inputs, first(images)) and fine.test.targets.tolist() == [99]
    assert fine.train.targets.tolist() == [0, 1, 2, 3, 4] and (fine.classes, coarse.classes) == (100, 20)
    assert coarse.train.targets.tolist() == [19, 18, 17, 16, 15]


def test_grey_images_among_coloured_ones(tmp_path: Path) -> None:
    """Tiny-ImageNet has some; its originals are JPEG, so that is not worth a word."""
    grey = pictures(1, (8, 8))
    folder = tmp_path / "data/tiny-imagenet"
    put(folder / "train.parquet", image=[*coded(pictures(1)), *coded(grey)], label=[0, 199])
    put(folder / "valid.parquet", image=coded(pictures(1), "JPEG"), label=[7])
    data = load("tiny-imagenet")
    assert torch.equal(data.train.inputs[1], torch.from_numpy(grey).expand(3, 8, 8))
    assert data.title == "Tiny-ImageNet" and data.test.targets.tolist() == [7]


def test_femnist_is_split_by_writer(tmp_path: Path) -> None:
    counts = {"f0002_01": 20, "f0000_14": 31, "f0001_41": 1, "f0003_00": 9}
    writers = DRAW.permutation(np.repeat(list(counts), list(counts.values())))
    images = pictures(61, (4, 4))
    put(
        tmp_path / "data/femnist/train.parquet",
        image=coded(images),
        writer_id=writers,  # type: ignore[arg-type]
        hsf_id=[0] * 61,
        character=np.arange(61),  # type: ignore[arg-type]
    )
    data = load("femnist")
    names = sorted(counts)
    train, test = data.train, data.test
    assert train.owners is not None and test.owners is not None
    assert torch.bincount(train.owners).tolist() == [27, 1, 18, 8]  # 0.9 of each rounded down, but one at least
    assert torch.bincount(test.owners, minlength=4).tolist() == [4, 0, 2, 1]
    assert sorted([*train.targets.tolist(), *test.targets.tolist()]) == list(range(61))
    for split in (train, test):
        assert split.owners is not None
        assert [names[owner] for owner in split.owners.tolist()] == [str(writers[n]) for n in split.targets.tolist()]
        assert torch.equal(split.inputs[:, 0], torch.from_numpy(images)[split.targets])
    assert torch.equal(load("femnist", keep=False).train.targets, train.targets)


def test_bloodmnist_is_scaled_to_28(tmp_path: Path) -> None:
    """The hub's copy is larger, its labels are lists of one and it has a validation split we leave alone."""
    folder = tmp_path / "data/bloodmnist"
    for split in ("train", "validation", "test"):
        put(folder / f"{split}.parquet", image=coded(np.full((2, 56, 56, 3), 200, np.uint8)), label=[[3], [7]])
    data = load("bloodmnist")
    assert data.shape == (3, 28, 28) and data.title == "BloodMNIST (scaled)" and len(data.train) == 2
    assert data.test.targets.tolist() == [3, 7] and bool((data.train.inputs == 200).all())


def test_bloodmnist_from_its_archive(tmp_path: Path) -> None:
    images = pictures(4, (28, 28, 3))
    path = tmp_path / "data/bloodmnist/bloodmnist.npz"
    path.parent.mkdir(parents=True)
    labels = np.array([[1], [2], [3], [4]], np.uint8)
    np.savez(path, train_images=images, train_labels=labels, test_images=images[:1], test_labels=labels[:1])
    data = load("bloodmnist")
    assert torch.equal(data.train.inputs, first(images)) and data.train.targets.tolist() == [1, 2, 3, 4]
    assert data.title == "BloodMNIST"
    with pytest.raises(DataError, match=r"no array val_images; found train_images\.npy"):
        read_npz(path, "val_images")
    with zipfile.ZipFile(path, "a") as archive, archive.open("evil.npy", "w") as file:
        np.lib.format.write_array(file, np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match="allow_pickle=False"):
        read_npz(path, "evil")


def idx(path: Path, values: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(head + values.tobytes()))


def test_idx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(5, (28, 28))
    folder = tmp_path / "debian/fashion-mnist"
    for stem, count in (("train", 5), ("t10k", 2)):
        idx(folder / f"{stem}-images-idx3-ubyte.gz", images[:count])
        idx(folder / f"{stem}-labels-idx1-ubyte.gz", np.arange(count, dtype=np.uint8))
    monkeypatch.delenv("UNDRIFT_DATA")
    data = load("Fashion_MNIST")
    assert torch.equal(data.train.inputs[:, 0], torch.from_numpy(images)) and data.shape == (1, 28, 28)
    assert data.test.targets.tolist() == [0, 1] and data.title == "Fashion-MNIST"
    torn = tmp_path / "torn"
    torn.write_bytes(gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())[:-1])
    with pytest.raises(DataError, match=r"\[2, 28, 28\] needs 1568 bytes of values, found 1567"):
        read_idx(torn)
    torn.write_bytes(b"PNG?")
    with pytest.raises(DataError, match="begins with 00 00 08, this one with 50 4e 47"):
        read_idx(torn)


@pytest.mark.parametrize("shape", [[0, 2**25, 38 * 2**24, 2**25], [1] * 65])
def test_an_idx_file_of_a_shape_that_no_array_has_is_refused(shape: list[int], tmp_path: Path) -> None:
    """No values at all, or one, but axes too long or too many. Found by inputs guided by coverage."""
    path = tmp_path / "train-images-idx3-ubyte"
    lengths = b"".join(length.to_bytes(4, "big") for length in shape)
    path.write_bytes(bytes([0, 0, 8, len(shape)]) + lengths + bytes(prod(shape)))
    with pytest.raises(DataError, match="no array can have the shape"):
        read_idx(path)


def test_yahoo_answers_as_hashed_words(tmp_path: Path) -> None:
    folder = tmp_path / "data/yahoo-answers"
    for split, count in (("train", 3), ("test", 1)):
        put(
            folder / f"{split}.parquet",
            id=range(count),
            topic=[9] * count,
            question_title=["Why is the sky blue?"] * count,
            question_content=[None] * count,
            best_answer=["THE sky scatters " + "blue " * 200] * count,
        )
    data = load("yahoo-answers")
    row = data.train.inputs[0].tolist()
    assert data.kind == "text" and data.shape == (128,) and data.symbols == 30_000
    assert row[2:5] == [row[5], row[6], row[8]] and row[5] == row[2]  # the sky blue, THE sky ... blue
    assert min(row) > 0 and max(row) < 30_000 and data.test.targets.tolist() == [9]


def test_words_by_hand() -> None:
    found = words([("to be", None, "or NOT to be"), ("", "", "")], 2, symbols=1000, length=8)
    to, be, other, negation = found[0, :4].tolist()
    assert found[0].tolist() == [to, be, other, negation, to, be, 0, 0] and len({to, be, other, negation}) == 4
    assert not found[1].any()


PLAY = "A:\n" + "ab cd\n" * 200 + "\nB:\nshort\n\nC:\n" + "xyz$ " * 150 + "\n\nA:\nend   of it"


def test_roles() -> None:
    said = roles(PLAY)
    assert list(said) == ["A", "B", "C"] and said["B"] == "short"
    assert said["A"] == "ab cd " * 200 + "end of it" and said["C"] == ("xyz$ " * 150).strip()


@pytest.mark.parametrize("stride", [1, 3, 80, 100])
def test_windows_follow_each_other_in_time(stride: int) -> None:
    made = windows(PLAY, stride)
    for owner, role in enumerate(("A", "C")):
        text = encode(roles(PLAY)[role])
        starts = range(0, len(text) - 80, stride)
        train, test = (made[f"{split}-owners"] == owner for split in ("train", "test"))
        end, begin = window_bounds(len(starts), stride, 80)
        assert train.sum() == end == int(0.8 * len(starts)) and test.sum() == len(starts) - begin > 0
        assert starts[begin] >= starts[end - 1] + 80  # no character a test window sees was seen in training
        assert stride > 1 or begin - end == 79
        for split, mask, offset in (("train", train, 0), ("test", test, begin)):
            for row in (0, -1):
                at = starts[offset:][: mask.sum()][row]
                assert np.array_equal(made[f"{split}-inputs"][mask][row], text[at : at + 80])
                assert made[f"{split}-targets"][mask][row] == text[at + 80]
    assert set(made["train-owners"]) == {0, 1}  # B says too little


def test_alphabet() -> None:
    assert len(ALPHABET) == len(set(ALPHABET)) == UNKNOWN == 80
    assert encode(ALPHABET).tolist() == list(range(80))
    assert encode("$\u00e9\u4e2d").tolist() == [80, 80, 80]
    with pytest.raises(ValueError, match="stride must be 1 or more, got 0"):
        windows(PLAY, 0)
    with pytest.raises(ValueError, match="no role has enough text for windows of 80 characters"):
        windows("A:\nfew words")


@pytest.mark.quick
def test_shakespeare_from_a_text(tmp_path: Path) -> None:
    path = tmp_path / "data/shakespeare/input.txt"
    path.parent.mkdir(parents=True)
    path.write_text(PLAY)
    data = load("shakespeare", stride=2)
    assert data.kind == "text" and data.shape == (80,) and data.symbols == data.classes == 81
    assert len(load("shakespeare").train) == pytest.approx(2 * len(data.train), abs=2)  # the stride is in the key
    assert data.test.owners is not None and data.test.owners.unique().tolist() == [0, 1]


def test_saved_by_datasets(tmp_path: Path) -> None:
    """`load_dataset` reads such a folder as one row; a selection keeps its own order."""
    datasets = pytest.importorskip("datasets")
    images = pictures(6)
    rows = datasets.Dataset.from_dict({"img": coded(images), "label": list(range(6))})
    rows = rows.cast_column("img", datasets.Image())
    saved = datasets.DatasetDict({"train": rows.select([5, 0, 3]), "test": rows.select([1])})
    saved.save_to_disk(str(tmp_path / "mine"))
    data = load("cifar10", tmp_path / "mine")
    assert data.train.targets.tolist() == [5, 0, 3] and data.test.targets.tolist() == [1]
    assert torch.equal(data.train.inputs, first(images[[5, 0, 3]]))


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for count, folder in ((3, "given"), (4, "one/cifar10"), (5, "two/cifar10"), (6, "debian/cifar10")):
        cifar(tmp_path / folder, train=count)
    monkeypatch.setenv("UNDRIFT_DATA", os.pathsep.join(str(tmp_path / name) for name in ("none", "two", "one")))
    assert len(load("cifar10").train) == 5
    assert len(load("cifar10", tmp_path / "given").train) == 3
    assert len(load("cifar10", tmp_path / "one").train) == 4  # the folder that holds it will do
    files = {split: tmp_path / f"one/cifar10/{split}.parquet" for split in ("train", "test")}
    assert len(load("cifar10", files).train) == 4
    monkeypatch.delenv("UNDRIFT_DATA")
    assert len(load("cifar10").train) == 6


def test_hub_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    path = {split: str(tmp_path / f"{split}.parquet") for split in ("train", "test")}
    images = cifar(tmp_path)
    asked = []

    def hub(name: str, split: str) -> Any:
        asked.append((name, split))
        return real("parquet", data_files=path, split=split, cache_dir=str(tmp_path / "hub"))  # type: ignore[call-arg]

    real = datasets.load_dataset
    monkeypatch.setattr(datasets, "load_dataset", hub)
    assert torch.equal(load("cifar10").train.inputs, first(images))
    assert asked == [("uoft-cs/cifar10", "train"), ("uoft-cs/cifar10", "test")]
    assert load("cifar10", hub="me/mine").title == "CIFAR-10" and asked[2] == ("me/mine", "train")


def test_missing_says_where_and_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(DataError) as caught:
        load("fashion-mnist")
    text = str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    for part in (
        str(tmp_path / "data/fashion-mnist"),
        str(tmp_path / "debian/fashion-mnist"),
        "hub zalando-datasets/fashion_mnist (ConnectionError: Couldn't reach the Hub)",
        "apt install dataset-fashion-mnist",
        "a folder fashion-mnist in a folder named in UNDRIFT_DATA",
        'datasets.load_dataset("zalando-datasets/fashion_mnist")',
    ):
        assert part in text
    monkeypatch.delenv("UNDRIFT_DATA")
    with pytest.raises(DataError, match=r"UNDRIFT_DATA is not set.*as input.txt"):
        load("shakespeare")
    with pytest.raises(DataError, match=r"cifar10 was not found. Looked in: .*nowhere/cifar10"):
        load("cifar10", tmp_path / "nowhere")


def bad_column(folder: Path) -> None:
    put(folder / "train.parquet", image=coded(pictures(1)), label=[0])
    put(folder / "test.parquet", image=coded(pictures(1)), label=[0])


def bad_size(folder: Path) -> None:
    cifar(folder)
    put(folder / "train.parquet", img=[*coded(pictures(1)), *coded(pictures(1, (9, 8, 3)))], label=[0, 1])


def bad_label(folder: Path) -> None:
    cifar(folder)
    put(folder / "test.parquet", img=coded(pictures(2)), label=[3, 10])


def bad_image(folder: Path) -> None:
    cifar(folder)
    put(folder / "test.parquet", img=["text"], label=[3])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (bad_column, "cifar10: train has no column 'img'; found image, label"),
        (bad_size, "image 1 is 8 x 9, the first is 8 x 8"),
        (bad_label, r"cifar10: targets must be in \[0, 10\), got 3 to 10"),
        (bad_image, "an image must be bytes or a pair of bytes and path, got str"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(tmp_path / "data/cifar10")
    with pytest.raises((DataError, ValueError), match=message):
        load("cifar10")


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no data set is named 'cifar-10'; did you mean 'cifar10'"):
        load("cifar-10")
    with pytest.raises(ValueError, match="known are digits, fashion-mnist, cifar10,"):
        find_source("xyz")
    with pytest.raises(ValueError, match="cifar10: files must be given for train, test, got train"):
        load("cifar10", {"train": "a.parquet"})
    with pytest.raises(DataError, match=r"cifar10: a.parquet is not a file; give the path of one"):
        load("cifar10", {"train": "a.parquet", "test": "b.parquet"})
    with pytest.raises(ValueError, match="give where or hub, not both"):
        load("cifar10", tmp_path, hub="a/b")
    with pytest.raises(DataError, match=r"images must be uint8 with 3 channels, got uint8 \[2, 4, 4\]"):
        decode(pictures(2, (4, 4)), 3)
    with pytest.raises(ValueError, match=r"targets must be one number for each of 3 inputs, got \[2\]"):
        Split(torch.zeros(3, 1), torch.zeros(2))
    with pytest.raises(ValueError, match='kind must be "image", "text" or "table", got \'sound\''):
        Dataset(
            "x", "sound", Split(torch.zeros(0), torch.zeros(0)), Split(torch.zeros(0), torch.zeros(0)), 1, (), (), ""
        )


def test_second_load_is_mapped_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = cifar(tmp_path / "data/cifar10")
    load("cifar10")
    (entry,) = (tmp_path / "cache").iterdir()
    assert entry.name.startswith("cifar10-") and {path.suffix for path in entry.iterdir()} == {".npy", ".json"}
    monkeypatch.setattr("undrift.data.loader.decode", None)  # not needed again
    data = load("cifar10")
    data.train.inputs[0] = 0  # writing is allowed and stays private
    assert torch.equal(load("cifar10").train.inputs, first(images))
    (entry / "train-inputs.npy").write_bytes(b"torn")
    with pytest.raises(TypeError):
        load("cifar10")
    monkeypatch.undo()
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    again = load("cifar10", tmp_path / "data")
    assert torch.equal(again.train.inputs, first(images))
    assert cache.read(entry) is not None and len(list((tmp_path / "cache").iterdir())) == 1


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    cifar(tmp_path / "data/cifar10", train=3)
    assert len(load("cifar10").train) == 3
    cifar(tmp_path / "data/cifar10", train=4)
    assert len(load("cifar10").train) == 4


def test_no_cache_where_none_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = cifar(tmp_path / "data/cifar10")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "file/cache"))
    assert torch.equal(load("cifar10").train.inputs, first(images))
    monkeypatch.delenv("UNDRIFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.root() == tmp_path / "xdg/undrift"
    load("cifar10", keep=False)
    assert not (tmp_path / "xdg").exists()


def test_nothing_pickled_is_kept_or_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle=False"):
        cache.write(tmp_path / "x", {"a": np.array([{}])}, "")
    assert not any(tmp_path.iterdir())


def test_available(tmp_path: Path) -> None:
    cifar(tmp_path / "data/cifar10")
    (tmp_path / "hub/hub/datasets--flwrlabs--femnist").mkdir(parents=True)
    start = time.perf_counter()
    found = {row.name: row for row in available()}
    assert time.perf_counter() - start < 5  # 10 ms on a free machine
    assert list(found) == list(SOURCES)
    assert [name for name, row in found.items() if row.available] == ["digits", "cifar10", "femnist"]
    assert found["cifar10"].where == str(tmp_path / "data/cifar10")
    assert "train.parquet (columns image, character, writer_id)" in found["femnist"].how_to_get


def real(name: str) -> str:
    """The folder of a data set on this machine."""
    found = [folder for folder in FOLDERS if (folder / name).is_dir()]
    if not found:
        pytest.skip(f"no {name} in UNDRIFT_DATA")
    return str(found[0])


def test_real_shakespeare() -> None:
    data = load("shakespeare", real("shakespeare"), stride=80)
    assert data.train.owners is not None and data.test.owners is not None
    assert torch.equal(data.train.owners.unique(), data.test.owners.unique())
    text = "".join(ALPHABET[symbol] for symbol in data.train.inputs[0].tolist())
    assert text == "Before we proceed any further, hear me speak. You are all resolved rather to die"
    assert ALPHABET[int(data.train.targets[0])] == " "


def test_real_cifar(tmp_path: Path) -> None:
    table = pq.read_table(Path(real("cifar10")) / "cifar10/test.parquet")
    assert np.bincount(table.column("label").to_numpy()).tolist() == [1000] * 10
    few = tmp_path / "few.parquet"
    pq.write_table(table.slice(0, 1000), few)
    data = load("cifar10", {"train": few, "test": few})
    assert data.title == "CIFAR-10 (JPEG)" and data.shape == (3, 32, 32) and len(data.train) == 1000
    mean = (data.test.inputs.double() / 255).mean((0, 2, 3))
    assert torch.allclose(mean, torch.tensor(data.mean, dtype=torch.float64), atol=0.02)


@pytest.mark.sweep(every=3)
def test_real_fashion_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/usr/share/datasets")
    if not (folder / "fashion-mnist").is_dir():
        pytest.skip("dataset-fashion-mnist is not installed")
    data = load("fashion-mnist", folder)
    assert torch.bincount(data.train.targets).tolist() == [6000] * 10 and len(data.test) == 10_000
    scaled = data.train.inputs.float() / 255
    assert float(scaled.mean()) == pytest.approx(data.mean[0], abs=1e-4)
    assert float(scaled.std()) == pytest.approx(data.std[0], abs=1e-4)
