"""Damaged files beside a run's checkpoints: each is named, with what to do; what no result needs is dropped."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.runs import Config, resume, start
from undrift.runs.folder.files import RunError, reading, same_init
from undrift.runs.folder.provenance import check_references
from undrift.runs.setup.custom_tasks import same_task
from undrift.util.storage.metrics import Metrics

TASK = {"task": "mine", "clients": 2, "sha256": {"data": "0" * 64}}
READ: dict[str, Callable[[Path], object]] = {
    "init.json": lambda folder: same_init(folder, {"init": "a.pt", "sha256": "0" * 64}),
    "references.json": check_references,
    "task.json": lambda folder: same_task(folder, TASK),
}


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"5", b'{"sha256": 5}', b"\xff\xfe"])
@pytest.mark.parametrize("name", READ)
def test_a_damaged_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    if (name, content) == ("references.json", b"{}"):
        return  # nothing is recorded
    with pytest.raises(RunError, match=rf"{name}: (damaged; restore the run's folder|init = 'a.pt' has changed)"):
        READ[name](tmp_path)


def test_a_task_of_another_kind_lacks_what_was_recorded(tmp_path: Path) -> None:
    same_task(tmp_path, {**TASK, "sha256": {"data": "0" * 64, "test data": "1" * 64}})
    with pytest.raises(RunError, match=r"it differs in its test data \(none instead of 111111111111\)"):
        same_task(tmp_path, TASK)


def test_only_what_cannot_be_read_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="on fire"), reading(tmp_path):
        raise OSError("on fire")


def test_a_damaged_row_is_named_or_dropped(tmp_path: Path) -> None:
    path = tmp_path / "lens.jsonl"
    path.write_text('{"round": 1}\n{"round": \n[2]\n{"loss": 1}\n{"round": 3}\n')
    with pytest.raises(ValueError, match=r"lens.jsonl, line 2: damaged; restore the file from a backup"):
        Metrics(path).rows()
    assert Metrics(path, needed=False).rows() == [{"round": 1}, {"round": 3}]


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("tiny")
def test_a_run_resumes_without_its_lens_and_names_its_partition(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise StopError

    settings = Config.build({**RUN, "rounds": 3, "output": {"lens_every": 1}})
    whole = start(settings, tmp_path / "whole")
    with suppress(StopError):
        start(settings, tmp_path / "run", stop)
    partition, lens = tmp_path / "run" / "partition.json", tmp_path / "run" / "lens.jsonl"
    before = partition.read_bytes()
    for content in (b"", b"{}"):
        partition.write_bytes(content)
        with pytest.raises(RunError, match=r"partition.json: damaged; restore the run's folder from a backup"):
            resume(tmp_path / "run")
    partition.write_bytes(before)
    lens.write_bytes(b"\x00\x00\n" + lens.read_bytes())
    assert resume(tmp_path / "run").sha256 == whole.sha256
    assert [row["round"] for row in Metrics(lens).rows()] == [1, 2, 3]
