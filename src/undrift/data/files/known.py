"""The known data sets: where each is stored, the names of its columns, and how to get it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from undrift.util.naming.names import unknown_name
from undrift.util.naming.plugins import PluginGroup

INCLUDED = "digits"
"""The data set that is in the package; see `undrift.data.files.digits`."""


@dataclass(frozen=True)
class DataSource:
    """The files and properties of one data set.

    Args:
        name: the name that `load` takes.
        title: the name to print.
        form: "image" (encoded images in a column), "words" (text columns), "characters" (texts of one length, and the
            next character) or "roles" (the text of a play).
        classes: how many classes.
        hub: its name on the hub; empty if it is not there.
        inputs: the columns of the input; several text columns are joined.
        target: the column of the class.
        splits: the names of the training and the test split; if the latter is empty, it is split off training by owner.
            Files in LEAF's format may have both.
        owner: the column of the natural client; empty if there is none.
        mean: the mean of each channel; its length is the number of channels.
        std: the standard deviation of each channel.
        folder: its folder in a data folder; empty if that is its name.
        files: the files to put into that folder, for the instructions.
        package: the Debian package that contains it.
        lossless: whether the original images are lossless; JPEG copies are then labelled as such.
        side: images of another size are scaled to it; 0 takes the size of the first image.
        symbols: how many different tokens there are.
        length: how many tokens an input has.
        examples: how many training examples it has, to estimate costs before it is loaded.
        pixels: height and width of its images; 0 for text.
        users: how many natural clients it has; 0 if it has none.
        make: returns the `Dataset`, if a plug-in makes it and there are no files to find.
    """

    name: str
    title: str
    form: str
    classes: int
    hub: str = ""
    inputs: tuple[str, ...] = ("image",)
    target: str = "label"
    splits: tuple[str, str] = ("train", "test")
    owner: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    folder: str = ""
    files: str = ""
    package: str = ""
    lossless: bool = True
    side: int = 0
    symbols: int = 0
    length: int = 0
    examples: int = 0
    pixels: int = 0
    users: int = 0
    make: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """The kind of its inputs: "image" or "text"."""
        return "image" if self.form == "image" else "text"

    @property
    def place(self) -> str:
        """Its folder in a data folder."""
        return self.folder or self.name

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.inputs, self.target, *([self.owner] if self.owner else []))

    @property
    def how(self) -> str:
        """How to get it, in one line."""
        if self.name == INCLUDED:
            return "it is a part of undrift: install undrift again"
        names = " and ".join(f"{split}.parquet" for split in self.splits if split)
        files = self.files or f"{names} (columns {', '.join(self.columns)})"
        ways = [f"apt install {self.package}"] if self.package else []
        ways.append(f"put {files} into a folder {self.place} in a folder named in UNDRIFT_DATA")
        if self.hub:
            ways.append(f'run datasets.load_dataset("{self.hub}") once with a network')
        return ", or ".join(ways)


_CIFAR100 = DataSource(
    name="cifar100",
    title="CIFAR-100",
    form="image",
    classes=100,
    hub="uoft-cs/cifar100",
    inputs=("img",),
    target="fine_label",
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    examples=50_000,
    pixels=32,
)

_ALL = [
    DataSource(
        name="digits",
        title="Digits",
        form="image",
        classes=10,
        mean=(0.3054,),
        std=(0.3753,),
        examples=1_438,
        pixels=8,
    ),
    DataSource(
        name="fashion-mnist",
        title="Fashion-MNIST",
        form="image",
        classes=10,
        hub="zalando-datasets/fashion_mnist",
        mean=(0.2860,),
        std=(0.3530,),
        files="its four idx files, or train.parquet and test.parquet (columns image, label),",
        package="dataset-fashion-mnist",
        examples=60_000,
        pixels=28,
    ),
    DataSource(
        name="cifar10",
        title="CIFAR-10",
        form="image",
        classes=10,
        hub="uoft-cs/cifar10",
        inputs=("img",),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        examples=50_000,
        pixels=32,
    ),
    _CIFAR100,
    replace(
        _CIFAR100,
        name="cifar100-coarse",
        title="CIFAR-100, 20 classes",
        classes=20,
        target="coarse_label",
        folder="cifar100",
    ),
    DataSource(
        name="tiny-imagenet",
        title="Tiny-ImageNet",
        form="image",
        classes=200,
        hub="zh-plus/tiny-imagenet",
        splits=("train", "valid"),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        files="tiny-imagenet-200 (unpacked), or train.parquet and valid.parquet (columns image, label),",
        lossless=False,
        examples=100_000,
        pixels=64,
    ),
    DataSource(
        name="femnist",
        title="FEMNIST",
        form="image",
        classes=62,
        hub="flwrlabs/femnist",
        target="character",
        splits=("train", ""),
        owner="writer_id",
        mean=(0.0,),
        std=(1.0,),
        files="train.parquet (columns image, character, writer_id), or LEAF's train/*.json and test/*.json,",
        examples=732_573,
        users=3_597,
        pixels=28,
    ),
    DataSource(
        name="office-home",
        title="Office-Home",
        form="image",
        classes=65,
        hub="flwrlabs/office-home",
        splits=("train", ""),
        owner="domain",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        files="its folders Art, Clipart, ... of images, or train.parquet (columns image, label, domain),",
        lossless=False,
        side=64,
        examples=14_029,
        users=4,
        pixels=64,
    ),
    DataSource(
        name="bloodmnist",
        title="BloodMNIST",
        form="image",
        classes=8,
        hub="danjacobellis/bloodmnist_224",
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        files="MedMNIST's bloodmnist.npz, or train.parquet and test.parquet (columns image, label),",
        side=28,
        examples=11_959,
        pixels=28,
    ),
    DataSource(
        name="shakespeare",
        title="Shakespeare",
        form="roles",
        classes=81,
        inputs=("text",),
        files='"tiny Shakespeare" as input.txt (speeches headed by "ROLE:", a blank line between them)',
        symbols=81,
        length=80,
        examples=793_902,
        users=183,
    ),
    DataSource(
        name="leaf-shakespeare",
        title="Shakespeare (LEAF)",
        form="characters",
        classes=80,
        hub="flwrlabs/shakespeare",
        inputs=("x",),
        target="y",
        splits=("train", ""),
        owner="character_id",
        files="LEAF's train/*.json and test/*.json, or its all_data/*.json,",
        symbols=80,
        length=80,
        examples=3_380_926,
        users=1_129,
    ),
    DataSource(
        name="yahoo-answers",
        title="Yahoo! Answers",
        form="words",
        classes=10,
        hub="community-datasets/yahoo_answers_topics",
        inputs=("question_title", "question_content", "best_answer"),
        target="topic",
        symbols=30_000,
        length=128,
        examples=1_400_000,
    ),
]

SOURCES: dict[str, DataSource] = {source.name: source for source in _ALL}
"""Name -> source, in the order of display."""


PLUGINS = PluginGroup("undrift.data", SOURCES)
"""The data sets of plug-ins: a `DataSource`, or a function that returns a `Dataset`."""


def find_source(name: str) -> DataSource:
    """The source with this name; case is ignored, and "_" and " " equal "-".

    Example:
        >>> find_source("Fashion_MNIST").package
        'dataset-fashion-mnist'
    """
    key = name.lower().replace("_", "-").replace(" ", "-")
    if key in SOURCES:
        return SOURCES[key]
    if (plugin := PLUGINS.find(key)) is None:
        raise ValueError(unknown_name("data set", name, {**SOURCES, **PLUGINS.known()}))
    found = plugin.load()
    if isinstance(found, DataSource):
        return replace(found, name=plugin.name)
    if not callable(found):
        raise ValueError(f"{plugin}: it must be a DataSource or a function that returns a Dataset, got {found!r:.80}")
    return DataSource(plugin.name, plugin.name, "made", 0, make=found)


LABELS: dict[str, tuple[str, ...]] = {
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
}
"""The names of the classes, where the files have only their numbers."""
