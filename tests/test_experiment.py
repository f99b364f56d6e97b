"""`undrift.experiment`, the former name of `undrift.runs` and `undrift.studies`: its names work, with a warning."""

import importlib

import pytest

from undrift import experiment, runs, studies


@pytest.mark.parametrize("name", sorted(experiment._MOVED))
def test_a_former_name_is_the_new_one(name: str) -> None:
    package = experiment._MOVED[name]
    with pytest.warns(DeprecationWarning, match=rf"undrift\.experiment\.{name} is now undrift\.{package}\.{name}"):
        found = getattr(experiment, name)
    assert found is getattr({"runs": runs, "studies": studies}[package], name)


def test_an_import_by_name_warns_where_it_stands() -> None:
    with pytest.warns(DeprecationWarning, match="version 0.4") as seen:
        exec("from undrift.experiment import start", {"__name__": "theirs"})
    assert seen[0].filename == "<string>"
    importlib.import_module("undrift.experiment")  # the module alone warns of nothing


def test_unknown_names_are_answered_with_the_new_packages() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'begin'; see undrift\.runs and undrift\.studies"):
        _ = experiment.begin
