"""Partitions: true ones where they say so, one text for each, and the same bits for a seed."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.data.partitions.draw import (
    SCHEMES,
    Partition,
    canonical_text,
    from_flower,
    identity_text,
    parse,
    partition,
)
from undrift.data.partitions.schemes import Scheme

CIFAR = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
FASHION = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 6000))
TRUE = [
    "iid",
    "dirichlet(0.3)",
    "dirichlet(0.3, balance=False)",
    "dirichlet(0.02, min_size=0)",
    "dirichlet-client(0.1)",
    "dirichlet-client(0.01, remainder=True)",
    "classes(2)",
    "classes(7)",
    "quantity(0.5)",
    "corrupt",
]
GOLDEN = {
    "iid": "0433734709d8a7ae",
    "dirichlet(0.3)": "07eb8e6e2dfcc865",
    "dirichlet-client(0.1)": "2a31281a10fc9b96",
    "dirichlet-client(0.1, refill=True)": "0f44743de8abfb66",
    "classes(2)": "add10e68465c095a",
    "longtail(10, over=dirichlet(0.5))": "d82b92726d04c54a",
    "natural(min_size=90, fraction=0.5)": "d6215cb1c9e7b9de",
}


@pytest.mark.quick
@pytest.mark.parametrize("scheme", TRUE)
def test_every_sample_has_one_client(scheme: str) -> None:
    p = partition(scheme, CIFAR, clients=50, seed=3)
    assert np.array_equal(np.sort(np.concatenate(p.clients)), np.arange(50_000))
    assert p.disjoint and p.covers and p.describe()["dropped"] == 0
    assert np.array_equal(p.histogram.sum(axis=0), np.bincount(CIFAR))
    assert np.array_equal(p.histogram.sum(axis=1), p.sizes)
    assert all(own.dtype == np.int64 and np.all(np.diff(own) > 0) for own in p.clients)
    for own, row in zip(p.clients[:5], p.histogram[:5], strict=True):
        assert np.array_equal(np.bincount(CIFAR[own], minlength=10), row)


@given(
    labels=st.lists(st.integers(0, 6), min_size=40, max_size=200),
    clients=st.integers(1, 40),
    scheme=st.sampled_from(["iid", "dirichlet(0.2, min_size=0)", "dirichlet-client(0.05, remainder=True)"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_any_labels_are_dealt_once(labels: list[int], clients: int, scheme: str, seed: int) -> None:
    p = partition(scheme, labels, clients, seed)
    assert len(p.clients) == clients and p.disjoint and p.covers
    assert np.array_equal(p.histogram.sum(axis=0), np.bincount(labels))


def test_a_seed_fixes_the_partition() -> None:
    first, again, other = (partition("dirichlet(0.3)", CIFAR, 50, seed) for seed in (1, 1, 2))
    assert first.sha256 == again.sha256 != other.sha256
    one, two = np.arange(3), np.arange(3, 6)
    labels = np.zeros(6, np.int64)
    hashes = {
        Partition(clients, labels, "iid", 0).sha256
        for clients in [(one, two), (two, one), (np.arange(6),), (np.arange(2), np.arange(2, 6)), (one, two, one[:0])]
    }
    assert len(hashes) == 5
    assert partition("corrupt(over=classes(2))", CIFAR, 50).sha256 == partition("classes(2)", CIFAR, 50).sha256


@pytest.mark.parametrize("scheme", GOLDEN)
def test_partitions_never_change(scheme: str) -> None:
    labels, owners = np.arange(3000) % 10, np.arange(3000) % 37 // 2
    clients = None if scheme.startswith("natural") else 20
    assert partition(scheme, labels, clients, seed=7, owners=owners).sha256[:16] == GOLDEN[scheme]


@pytest.mark.parametrize(
    "text",
    [
        *TRUE,
        *GOLDEN,
        "dirichlet(0.1, min_size=1, balance=False)",
        "corrupt(over=longtail(100, over=dirichlet(0.1, min_size=0)))",
        "natural(users=0.2)",
        "dirichlet(1e-05)",
    ],
)
def test_a_canonical_text_reads_back_as_itself(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


def test_texts_are_tidied() -> None:
    assert str(parse(" dirichlet ( 0.10, min_size = 10 , balance=false ) ")) == "dirichlet(0.1, balance=False)"
    assert str(parse("longtail(100.0, over=iid)")) == "longtail(100)"
    assert partition(parse("classes(2)"), CIFAR, 10).scheme == "classes(2)"
    assert set(SCHEMES) >= {"iid", "dirichlet", "dirichlet-client", "classes", "natural", "longtail", "corrupt"}


@pytest.mark.parametrize(
    ("short", "text"),
    [
        ("dirichlet:0.1", "dirichlet(0.1)"),
        (" dirichlet : 0.10, min_size = 10 , balance=FALSE ", "dirichlet(0.1, balance=False)"),
        (
            "corrupt,severity=2,over=longtail:100,over=dirichlet:1,min_size=0",
            "corrupt(over=longtail(100, over=dirichlet(1, min_size=0)), severity=2)",
        ),
        ("natural,users=0.2", "natural(users=0.2)"),
        ("column:my site,split=2", "column('my site', split=2)"),
        ("file:a, b.json", "file('a, b.json')"),
        ("mine:split,share=0.5,mode=red", "mine:split(mode='red', share=0.5)"),
    ],
)
def test_the_short_form_names_the_same_scheme(short: str, text: str) -> None:
    assert str(parse(short)) == text and parse(text) == parse(short)


def test_what_runs_record_of_a_partition_does_not_depend_on_the_form() -> None:
    for short in ("dirichlet:0.1", "natural,users=0.2", "column:my site", "corrupt,types=all,over=dirichlet:0.1"):
        text = canonical_text(short)
        assert text == str(parse(short)) and identity_text(short) == identity_text(text) == short
    assert canonical_text("dirichlet:0.10") == identity_text("dirichlet:0.10") == "dirichlet:0.10"  # as it was recorded
    for text in ("mine:split(mode='a,b=1')", "mine:split(widths=(1, 2))", "column('a,split=2')", "file(' a')"):
        assert identity_text(text) == text  # the short form cannot have these


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichlt:1", "no scheme is named 'dirichlt'; did you mean 'dirichlet'?"),
        ("?", "'?': cannot be read from '?' on"),
        ("dirichlet", "'dirichlet': missing a required argument: 'alpha'; it takes alpha: float"),
        ("iid:3", "'iid:3': too many positional arguments; it takes no arguments"),
        ("dirichlet:nan", "dirichlet: alpha must be between 1e-06 and 1000000000, got nan"),
        ("dirichlet-client:0", "dirichlet-client: alpha must be between 1e-06 and 1000000000, got 0"),
        ("dirichlet:-1", "got -1"),
        ("dirichlet:inf", "got inf"),
        ("dirichlet:x", "'dirichlet:x': alpha must be a number, got 'x'"),
        ("dirichlet:1,min_size=-1", "min_size must be between 0 and inf, got -1"),
        ("dirichlet:1,min_sise=3", "unexpected keyword argument 'min_sise'; it takes alpha: float, min_size: int = 10"),
        ("dirichlet:1,alpha=3", "multiple values for argument 'alpha'"),
        ("dirichlet:1,min_size=1,min_size=2", "min_size is named twice; name it once"),
        ("dirichlet:1,balance=yes", "balance must be true or false, got 'yes'"),
        ("iid,a=3", "unexpected keyword argument 'a'; it takes no arguments"),
        ("iid,over=iid", "unexpected keyword argument 'over'; it takes no arguments"),
        ("classes:2.5", "'classes:2.5': count must be a whole number, got 2.5"),
        ("dirichlet:1,balance", "'balance' is not a setting; write key=value"),
        ("classes:0", "classes: count must be between 1 and inf, got 0"),
        ("classes(11)", "classes: count must be at most the 10 classes there are, got 11"),
        ("longtail:0.5", "longtail: factor must be between 1 and 1000000000, got 0.5"),
        ("longtail(5001)", "longtail: factor must be at most the 5000 samples of the first class"),
        ("longtail:100,over=corrupt", "longtail: over=corrupt is not possible"),
        ("corrupt,over=corrupt", "corrupt: over=corrupt is not possible"),
        ("natural", "natural: the data name no owners; pass owners="),
        ("natural,fraction=0", "natural: fraction must be between 1e-09 and 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        partition(text, CIFAR, clients=100)


def test_odd_arguments_are_refused() -> None:
    for clients in (0, -1, 50_001):
        with pytest.raises(ValueError, match=f"iid: clients must be between 1 and the 50000 samples, got {clients}"):
            partition("iid", CIFAR, clients)
    with pytest.raises(ValueError, match="iid: the number of clients is missing"):
        partition("iid", CIFAR)
    with pytest.raises(TypeError, match=r"clients must be a whole number, got 2\.5"):
        partition("iid", CIFAR, 2.5)  # type: ignore[arg-type]
    for labels in ([], [-1, 0], [[0, 1]]):
        with pytest.raises(ValueError, match="labels must be one whole number from 0 for each sample"):
            partition("iid", labels, 1)
    with pytest.raises(ValueError, match="owners must name one for each of 3 samples"):
        partition("natural", [0, 1, 2], owners=["a"])
    with pytest.raises(ValueError, match="the data have 3 such owners, got clients=2; leave it out"):
        partition("natural", [0, 1, 2], clients=2, owners=["a", "b", "c"])
    with pytest.raises(ValueError, match="the largest of 3 owners has 1 samples; lower min_size"):
        partition("natural(min_size=2)", [0, 1, 2], owners=["a", "b", "c"])
    with pytest.raises(ValueError, match="class 1 has 1 samples for 3 clients"):
        partition("classes(2)", [0, 0, 0, 1], clients=3)
    with pytest.raises(NotImplementedError):
        Scheme().deal(CIFAR, None, 1, np.random.default_rng(0))


def test_description_is_flat() -> None:
    p = partition("classes(2)", CIFAR, clients=100, seed=4)
    found = p.describe()
    assert found == {
        "scheme": "classes(2)",
        "seed": 4,
        "clients": 100,
        "samples": 50_000,
        "dropped": 0,
        "shared": 0,
        "size_min": 500,
        "size_median": 500.0,
        "size_max": 500,
        "classes_mean": 2.0,
        "skew": pytest.approx(0.8),
        "sha256": p.sha256,
    }
    assert "scheme=classes(2)" in repr(p) and not p.corrupted and partition("corrupt", CIFAR, 10).corrupted


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_partitioners_of_flower_are_accepted() -> None:
    theirs = pytest.importorskip("flwr_datasets.partitioner")
    labels = np.arange(1000) % 10
    p = from_flower(theirs.IidPartitioner(7), labels)
    assert p.disjoint and p.covers and p.scheme == "flower:IidPartitioner" and p.seed is None
    assert p.clients[0].tolist() == list(range(143))
    skewed = theirs.DirichletPartitioner(5, "kind", alpha=0.5, min_partition_size=5, seed=3)
    p = from_flower(skewed, labels, {"kind": labels})
    assert p.disjoint and p.covers and p.describe()["skew"] > 0.2  # type: ignore[operator]
    own = theirs.NaturalIdPartitioner("who")
    assert len(from_flower(own, labels, {"who": np.arange(1000) // 100}).clients) == 10
    assert from_flower(own, labels).sizes.tolist() == [100] * 10  # it keeps its dataset
    with pytest.raises(ValueError, match="numbers samples up to 999, but there are 10 labels"):
        from_flower(own, labels[:10])
    with pytest.raises(ValueError, match="the dataset of NaturalIdPartitioner has no column 'row'"):
        from_flower(own, labels, index="row")
