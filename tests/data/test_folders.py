"""Images in folders: Office-Home's domains and their clients, and Tiny-ImageNet's archive."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from undrift.data import DataError, DataTask, load, partition
from undrift.runs import Config, start
from undrift.runs.setup.prepare import prepare

Image = pytest.importorskip("PIL.Image")

DOMAINS = {"Art": 2, "Clipart": 3, "Product": 4, "Real World": 5}
"""Images of each class in each domain."""


def paint(path: Path, value: int, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> None:
    """An image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, value, value)).save(path)


def write_office(folder: Path, classes: int = 65) -> None:
    """A small Office-Home: the grey of an image says its class."""
    for domain, count in DOMAINS.items():
        for number in range(classes):
            for image in range(count):
                paint(folder / domain / f"Thing_{number:02}" / f"{image:05}.jpg", 3 * number, (6 + image, 5))
    (folder / "ImageInfo.csv").write_text("not an image")
    (folder / "Art" / "imagelist.txt").write_text("neither")


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write_office(folder / "office-home")
    return folder


@pytest.mark.quick
def test_domains_are_owners(office: Path) -> None:
    data = load("office-home", office, keep=False)
    assert data.classes == 65 and data.shape == (3, 64, 64) and data.title == "Office-Home (scaled)"
    counts = [65 * count for count in DOMAINS.values()]
    assert data.train.owners is not None and data.test.owners is not None
    train, test = torch.bincount(data.train.owners).tolist(), torch.bincount(data.test.owners).tolist()
    assert train == [int(0.9 * count) for count in counts]  # nine tenths of each domain
    assert [a + b for a, b in zip(train, test, strict=True)] == counts
    for split in (data.train, data.test):  # classes are numbered over all domains, in the order of their names
        grey = split.inputs.float().mean((1, 2, 3))
        assert torch.allclose(grey, 3.0 * split.targets, atol=1.5)
    again = load("office-home", office, keep=False)
    assert torch.equal(again.test.inputs, data.test.inputs) and torch.equal(again.test.owners, data.test.owners)  # type: ignore[arg-type]


@pytest.mark.parametrize(("scheme", "clients"), [("natural", 4), ("natural,split=3", 12), ("natural,samples=0.1", 4)])
def test_clients_of_domains(scheme: str, clients: int, office: Path) -> None:
    data = load("office-home", office, keep=False)
    owners = data.train.owners
    assert owners is not None and data.test.owners is not None
    dealt = partition(scheme, data.train.targets.numpy(), owners=owners.numpy(), seed=1)
    each = clients // 4
    assert len(dealt.clients) == clients and dealt.disjoint and dealt.covers is ("samples" not in scheme)
    task = DataTask(data, dealt.clients, torch.nn.Identity)
    for client, own in enumerate(dealt.clients):
        assert set(owners[torch.from_numpy(own)].tolist()) == {client // each}
        assert torch.equal(task.own(client), torch.nonzero(data.test.owners == client // each).flatten())
    whole = np.bincount(owners.numpy())
    for domain in range(4):
        sizes = dealt.sizes[domain * each : (domain + 1) * each]
        assert sizes.max() - sizes.min() <= 1
        assert sizes.sum() == (round(0.1 * whole[domain]) if "samples" in scheme else whole[domain])
    assert partition(scheme, data.train.targets.numpy(), clients, 1, owners).sha256 == dealt.sha256
    if scheme != "natural":
        assert partition(scheme, data.train.targets.numpy(), clients, 2, owners).sha256 != dealt.sha256


def test_owners_that_are_too_small_to_split() -> None:
    labels, owners = np.zeros(9, int), np.array(["a"] * 7 + ["b"] * 2)
    with pytest.raises(ValueError, match=r"b has 2 samples for 3 clients; use a smaller split, or .* min_size=3"):
        partition("natural,split=3", labels, owners=owners)
    assert partition("natural,split=3,min_size=3", labels, owners=owners).sizes.tolist() == [3, 2, 2]
    assert partition("natural,samples=0.01", labels, owners=owners).sizes.tolist() == [1, 1]
    with pytest.raises(ValueError, match="the data have 2 such owners for 2 clients each, got clients=2; leave it out"):
        partition("natural,split=2", labels, clients=2, owners=owners)
    with pytest.raises(ValueError, match="natural: split must be between 1 and"):
        partition("natural,split=0", labels, owners=owners)


@pytest.mark.sweep(every=2)
def test_a_run_on_domains(office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_DATA", str(office))
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    values = {"data": "office-home", "partition": "natural,samples=0.1", "cohort": 1.0, "rounds": 1, "model": "resnet8"}
    outcome = start(Config.build({**values, "output": {"lens_every": 0}}), tmp_path / "run")
    found = Config.read(outcome.folder / "config.toml")
    assert (found.clients, found.cohort, found.partition) == (4, 4, "natural(samples=0.1)")
    assert len(outcome.summary["data"]) and outcome.summary["data"].startswith("Office-Home")


@pytest.mark.parametrize("over", ["", "corrupt,types=brightness+contrast,over="])
def test_one_domain_is_left_out(over: str, office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_DATA", str(office))
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    values = {"data": "office-home", "partition": f"{over}natural,samples=0.1,test=2", "cohort": 1.0}
    setup = prepare(Config.build({**values, "method": "fedlaw", "proxy": 130}))
    assert (setup.config.clients, setup.config.cohort) == (3, 3)
    train, test = setup.data_task.dataset.train, setup.data_task.dataset.test
    assert setup.partition is not None and setup.data_task.reserved is not None
    assert train.owners is not None and test.owners is not None
    used = np.concatenate([*setup.partition.clients, setup.data_task.reserved])
    assert set(train.owners[used].tolist()) == {0, 1, 3}
    assert set(test.owners.tolist()) == {2} and len(test) == 65 * DOMAINS["Product"]
    assert torch.equal(torch.bincount(test.targets), torch.full((65,), DOMAINS["Product"]))
    assert all(len(setup.data_task.own(client)) for client in range(3))  # drawn from the test set


def test_the_domain_left_out_must_be_one() -> None:
    labels = np.zeros(9, int)
    with pytest.raises(ValueError, match=r"natural\(test=3\): test must be one of at least two owners, .* 0 to 2"):
        partition("natural,test=3", labels, owners=np.arange(9) % 3)
    with pytest.raises(ValueError, match="test must be one of at least two owners"):
        partition("natural,test=0", labels, owners=labels)
    with pytest.raises(ValueError, match="the largest of 2 owners has 3 samples; lower min_size"):
        partition("natural,test=0,min_size=4", labels, owners=np.arange(9) % 3)
    left = partition("natural,test=1,split=2", labels, owners=np.arange(9) % 3)
    assert left.sizes.tolist() == [2, 1, 2, 1]
    assert {int(sample) % 3 for own in left.clients for sample in own} == {0, 2}


def test_domains_may_be_corrupted_too(office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_DATA", str(office))
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    scheme = "corrupt,types=brightness+contrast,over=natural,samples=0.1"
    assert prepare(Config.build({"data": "office-home", "partition": scheme})).config.clients == 4


def test_a_moved_image_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of one name, size and time differ in their folders only."""
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    write_office(tmp_path / "office-home")
    art = tmp_path / "office-home/Art"
    before = load("office-home", tmp_path)
    shutil.move(art / "Thing_64", art / "moved")
    shutil.move(art / "Thing_00", art / "Thing_64")
    shutil.move(art / "moved", art / "Thing_00")
    after = load("office-home", tmp_path)
    assert not torch.equal(before.train.inputs, after.train.inputs)


def test_classes_must_be_complete(tmp_path: Path) -> None:
    write_office(tmp_path, classes=3)
    with pytest.raises(DataError, match="images of 65 classes in its folders, found 3, from Thing_00 to Thing_02"):
        load("office-home", tmp_path)
    with pytest.raises(DataError, match=r"office-home was not found.*its folders Art, Clipart, ... of images"):
        load("office-home", tmp_path / "none")


@pytest.mark.parametrize("inside", ["", "tiny-imagenet-200"])
def test_tiny_imagenet_from_its_archive(inside: str, tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet" / inside
    names = [f"n{number:08}" for number in range(200)]
    for number, name in enumerate(names):
        for image in range(2):
            paint(folder / "train" / name / "images" / f"{name}_{image}.JPEG", number, (8, 8), "RGB" if image else "L")
        (folder / "train" / name / f"{name}_boxes.txt").write_text("")
        paint(folder / "val/images" / f"val_{number}.JPEG", 199 - number, (8, 8))
    lines = [f"val_{number}.JPEG\t{names[199 - number]}\t0\t0\t9\t9" for number in range(200)]
    (folder / "val/val_annotations.txt").write_text("\n".join(lines) + "\n")
    paint(folder / "test/images/test_0.JPEG", 0)
    data = load("tiny-imagenet", tmp_path, keep=False)
    assert data.title == "Tiny-ImageNet" and data.shape == (3, 8, 8) and (len(data.train), len(data.test)) == (400, 200)
    for split in (data.train, data.test):
        assert torch.allclose(split.inputs.float().mean((1, 2, 3)), split.targets.float(), atol=1.5)
    (folder / "val/val_annotations.txt").write_text("\n".join(lines[1:]))
    with pytest.raises(DataError, match=r"does not list val_0.JPEG; unpack the archive again"):
        load("tiny-imagenet", tmp_path, keep=False)
