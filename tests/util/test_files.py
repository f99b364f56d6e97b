"""Atomic writing: whole or not at all, with the permissions and the durability asked for."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from undrift.util.storage import files
from undrift.util.storage.files import StorageError, delete_temporary, make_private, replacing, sync_folder, write


@pytest.mark.quick
def test_a_file_is_replaced_with_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, "one")
    assert path.stat().st_mode & 0o777 == 0o600
    before = os.umask(0o022)
    try:
        write(path, b"two", mode=0o666)
    finally:
        os.umask(before)
    assert path.read_text() == "two" and path.stat().st_mode & 0o777 == 0o644
    assert [item.name for item in tmp_path.iterdir()] == ["a"]


def test_only_what_is_asked_for_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(files.os, "fsync", synced.append)
    write(tmp_path / "a", "x", sync=False)
    assert not synced
    write(tmp_path / "a", "x")
    assert len(synced) == 2, "the file and its folder"
    sync_folder(tmp_path)
    assert len(synced) == 3


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    write(tmp_path / "a", "old")
    for make in (Path.mkdir, Path.touch):
        with suppress(KeyboardInterrupt), replacing(tmp_path / "a") as temporary:
            make(temporary)
            raise KeyboardInterrupt
        assert [item.name for item in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_text() == "old"


def test_a_folder_takes_a_free_or_empty_place_only(tmp_path: Path) -> None:
    for _ in range(2):
        with replacing(tmp_path / "b") as temporary:
            temporary.mkdir()
    (tmp_path / "b" / "kept").touch()
    with pytest.raises(OSError, match="not empty"), replacing(tmp_path / "b") as temporary:
        temporary.mkdir()
    assert [item.name for item in tmp_path.iterdir()] == ["b"] and (tmp_path / "b" / "kept").exists()


def test_what_a_kill_leaves_is_told_by_its_name(tmp_path: Path) -> None:
    delete_temporary(tmp_path / "missing")
    (tmp_path / "kept").touch()
    (tmp_path / ".kept.new").touch()
    (tmp_path / ".kept.0123456789ab.new").symlink_to(tmp_path / "kept")
    (tmp_path / ".folder.0123456789ab.new" / "deep").mkdir(parents=True)
    delete_temporary(tmp_path)
    assert sorted(item.name for item in tmp_path.iterdir()) == [".kept.new", "kept"]


@pytest.mark.parametrize("inside", ["", "sub"])
def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path, inside: str) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(StorageError, match="taken: cannot be written: File exists; a file of this name is in the way"):
        make_private(tmp_path / "taken" / inside)
