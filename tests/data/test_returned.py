"""What functions of one's own return: pictures, arrays and data sets that could be read in a wrong way."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from undrift.data import DataError, Dataset, DataTask, Split, load
from undrift.data.arrays.images import check_depth, is_grey, open_image
from undrift.data.own.columns import Reading
from undrift.data.own.resolve import convert
from undrift.data.partitions.draw import parse

X, Y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2


def pictures(mode: str, levels: tuple[int, int] = (250, 10)) -> list[tuple[Any, int]]:
    plain = [Image.new("RGB", (8, 8), (level,) * 3) for level in levels]
    kinds = [image.quantize(2) if mode == "P" else image.convert(mode) for image in plain]
    return [(kinds[n % 2], n % 2) for n in range(8)]


@pytest.mark.parametrize(
    ("mode", "channels", "close"), [("P", 3, 2), ("CMYK", 3, 2), ("1", 1, 10), ("L", 1, 0), ("RGBA", 3, 0)]
)
def test_pictures_are_decoded(mode: str, channels: int, close: int) -> None:
    data = convert((pictures(mode), pictures(mode)), "mine")
    assert data.shape == (channels, 8, 8)
    for level, target in ((250, 0), (10, 1)):
        assert (data.train.inputs[data.train.targets == target].int() - level).abs().max() <= close


def test_grey_pictures_among_coloured_ones_and_deep_ones() -> None:
    mixed = pictures("L")[:4] + pictures("RGB")[4:]
    assert convert((mixed, mixed), "mine").shape == (3, 8, 8)
    deep = [(Image.fromarray(np.full((8, 8), 4000, np.uint16)), 0)] * 4
    with pytest.raises(DataError, match=r"mine: train: picture 0: its pixels have more than 8 bits \(mode I;16\)"):
        convert((deep, deep), "mine")
    assert is_grey(Image.new("1", (2, 2))) and not is_grey(Image.new("P", (2, 2)))
    check_depth(Image.new("RGB", (2, 2)), "x")


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (4, 2), (6, 4), (0, 1)])
def test_a_png_with_16_bits_is_refused(colour: int, channels: int) -> None:
    raw = b"".join(b"\0" + struct.pack(">H", 300) * 4 * channels for _ in range(4))

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 4, 4, 16, colour, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    with pytest.raises(DataError, match=r"image 3: its pixels have (16|more than 8) bits.*; scale them to 8 bits"):
        open_image(png, 3)


def test_classes_and_owners_are_numbered() -> None:
    assert convert((X, np.array(["b", "a"])[Y]), "mine").classes == 2
    gaps = convert(((X, Y * 10**6), (X, Y * 10**6)), "mine")
    assert gaps.classes == 2 and torch.equal(gaps.test.targets, torch.from_numpy(Y))
    assert convert((X, 2 * Y - 1), "mine").classes == 2
    assert convert((X, Y), "mine", Reading(classes=7)).classes == 7
    for owners in (np.array([10**12, 2 * 10**12])[Y], Y - 5, np.array(["b", "a"])[1 - Y]):
        data = convert(((X, Y, owners), (X, Y, owners)), "mine")
        task = DataTask(data, [np.flatnonzero(k == Y)[:10] for k in (0, 1)], lambda: torch.nn.Linear(3, 2))
        assert len(task.own(0)) == 20
        assert data.train.owners is not None and data.train.owners.unique().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((np.where(X > 1, np.nan, X), Y), r"inputs of train are not finite in example \d+; fill or drop such examples"),
        ((X, np.where(Y, np.inf, 0.5)), "targets of train are not finite in example 1"),
        ((np.full((40, 2), -1), Y), "tokens must be 0 or more, got -1 in train; rows of numbers must be floats"),
        (
            ((X, Y), (np.c_[X, X], Y)),
            r"inputs must be alike in train and test, got float32 \[40, 3\] and .*6\]",
        ),
        (((X, Y), (X.astype(int) + 9, Y)), "inputs must be alike in train and test, got float32"),
        (((X, Y), (X, Y.astype(float))), "targets must be alike in train and test, got int64"),
        (((X, X[:, :1]), (X, X[:, 0])), r"targets must be alike in train and test, got float32 \[40, 1\]"),
        (((X, Y), (X[:0], Y[:0])), "test has no examples; give some, or no test set"),
        ((X, np.array([object()] * 40)), "targets of train must be numbers or texts"),
        (((X, Y, np.where(Y, np.nan, 1.0)), (X, Y)), "column 'owners' of train has no value in row 1"),
    ],
)
def test_arrays_that_are_refused(found: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        convert(found, "mine")


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(DataError, match=r"arrays have no column 'site'; return the owners as .* the partition natural"):
        convert((X, Y), "mine", Reading(owner="site"))
    split = Split(torch.rand(20, 3), torch.arange(20) % 2)
    data = Dataset("x", "table", split, split, 2, (), (), "X", owner="site")
    assert convert(data, "mine", Reading(owner="site")) is data
    for setting in ({"target": "x"}, {"test": 0.5}, {"classes": 7}, {"owner": "town"}):
        with pytest.raises(DataError, match=f"returns a Dataset, on which {next(iter(setting))} has no effect; leave"):
            convert(data, "mine", Reading(**setting))


def test_a_list_for_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "listed_data.py").write_text("def make(widths=(1, 2)): return None\n")
    with pytest.raises(ValueError, match=r"'listed_data:make': widths must be .*, got \[3, 4\]"):
        load("listed_data:make", widths=[3, 4])


def test_tensors_of_another_type_are_refused() -> None:
    classes = torch.arange(20) % 2
    floats, whole = Split(torch.rand(20, 1, 8, 8), classes), Split(torch.rand(20, 3), classes.int())
    with pytest.raises(ValueError, match=r"m: images are uint8 .* got torch.float32 \[20, 1, 8, 8\]; convert them"):
        Dataset("m", "image", floats, floats, 2, (0.5,), (0.5,), "M")
    with pytest.raises(ValueError, match=r"with classes=2 targets are classes \(int64\), got torch.int32"):
        Dataset("m", "table", whole, whole, 2, (), (), "M")


def test_texts_in_a_partition_stay_as_they_are() -> None:
    for text in ("column('v1.0')", "file('a/clients-2.0')", "dirichlet(1)"):
        assert str(parse(text)) == text
    assert str(parse("dirichlet:1.0")) == "dirichlet(1)" and str(parse("column:v1.0")) == "column('v1.0')"
