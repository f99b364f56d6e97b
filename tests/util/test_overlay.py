"""A mapping whose versions share most of their entries is a dictionary to its readers."""

from random import Random

from undrift.util.overlay import Overlay


def test_versions_are_those_of_a_dictionary() -> None:
    random, plain, found = Random(3), dict[int, int](), Overlay[int, int]({})
    versions = []
    for step in range(400):
        new = {random.randrange(300): step for _ in range(1 + step % 3)}
        plain, found = {**plain, **new}, found.updated(new)
        versions.append((plain, found))
    for expected, version in versions:
        assert version == expected and expected == version and list(version) == list(expected)
        assert len(version) == len(expected) and {**version} == expected
        assert [version.get(key) for key in range(300)] == [expected.get(key) for key in range(300)]
        assert [key in version for key in range(300)] == [key in expected for key in range(300)]


def test_a_version_copies_few_entries() -> None:
    first = Overlay(dict.fromkeys(range(10_000), 0))
    second = first.updated({1: 1})
    assert second._most is first._most and len(second._own) == 1
    assert Overlay.of(second) is second and repr(Overlay({1: 2})) == "Overlay({1: 2})"
    assert not first.updated(dict.fromkeys(range(200), 1))._own, "many are merged"
