"""Images as arrays: from encoded images in a table column, idx files, and MedMNIST's archive."""

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import read_array
from numpy.typing import NDArray

from undrift.data.arrays.dataset import DataError

MODES = {1: "L", 3: "RGB"}
_PNG = b"\x89PNG\r\n\x1a\n"  # then the length and the name of the header, width, height, and the bits of a channel


class SizeError(DataError):
    """An image has another size than the first."""


class Decoded(NamedTuple):
    """Images (examples, channels, height, width), the format of the first ("JPEG"), and whether any was scaled."""

    images: NDArray[np.uint8]
    coding: str
    scaled: bool


def need(module: str) -> Any:
    """Import a module of the extra `data`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"reading data needs {module.split('.')[0]}: pip install 'undrift[data]'") from error


def rows(column: Any) -> Iterator[Any]:
    """The values of a table column, with one chunk in memory at a time, or of a list."""
    if isinstance(column, list):
        yield from column
        return
    for chunk in column.chunks:
        yield from chunk.to_pylist()


def decode(column: Any, channels: int, side: int = 0) -> Decoded:
    """Decode every image of a column.

    Args:
        column: encoded images, as bytes or as the hub's pairs of bytes and path; or an array of images.
        channels: 1 converts to grey, 3 to RGB.
        side: images of another size are scaled to it; 0 takes the size of the first image and rejects others.
    """
    if isinstance(column, np.ndarray):
        images = channels_last(column)
        if images.dtype != np.uint8 or images.shape[3] != channels:
            raise DataError(f"images must be uint8 with {channels} channels, got {images.dtype} {list(column.shape)}")
        return Decoded(np.ascontiguousarray(images.transpose(0, 3, 1, 2)), "", False)
    decoded, coding, scaled = np.empty((0, channels, 0, 0), np.uint8), "", False
    for row, item in enumerate(rows(column)):
        image = open_image(item, row)
        if row == 0:
            size = (side, side) if side else image.size
            coding, decoded = image.format or "", np.empty((len(column), channels, size[1], size[0]), np.uint8)
        if side and image.size != size:
            image, scaled = image.convert(MODES[channels]).resize(size, need("PIL.Image").Resampling.BICUBIC), True
        if image.size != size:
            raise SizeError(f"image {row} is {image.size[0]} x {image.size[1]}, the first is {size[0]} x {size[1]}")
        if image.mode != MODES[channels]:
            image = image.convert(MODES[channels])
        pixels = np.frombuffer(image.tobytes(), np.uint8)
        decoded[row] = pixels.reshape(*size[::-1], channels).transpose(2, 0, 1)
    return Decoded(decoded, coding, scaled)


def _read_bytes(item: Any) -> bytes:
    """The bytes of an encoded image: itself, or from the hub's pair of bytes and path."""
    if isinstance(item, bytes):
        return item
    if isinstance(item, dict) and item.get("bytes"):
        return bytes(item["bytes"])
    if isinstance(item, dict) and item.get("path"):
        return Path(item["path"]).read_bytes()
    raise DataError(f"an image must be bytes or a pair of bytes and path, got {type(item).__name__}")


def open_image(item: Any, row: int, *, whole: bool = True) -> Any:
    """An encoded image, opened by Pillow; raises a `DataError` with its name if it cannot be read.

    Args:
        item: bytes, or the hub's pair of bytes and path.
        row: its number, for an image without a path.
        whole: whether its pixels are decoded; otherwise only its header is.
    """
    path = item.get("path") if isinstance(item, dict) else None
    name = path or f"image {row}"
    try:
        raw = _read_bytes(item)
        image = need("PIL.Image").open(BytesIO(raw))
        if whole:
            image.load()
    except (OSError, ValueError, SyntaxError) as error:  # Pillow raises all of these for a damaged image
        reason = str(error).partition(" <")[0]  # Pillow names an object of Python and where it is in memory
        raise DataError(f"{name}: not a readable image ({reason}); replace or remove it") from None
    check_depth(image, name)
    if raw.startswith(_PNG) and raw[24] > 8:  # Pillow cuts pixels with several channels to 8 bits
        raise DataError(f"{name}: its pixels have {raw[24]} bits; scale them to 8 bits first")
    return image


def check_depth(image: Any, name: str) -> None:
    """Raise a `DataError` if the pixels of a picture of Pillow have more than 8 bits.

    Args:
        image: the picture.
        name: what to call it.
    """
    if image.mode == "F" or image.mode.startswith("I"):
        raise DataError(f"{name}: its pixels have more than 8 bits (mode {image.mode}); scale them to 8 bits first")


def is_grey(image: Any) -> bool:
    """Whether a picture of Pillow is grey, or black and white.

    Args:
        image: the picture.
    """
    return image.mode in (MODES[1], "1")


def channels_last(images: NDArray[Any]) -> NDArray[Any]:
    """Images as (examples, height, width, channels), from that order, channels first, or without channels.

    Args:
        images: an array with three or four axes.
    """
    if images.ndim == 3:
        return images[..., None]
    if images.shape[3] not in MODES and images.shape[1] in MODES:
        return images.transpose(0, 2, 3, 1)
    if images.shape[3] not in MODES:
        raise DataError(f"images must have 1 or 3 channels, last or first, got an array {list(images.shape)}")
    return images


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes, gzipped or not: a magic number, the length of each axis, the values."""
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged: {error}; get the file again") from None
    if raw[:3] != b"\x00\x00\x08":
        raise DataError(f"{path}: an idx file of bytes begins with 00 00 08, this one with {raw[:3].hex(' ')}")
    axes = raw[3] if len(raw) > 3 else 0
    shape = np.frombuffer(raw[4 : 4 + 4 * axes].ljust(4 * axes, b"\0"), ">u4").tolist()
    if not axes or len(raw) != 4 + 4 * axes + prod(shape):
        raise DataError(f"{path}: {shape} needs {prod(shape)} bytes of values, found {len(raw) - 4 - 4 * axes}")
    try:
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except ValueError:  # more axes than NumPy has, or a length of 0 beside huge ones
        raise DataError(f"{path}: no array can have the shape {shape}") from None


def read_npz(path: Path, name: str) -> NDArray[Any]:
    """Read one array of a NumPy archive; arrays of Python objects are rejected."""
    try:
        with zipfile.ZipFile(path) as archive:
            if f"{name}.npy" not in archive.namelist():
                raise DataError(f"{path}: no array {name}; found {', '.join(archive.namelist())}")
            with archive.open(f"{name}.npy") as file:
                array: NDArray[Any] = read_array(file, allow_pickle=False)
                return array
    except DataError:
        raise
    except Exception as error:  # zipfile and NumPy raise many kinds
        raise DataError(f"{path}: the array {name} cannot be read: {error}; arrays of numbers are read") from None


def channel_statistics(images: NDArray[np.uint8]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, in [0, 1]; a channel of one value has the deviation 1."""
    counts = [np.bincount(images[:, channel].reshape(-1), minlength=256) for channel in range(images.shape[1])]
    values = np.arange(256) / 255
    mean = [float(count @ values / count.sum()) for count in counts]
    spread = [float(np.sqrt(count @ (values - m) ** 2 / count.sum())) for count, m in zip(counts, mean, strict=True)]
    return mean, [std or 1.0 for std in spread]
