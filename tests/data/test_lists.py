"""Partitions of one's own: lists, files, columns and functions."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from undrift.data import partition
from undrift.data.partitions.draw import parse
from undrift.data.partitions.from_lists import check_lists

LABELS = np.arange(60) % 3
FUNCTIONS = """
import numpy as np

def split(labels, clients, seed, share=1.0):
    order = np.random.default_rng(seed).permutation(len(labels))[: int(share * len(labels))]
    return np.array_split(order, clients)

def pairs(owners):
    return {str(name): np.flatnonzero(owners == name) for name in np.unique(owners)}

def bad(labels):
    return [[0, 60]]

number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_parts.py").write_text(FUNCTIONS)
    return tmp_path


def test_lists_arrays_tensors_and_mappings() -> None:
    wanted = [[0, 2, 4], [1, 3]]
    for lists in (
        [[4, 2, 0], [3, 1]],
        [np.array([0, 4, 2]), (1, 3)],
        [torch.tensor([0, 2, 4]), np.array([1, 3], "u1")],
    ):
        assert [own.tolist() for own in partition(lists, LABELS).clients] == wanted  # type: ignore[arg-type]
    dealt = partition({"b": [0, 2, 4], "a": [1, 3]}, LABELS)
    assert [own.tolist() for own in dealt.clients] == wanted  # in the order of the mapping
    assert dealt.describe()["dropped"] == 55 and dealt.histogram.tolist() == [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[0], [1], [2], [3, 648]], r"clients\[3\]: index 648, but there are 60 examples"),
        ([[0], [-1]], r"clients\[1\]: index -1, but there are 60 examples"),
        ([[0], [5, 7, 5]], r"clients\[1\]: index 5 is given twice"),
        ([[0], []], r"clients\[1\]: it has no indices"),
        ([[0], [1, 2.5]], r"clients\[1\]: indices must be whole numbers, got 2.5"),
        ([[0], [True, False]], r"clients\[1\]: indices must be whole numbers, got True"),
        ([[0], ["a"]], r"clients\[1\]: indices must be whole numbers, got 'a'"),
        ([[0], "12"], r"clients\[1\]: a list of indices is needed, got '12'"),
        ([[0], 3], r"clients\[1\]: a list of indices is needed, got 3"),
        ({"berlin": [70]}, r"clients\['berlin'\]: index 70, but there are 60 examples"),
        ([], "one list of indices for each client"),
        (np.arange(4), r"clients\[0\]: a list of indices is needed"),
    ],
)
def test_wrong_lists_are_refused_with_client_and_value(lists: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_lists(lists, 60)


def test_a_file(here: Path) -> None:
    (here / "my clients.json").write_text(json.dumps([[0, 1], [2, 5]]))
    dealt = partition("file:my clients.json", LABELS, seed=4)
    assert [own.tolist() for own in dealt.clients] == [[0, 1], [2, 5]] and dealt.scheme == "file('my clients.json')"
    assert str(parse(dealt.scheme)) == dealt.scheme and parse(dealt.scheme).inner.fixed
    shifted = partition("corrupt, severity=2, over=file:my clients.json", LABELS)
    assert shifted.sha256 == dealt.sha256 and shifted.corruption is not None
    with pytest.raises(
        ValueError, match=r"file\('my clients.json'\): it has lists of 2 clients, got clients=3; leave it out"
    ):
        partition("file:my clients.json", LABELS, clients=3)
    (here / "my clients.json").write_text(json.dumps({"a": [0, 99]}))
    with pytest.raises(
        ValueError, match=r"file\('my clients.json'\): clients\['a'\]: index 99, but there are 60 examples"
    ):
        partition("file:my clients.json", LABELS)
    (here / "my clients.json").write_text("a,b")
    with pytest.raises(ValueError, match="not a JSON file"):
        partition("file:my clients.json", LABELS)
    with pytest.raises(ValueError, match=f"No such file or directory; a relative path is that .* {here}"):
        partition("file:none.json", LABELS)
    with pytest.raises(ValueError, match=r"longtail: over=file\('x.json'\) is not possible"):
        parse("longtail:10,over=file:x.json")
    with pytest.raises(ValueError, match="missing a required argument: 'path'"):
        parse("file")


def test_a_column_is_natural_with_a_name() -> None:
    owners = np.array(["b", "a", "c"])[np.arange(60) % 3]
    dealt, own = partition("column:site id", LABELS, owners=owners), partition("natural", LABELS, owners=owners)
    assert dealt.sha256 == own.sha256 and dealt.scheme == "column('site id')"
    assert partition("column:site id, split=2", LABELS, owners=owners).scheme == "column('site id', split=2)"
    assert parse("column:7") == parse(" column: 7")
    with pytest.raises(ValueError, match="column: the column with each example's client is missing"):
        parse("column:")


@pytest.mark.quick
def test_a_function(here: Path) -> None:
    dealt = partition("own_parts:split,share=0.5", LABELS, clients=4, seed=3)
    assert len(dealt.clients) == 4 and dealt.sizes.sum() == 30 and dealt.scheme == "own_parts:split(share=0.5)"
    again = np.random.default_rng(3).permutation(60)[:30]  # it is called with the seed of the run
    assert [own.tolist() for own in dealt.clients] == [sorted(own.tolist()) for own in np.array_split(again, 4)]
    assert not parse("own_parts:split").inner.fixed and parse("own_parts:pairs").inner.fixed
    assert parse("corrupt(over=own_parts:pairs)").inner == parse("own_parts:pairs")
    owners = np.arange(60) // 20
    assert partition("own_parts:pairs", LABELS, owners=owners).sizes.tolist() == [20, 20, 20]
    for text, message in (
        ("own_parts:bad", r"own_parts:bad: clients\[0\]: index 60, but there are 60 examples"),
        ("own_parts:splt", "has no 'splt'; did you mean 'split'"),
        ("own_parts:number", "must be a function"),
        ("own_parts:split,shre=2", "the function has no argument 'shre'; it takes labels, clients, seed, share"),
        ("own_parts:split,seed=2", "seed is given by the run"),
        ("no_parts:split", "no module is named 'no_parts'"),
        ("iidd", "no scheme is named 'iidd'; did you mean 'iid'"),
        ("dirichlt:0.1", "no scheme is named 'dirichlt'"),
    ):
        with pytest.raises(ValueError, match=message):
            partition(text, LABELS, clients=4)


def test_numbers_as_targets(here: Path) -> None:
    targets = np.linspace(0, 1, 60)
    for given in (targets, np.stack([targets, targets], axis=1)):
        dealt = partition("iid", given, clients=3)
        assert dealt.sizes.tolist() == [20, 20, 20] and dealt.histogram.tolist() == [[20], [20], [20]]
        assert dealt.describe()["skew"] is None and dealt.describe()["classes_mean"] is None
        assert partition("own_parts:split", given, clients=3).sizes.sum() == 60
        for text in ("dirichlet:0.1", "dirichlet-client:1", "classes:2", "longtail:2", "corrupt,over=dirichlet:1"):
            with pytest.raises(
                ValueError, match="it distributes classes, and these targets are numbers; use iid, column"
            ):
                partition(text, given, clients=3)
