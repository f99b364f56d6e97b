"""From columns to a data set: which column is the target, which are inputs, which names the owner."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.data.arrays.dataset import Arrays, DataError, Dataset, as_splits, errors_of
from undrift.data.arrays.images import SizeError, channel_statistics, channels_last, decode, is_grey, open_image, rows
from undrift.data.arrays.preprocess import InputColumn, Preprocess
from undrift.data.own.labels import Column, find_classes, is_few_whole, number_classes, number_owners
from undrift.data.own.rows import (
    CATEGORIES,
    INDEX,
    MISSING,
    SCALES,
    apply,
    as_rows,
    drop_rows,
    fit,
    fit_targets,
    input_columns,
    is_missing,
    is_text,
    scale_targets,
    target_rows,
    why_left_out,
)
from undrift.data.own.split import hold_out
from undrift.data.own.tables import Columns, is_encoded

TARGETS = ("label", "target", "class", "y", "labels", "targets")
"""The columns that may be the target if none is named."""


@dataclass(frozen=True)
class Reading:
    """How columns are read.

    Args:
        target: the column to predict; several, joined by ";", are numbers. Default: the one of `TARGETS` that exists.
        inputs: the columns that models receive, joined by ";". Default: the column of images, or else all other
            columns of numbers, and those with few different texts.
        owner: the column that names each example's client; empty if there is none.
        classes: how many classes there are; 0 if the target is a number to predict. None decides by the column: texts
            and whole numbers are classes, in sorted order, and numbers with a fraction are not.
        side: images are scaled to this height and width; 0 takes them as they are, of one size.
        test: the share of the examples that is held out as the test set if there is none.
        categories: how a column of texts becomes numbers: "one-hot", an input of 0 or 1 for each text; "codes", its
            position in sorted order; "none" leaves such columns out.
        missing: what stands for a missing value of an input: the "mean", "median" or "mode" of the training set, in a
            column of texts always the most frequent; "drop" leaves the row out. Empty: it is an error.
        scale: "both" standardises inputs and numbers to predict, "inputs" only those, "none" neither; "pooled" is what
            versions before 0.3 did with inputs, for runs that began with it.
        prepared: a file preprocess.json, of a run or of `undrift.flower.prepare_sites`: columns, categories, classes,
            fill values and scaling are those of this file, and none is computed from this table.
    """

    target: str = ""
    inputs: str = ""
    owner: str = ""
    classes: int | None = None
    side: int = 0
    test: float = 0.1
    categories: str = "one-hot"
    missing: str = ""
    scale: str = "both"
    prepared: str = ""

    def __post_init__(self) -> None:
        for name, allowed in (("categories", CATEGORIES), ("missing", MISSING), ("scale", SCALES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be {', '.join(filter(None, allowed))}, got {getattr(self, name)!r}")
        if not 0 < self.test < 1:
            raise ValueError(f"test must be a share of the examples between 0 and 1, got {self.test}")
        if self.side < 0 or (self.classes or 0) < 0:
            raise ValueError(f"side and classes must be 0 or more, got {self.side} and {self.classes}")
        decided = ["target", "inputs", "classes", "categories", "scale", *["missing"] * (self.missing != "drop")]
        given = [name for name in decided if getattr(self, name) != getattr(Reading, name)]
        if self.prepared and given:
            raise ValueError(f"prepared={self.prepared!r} decides {', '.join(given)}: leave that out")

    def like(self, made: Preprocess) -> "Reading":
        """The same with the columns of a table that was prepared before."""
        target, inputs = ";".join(made.targets), ";".join(one.name for one in made.columns)
        return replace(self, target=target, inputs=inputs, categories=made.encoding, prepared="")


BEFORE = {"categories": "none", "scale": "pooled"}
"""How versions before 0.3 read tables: the arguments for runs that began with one of them."""


@dataclass
class About:
    """What is known about the arrays of a data set.

    Args:
        kind: "image", "text" or "table".
        labels: the names of the classes; empty if targets are numbers.
        mean: the mean of each channel or column of the training set.
        std: the standard deviation of each.
        notes: what to add to the title.
        left_out: the columns that are no inputs, each with the reason.
        table: of a table, how its rows become inputs, as `Preprocess.record` has it.
    """

    kind: str
    labels: tuple[str, ...] = ()
    mean: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)

    def dataset(self, name: str, arrays: Arrays, title: str = "", **others: Any) -> Dataset:
        """The arrays as a data set, without copying.

        Args:
            name: its name, as the user wrote it.
            arrays: of both splits.
            title: its title, without notes; empty if that is the name.
            others: further arguments of `Dataset`.
        """
        title = f"{title or name} ({', '.join(self.notes)})" if self.notes else title or name
        if self.table:
            found = Preprocess.from_record(self.table)
            names = ("targets", "target_mean", "target_std", "columns", "encoding", "statistics")
            others |= {key: getattr(found, key) for key in names}
        others |= {"labels": tuple(self.labels), "left_out": tuple(self.left_out)}
        mean, std = tuple(self.mean), tuple(self.std)
        return Dataset(name, self.kind, *as_splits(arrays), len(self.labels), mean, std, title, **others)


def make_arrays(
    splits: Mapping[str, Columns], reading: Reading, source: str, prepared: Preprocess | None = None
) -> tuple[Arrays, About]:
    """The arrays of both splits; a test set is held out if there is none.

    Args:
        splits: the columns of "train" and perhaps "test".
        reading: which columns to take.
        source: what to call the data in errors.
        prepared: how the rows of a table become inputs and targets; None finds it from these rows.
    """
    with errors_of(source):
        if prepared is not None:
            reading = reading.like(prepared)
        arrays, about, known = _read(splits, reading, prepared)
        if about.kind == "image":
            about.mean, about.std = channel_statistics(arrays["train-inputs"])
            return arrays, about
        made = _fit(arrays, known, reading) if prepared is None else replace(prepared, statistics="given")
        for key in ("train-inputs", "test-inputs"):
            arrays[key] = apply(made, arrays[key])
        scale_targets(arrays, made.target_mean, made.target_std)
        about.mean, about.std, about.table = list(made.mean), list(made.std), made.record()
        return arrays, about


def training_rows(splits: Mapping[str, Columns], reading: Reading, source: str, prepared: Preprocess) -> Arrays:
    """Inputs and targets of the training set of a table as rows of numbers that are not scaled.

    Args:
        splits: the columns of "train" and perhaps "test".
        reading: which columns to take.
        source: what to call the data in errors.
        prepared: the columns with their categories, and the classes.
    """
    with errors_of(source):
        arrays, about, _ = _read(splits, reading.like(prepared), prepared)
        if about.kind != "table":
            raise DataError("only tables have statistics of columns; give images mean and std")
        return {part: target_rows(arrays[f"train-{part}"]) for part in ("inputs", "targets")}


def _read(
    splits: Mapping[str, Columns], reading: Reading, prepared: Preprocess | None
) -> tuple[dict[str, NDArray[Any]], About, Preprocess]:
    """The arrays of both splits, rows of a table neither filled nor scaled; and the columns of a table."""
    targets, inputs, ignored = _choose(splits["train"], reading)
    labels = [*targets, *([reading.owner] if reading.owner else [])]
    if reading.missing == "drop":
        splits = {split: drop_rows(found, [*targets, *inputs], split) for split, found in splits.items()}
    filled = {one.name for one in prepared.columns if one.fill is not None} if prepared else set[str]()
    _check_values(splits, labels, [name for name in inputs if name not in filled], reading)
    arrays: dict[str, NDArray[Any]] = {}
    numbers, names = _targets(splits, targets, reading, prepared)
    arrays |= {f"{split}-targets": own for split, own in numbers.items()}
    if reading.owner:
        owners = {split: np.asarray(found[reading.owner]) for split, found in splits.items()}
        arrays |= {f"{split}-owners": own for split, own in number_owners(owners, reading.owner).items()}
    about = About("image" if is_encoded(splits["train"][inputs[0]]) else "table", names)
    known = prepared or Preprocess("table", (len(inputs),), labels=names, targets=tuple(targets))
    if about.kind == "image":
        images, scaled = _images(splits, inputs, reading.side)
        arrays |= images
        about.notes += ["scaled"] * scaled
    else:
        if prepared is None:
            known = replace(known, columns=input_columns(splits, inputs, reading))
        arrays |= {f"{split}-inputs": as_rows(found, known.columns, split) for split, found in splits.items()}
    about.notes += [f"without {', '.join(ignored)}"] * bool(ignored)
    about.left_out = [f"{name} ({why})" for name, why in ignored.items()]
    return (dict(arrays) if "test" in splits else hold_out(arrays, reading.test)), about, known


def _fit(arrays: Arrays, known: Preprocess, reading: Reading) -> Preprocess:
    """How these rows become inputs, and numbers to predict targets."""
    made = replace(fit([arrays["train-inputs"]], known.columns, reading), targets=known.targets)
    if known.labels or reading.scale != "both":
        return made
    mean, std = fit_targets([target_rows(arrays["train-targets"])])
    return replace(made, target_mean=mean, target_std=std)


def _check_values(splits: Mapping[str, Columns], labels: list[str], inputs: list[str], reading: Reading) -> None:
    """Raise if a column that is used is not there, has no value in a row, or cannot be a target or an owner."""
    for split, found in splits.items():
        for name in (*labels, *inputs):
            if name not in found:
                raise DataError(f"{split} has no column {name!r}; found {', '.join(found)}")
            if name in inputs and (reading.missing or (is_text(found[name]) and reading.categories != "none")):
                continue
            used = found[name] if name in inputs else found[name] if isinstance(found[name], np.ma.MaskedArray) else []
            if (empty := np.flatnonzero(is_missing(used))).size:
                ways = (
                    "fill it with missing='mean', 'median' or 'mode', or leave such rows out with missing='drop', "
                    "as in \"data.csv(missing='mean')\""
                )
                label = "fill it, or leave such rows out with missing='drop'"
                raise DataError(
                    f"column {name!r} has no value in row {empty[0]} of {split}; {ways if name in inputs else label}"
                )
    for name in labels:
        if isinstance(splits["train"][name], np.ndarray) and splits["train"][name].dtype.kind == "O":
            raise DataError(f"column {name!r} is neither numbers nor texts; convert it to one of these")


def _choose(train: Columns, reading: Reading) -> tuple[list[str], list[str], dict[str, str]]:
    """The columns of targets and of inputs, and those that are neither and not left out by name, with the reason."""
    names = list(train)
    targets = _names(reading.target) or _default_targets(names)
    if named := _names(reading.inputs):
        return targets, named, {}
    archive = all(re.fullmatch(r"(inputs|targets|owners)\d*", name) for name in names)
    # An index of the rows, as pandas writes it, and the owners of an archive are no inputs
    no_input = r"|__index_level_\d+__|Unnamed: 0(\.\d+)*" + r"|owners\d*" * archive
    others = [name for name in names if re.fullmatch(no_input, name)]
    rest = [name for name in names if name not in (*targets, *others, reading.owner)]
    inputs = [name for name in rest if is_encoded(train[name])]
    if len(inputs) > 1:
        raise DataError(f"several columns have images ({', '.join(inputs)}); name one: inputs={inputs[0]!r}")
    why = {name: "beside images" for name in rest if name not in inputs}
    if not inputs:
        why = {name: reason for name in rest if (reason := why_left_out(train[name], reading))}
        inputs = [name for name in rest if name not in why] or [name for name in rest if why[name] == INDEX]
        why = {name: reason for name, reason in why.items() if name not in inputs}
    if not inputs:
        raise DataError(f"no column of numbers, few texts or images is left as input; found {', '.join(names)}")
    index = {name or "an index": "an index" for name in others if name != reading.owner or not name}
    return targets, inputs, {name: why[name] for name in rest if name in why} | index


def _default_targets(names: list[str]) -> list[str]:
    """The column to predict if none is named; an archive may have several, targets0 and so on."""
    if not names:
        raise DataError("it has no columns; a table has inputs and a column to predict")
    found = [name for name in names if name.lower() in TARGETS]
    several = [name for name in names if re.fullmatch(r"targets\d+", name)]
    if len(found) == 1 or several:
        return found or several
    which = " or ".join(found) if found else f"one of {', '.join(names)}"
    example = (found or names[-1:])[0]
    raise DataError(f'name the column to predict, {which}: target={example!r}, as in "data.csv(target={example!r})"')


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]


def _targets(
    splits: Mapping[str, Columns], names: list[str], reading: Reading, prepared: Preprocess | None
) -> tuple[Column, tuple[str, ...]]:
    """The targets of each split, and the names of the classes, none for numbers."""
    columns = {split: [np.asarray(found[name]) for name in names] for split, found in splits.items()}
    if prepared is not None and prepared.labels:
        labelled = {split: own[0] for split, own in columns.items()}
        return find_classes(labelled, names[0], prepared.labels), prepared.labels
    reading = reading if prepared is None else replace(reading, classes=0)
    firsts = [own[0] for own in columns.values()]
    floats = all(x.dtype.kind in "iuf" for x in firsts) and any(x.dtype.kind == "f" for x in firsts)
    if reading.classes is None and len(names) == 1 and floats and is_few_whole(np.concatenate(firsts)):
        columns, floats = {split: [own[0].astype(np.int64)] for split, own in columns.items()}, False
    if len(names) > 1 or reading.classes == 0 or (floats and reading.classes is None):
        numbers = {
            split: np.column_stack([_finite(x, n, split) for x, n in zip(own, names, strict=True)]).astype(np.float32)
            for split, own in columns.items()
        }
        return {split: own if len(names) > 1 else own[:, 0].copy() for split, own in numbers.items()}, ()
    return number_classes({split: own[0] for split, own in columns.items()}, names[0], reading.classes)


def _images(splits: Mapping[str, Columns], inputs: list[str], side: int) -> tuple[Arrays, bool]:
    """The decoded images of all splits, grey if all are, else in colour; and whether any was scaled."""
    if len(inputs) > 1:
        raise DataError(f"a column of images is the only input; leave {', '.join(inputs[1:])} out of inputs")
    columns = {split: found[inputs[0]] for split, found in splits.items()}
    channels = max(map(_channels, columns.values()))
    arrays, any_scaled = dict[str, NDArray[Any]](), False
    for split, column in columns.items():
        try:
            arrays[f"{split}-inputs"], _, scaled = decode(column, channels, side)
        except DataError as error:
            advice = "; to scale all images to one size give side=32" if isinstance(error, SizeError) else ""
            raise DataError(f"{split}: {error}{advice}") from None
        any_scaled |= scaled
    shapes = {array.shape[1:] for array in arrays.values()}
    if len(shapes) > 1:
        raise DataError(f"train and test have images of different sizes, {shapes}; give side=32")
    return arrays, any_scaled


def _channels(column: Any) -> int:
    """1 if all images are grey, else 3."""
    if isinstance(column, np.ndarray):
        return int(channels_last(column).shape[3])
    return 1 if all(is_grey(open_image(item, row, whole=False)) for row, item in enumerate(rows(column))) else 3


def _finite(column: Any, name: str, split: str) -> NDArray[np.float64]:
    """A column of numbers to predict; raises if it has texts or a number that is not finite."""
    numbers = as_rows({name: column}, [InputColumn(name)], split)[:, 0]
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(f"column {name!r} of {split} has {numbers[row]} in row {row}; fill or drop such rows")
    return numbers
