"""Plug-ins by their entry points: found without an import, loaded by name, refused by name."""

import sys
from pathlib import Path

import pytest

from support.own import add_package, own_code_fixture, plugged_fixture  # noqa: F401
from undrift.util.naming.plugins import PluginGroup


@pytest.mark.quick
def test_names_are_found_without_an_import(plugged: Path) -> None:
    found = PluginGroup("undrift.models", ("cnn",))
    assert set(found.known()) == {"their-net", "thing"} and found.known()["thing"].package == "theirs"
    assert "their_parts" not in sys.modules
    net = found.find("Their_Net")
    assert net is not None and net.load().__name__ == "Net" and found.find("other") is None


def test_a_name_of_ours_and_a_name_of_two_packages_are_refused(plugged: Path) -> None:
    ours = PluginGroup("undrift.models", ("CNN",))
    assert ours.refused() == [
        "plug-in 'cnn' of theirs: undrift itself has this name; ask the package's authors for another"
    ]
    with pytest.raises(ValueError, match="plug-in 'cnn' of theirs: undrift itself has this name"):
        ours.find("cnn")
    add_package(plugged.parent / "more", "others", {"undrift.models": {"thing": "their_parts:Net"}})
    sys.path.append(str(plugged.parent / "more"))
    with pytest.raises(ValueError, match="others and theirs both have this name; uninstall one of them"):
        ours.find("thing")


def test_what_cannot_be_loaded_names_the_plug_in(plugged: Path) -> None:
    gone = PluginGroup("undrift.blocks").find("gone")
    assert gone is not None
    with pytest.raises(ValueError, match="plug-in 'gone' of theirs: their_missing:Block: no module is named"):
        gone.load()
    add_package(plugged.parent / "more", "others", {"undrift.models": {"module": "their_parts"}})
    sys.path.append(str(plugged.parent / "more"))
    module = PluginGroup("undrift.models").find("module")
    assert module is not None
    with pytest.raises(ValueError, match=r"must be written package\.module:object, got 'their_parts'"):
        module.load()
