"""LEAF's files: the texts and images of its users, its own tests, and the draw of a share of the users."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from undrift.data import DataError, Dataset, DataTask, load, partition
from undrift.data.arrays.text import ALPHABET, characters
from undrift.data.files.leaf import find_leaf
from undrift.runs import Config, ConfigError, start
from undrift.runs.setup.prepare import prepare

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Users = dict[str, tuple[list[Any], list[Any]]]


def write_leaf(path: Path, users: Users) -> None:
    """A file in LEAF's schema."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    sizes = [len(y) for _, y in users.values()]
    path.write_text(json.dumps({"users": list(users), "num_samples": sizes, "user_data": data}))


def speech(seed: int, count: int) -> tuple[list[str], list[str]]:
    """All windows of a text, with the next characters."""
    text = "".join(np.random.default_rng(seed).choice(list(ALPHABET), count + 80))
    return [text[i : i + 80] for i in range(count)], list(text[80 : 80 + count])


def part(users: Users, rows: slice) -> Users:
    return {user: (x[rows], y[rows]) for user, (x, y) in users.items()}


def texts(data: Dataset, split: str) -> list[tuple[int, str, str]]:
    """Owner, text and next character of each example."""
    held = getattr(data, split)
    return [
        (int(owner), "".join(ALPHABET[int(c)] for c in x), ALPHABET[int(y)])
        for owner, x, y in zip(held.owners, held.inputs, held.targets, strict=True)
    ]


@pytest.mark.quick
def test_leaf_s_own_split(tmp_path: Path) -> None:
    """Users are numbered over both splits and all files, also those that one of the splits has not."""
    users = {"THE_TEMPEST_ARIEL": speech(0, 9), "HAMLET_GHOST": speech(1, 7), "AS_YOU_LIKE_IT_ADAM": speech(2, 5)}
    ariel, others = ({k: v for k, v in users.items() if ("ARIEL" in k) is chosen} for chosen in (True, False))
    write_leaf(tmp_path / "train/all_data_1_train_8.json", part(ariel, slice(0, 6)))
    write_leaf(tmp_path / "train/all_data_0_train_8.json", part(others, slice(0, 4)))
    write_leaf(tmp_path / "test/all_data_0_test_8.json", part({**ariel, "EMPTY": ([], [])}, slice(6, 9)))
    data = load("leaf-shakespeare", tmp_path, keep=False)
    assert (data.kind, data.classes, data.symbols, data.shape) == ("text", 80, 80, (80,))
    assert data.title == "Shakespeare (LEAF)" and data.train.targets.dtype == torch.int64
    order = sorted(users)
    for split, rows, files in (
        ("train", slice(0, 4), others),
        ("train", slice(0, 6), ariel),
        ("test", slice(6, 9), ariel),
    ):
        expected = [
            (order.index(user), x, y)
            for user, (xs, ys) in part(files, rows).items()
            for x, y in zip(xs, ys, strict=True)
        ]
        found = [row for row in texts(data, split) if row[0] in {owner for owner, _, _ in expected}]
        assert found == expected
    assert len(data.train) == 14 and len(data.test) == 3
    with pytest.raises(
        ValueError, match="leaf-shakespeare: its windows are those of the files; leave out stride, got 2"
    ):
        load("leaf-shakespeare", tmp_path, stride=2, keep=False)
    owners = data.train.owners
    assert owners is not None
    clients = partition("natural", data.train.targets.numpy(), owners=owners.numpy()).clients
    task = DataTask(data, clients, torch.nn.Identity)
    assert [task.examples(client) for client in range(3)] == [4, 4, 6]
    assert [len(task.own(client)) for client in range(3)] == [0, 0, 3]  # a client's test is that of its role


@pytest.mark.parametrize("place", ["all_data.json", "all_data/all_data.json", "data/all_data/all_data.json", "hub"])
def test_all_data_are_split_in_time(place: str, tmp_path: Path) -> None:
    users = {"B": speech(0, 500), "A": speech(1, 1), "C": speech(2, 100)}
    if place == "hub":
        rows = [(user, x, y) for user, (xs, ys) in users.items() for x, y in zip(xs, ys, strict=True)]
        names, x, y = zip(*rows, strict=True)
        pq.write_table(pa.table({"character_id": names, "x": x, "y": y}), tmp_path / "train.parquet")
    else:
        write_leaf(tmp_path / place, users)
    data = load("leaf-shakespeare", tmp_path, keep=False)
    train, test = texts(data, "train"), texts(data, "test")
    pairs = {user: [*zip(*both, strict=True)] for user, both in users.items()}
    for owner, user, end, begin in ((0, "A", 1, 1), (1, "B", 400, 479), (2, "C", 80, 100)):
        assert [row[1:] for row in train if row[0] == owner] == pairs[user][:end]
        assert [row[1:] for row in test if row[0] == owner] == pairs[user][begin:]
    assert len(test) == 21  # no window of these has a character that was in training


def test_femnist_in_leaf_s_format(tmp_path: Path) -> None:
    """LEAF divides bytes by 255: they come back exactly."""
    draw = np.random.default_rng(0)
    images = {user: draw.integers(0, 256, (6, 784)) for user in ("f1", "f0")}
    users = {user: ((held / 255).tolist(), list(range(10, 16))) for user, held in images.items()}
    write_leaf(tmp_path / "train/a.json", part(users, slice(0, 5)))
    write_leaf(tmp_path / "test/a.json", part(users, slice(5, 6)))
    data = load("femnist", tmp_path, keep=False)
    assert data.shape == (1, 28, 28) and data.classes == 62
    assert data.train.owners is not None and data.train.owners.tolist() == [1] * 5 + [0] * 5
    expected = np.concatenate([images["f1"][:5], images["f0"][:5]]).reshape(-1, 1, 28, 28)
    assert np.array_equal(data.train.inputs.numpy(), expected)
    assert data.train.targets.tolist() == [10, 11, 12, 13, 14] * 2 and data.test.targets.tolist() == [15, 15]
    for split in ("train", "test"):
        (tmp_path / split / "a.json").unlink()
    write_leaf(tmp_path / "all_data/a.json", users)
    whole = load("femnist", tmp_path, keep=False)  # nine tenths of each writer, as from the hub
    assert len(whole.train) == 10 and len(whole.test) == 2


def test_a_fifth_of_the_roles_is_the_same_for_the_same_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedFFT's setting on Shakespeare: 20 % of the devices, drawn at random."""
    users = {f"role{n:02}": speech(n, 15 + n) for n in range(25)}
    write_leaf(tmp_path / "leaf-shakespeare/train/a.json", part(users, slice(0, 10)))
    write_leaf(tmp_path / "leaf-shakespeare/test/a.json", part(users, slice(12, 100)))
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    values = {"data": "leaf-shakespeare", "partition": "natural,users=0.2", "cohort": 0.4, "rounds": 1}
    config = Config.build({**values, "local": {"batch_size": 100}, "output": {"lens_every": 0}})
    first, again, other = (prepare(config.model_copy(update={"seed": seed})) for seed in (0, 0, 1))
    assert first.partition is not None and again.partition is not None and other.partition is not None
    assert len(first.partition.clients) == 5 and (first.config.cohort, first.config.model) == (2, "lstm")
    assert first.partition.sha256 == again.partition.sha256 != other.partition.sha256
    train, test = first.data_task.dataset.train.owners, first.data_task.dataset.test.owners
    assert train is not None and test is not None
    drawn = {int(train[own[0]]) for own in first.partition.clients}
    assert set(test.tolist()) == drawn  # their tests only
    assert (
        len(test) == sum(3 + owner for owner in drawn) == sum(len(first.data_task.own(client)) for client in range(5))
    )
    outcome = start(config, tmp_path / "run", setup=first)
    assert outcome.summary["data"] == "Shakespeare (LEAF)" and 0 <= outcome.summary["accuracy"] <= 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a file of LEAF .JSONDecodeError"),
        ('{"users": ["a"]}', "it must have users and, in user_data, x and y of each"),
        ('{"users": ["a"], "user_data": {"a": {"x": [1], "y": []}}}', "user a has 1 inputs x and 0 targets y"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.5]], "y": [1]}}}', None),
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.5, 0.5]], "y": [1]}}}', "a list of side x side numbers"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[25]], "y": [1]}}}', r"numbers in \[0, 1\], got .*25"),
        ('{"users": [], "user_data": {}}', "has no examples; run LEAF's preprocess.sh again"),
    ],
)
def test_other_files_are_refused(content: str, message: str | None, tmp_path: Path) -> None:
    (tmp_path / "all_data.json").write_text(content)
    if message is None:
        assert load("femnist", tmp_path, keep=False).shape == (1, 1, 1)
        return
    with pytest.raises(DataError, match=message):
        load("femnist", tmp_path, keep=False)


def test_texts_and_places_that_are_not_leaf_s(tmp_path: Path) -> None:
    assert characters(["Ah", "ah"], 2, 2).tolist() == [[25, 60], [53, 60]]
    with pytest.raises(ValueError, match="every text must have 2 characters, got 3: 'abc'"):
        characters(["ab", "abc"], 2, 2)
    with pytest.raises(ValueError, match=r"'\$\u00e9' are not in LEAF's alphabet of 80 characters"):
        characters(["a$", "\u00e9a"], 2, 2)
    write_leaf(tmp_path / "train/a.json", {"a": speech(0, 2)})
    assert find_leaf(tmp_path, "train") and not find_leaf(tmp_path, "test")
    with pytest.raises(DataError, match=r"leaf-shakespeare was not found.*LEAF's train/.*json and test/.*json"):
        load("leaf-shakespeare", tmp_path)  # a training set alone is not taken for all data


def test_users_without_tests_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"a": speech(0, 3), "b": speech(1, 3)}
    write_leaf(tmp_path / "leaf-shakespeare/train/a.json", users)
    write_leaf(tmp_path / "leaf-shakespeare/test/a.json", {"a": speech(2, 3)})
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    found = set()
    for seed in range(8):
        config = Config.build({"data": "leaf-shakespeare", "partition": "natural,users=0.5", "seed": seed})
        try:
            found.add(len(prepare(config).data_task.dataset.test))
        except ConfigError as error:
            found.add(str(error))  # type: ignore[arg-type]
    assert found == {3, "natural(users=0.5): the users that were drawn have no test examples; draw more of them"}
    write_leaf(tmp_path / "leaf-shakespeare/test/a.json", {"others": speech(3, 5)})  # LEAF's split by user
    assert len(prepare(config).data_task.dataset.test) == 5
