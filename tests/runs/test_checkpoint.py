"""R6, R7: a damaged checkpoint is refused by name and the one before is used; a failed write leaves it whole."""

import errno
import json
import os
import random
import shutil
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from faults.figures import record
from undrift import Simulation, make
from undrift.runs.folder.audit import Audit, read_log
from undrift.runs.folder.checkpoint import CheckpointError, Checkpoints
from undrift.runs.folder.signature import AuditError
from undrift.testing import Clinic, fingerprint
from undrift.util.storage import files
from undrift.util.storage.metrics import Metrics

SCAFFOLD = make("scaffold")


@pytest.fixture(scope="module")
def states() -> Any:
    simulation = Simulation(SCAFFOLD, Clinic(), cohort=4)
    return [state for state, _ in simulation.rounds(3)]


@pytest.fixture
def kept(tmp_path: Path, states: Any) -> Checkpoints:
    kept = Checkpoints(tmp_path / "checkpoints", SCAFFOLD, len(states[0].params), "this run", keep=2)
    for state in states:
        kept.save(state)
    return kept


def test_the_last_ones_are_kept_and_come_back_whole(kept: Checkpoints, states: Any) -> None:
    assert kept.rounds() == [2, 3]
    assert fingerprint(kept.latest()) == fingerprint(states[2])  # type: ignore[arg-type]
    assert fingerprint(kept.load(2)) == fingerprint(states[1])
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept.folder.iterdir())


def damaged(kept: Checkpoints, states: Any, change: Any) -> str:
    """Damage the newest checkpoint; the one before must be used. Gives the complaint."""
    result: list[CheckpointError] = []
    change(kept.folder / "0000003.safetensors", kept.folder / "0000003.json")
    assert fingerprint(kept.latest(result.append)) == fingerprint(states[1])  # type: ignore[arg-type]
    (error,) = result
    assert str(kept.folder) in str(error)
    return str(error)


@pytest.mark.parametrize(("flips", "size"), [(100, 0), pytest.param(1000, 250_000, marks=pytest.mark.slow)])
def test_every_truncation_and_flip_is_refused(flips: int, size: int, kept: Checkpoints, states: Any) -> None:
    """200 in the usual tests; 1,000 flips, and every 4 KiB of a file of two megabytes, in the slow one."""
    if size:
        states = [_larger(state, size) for state in states]
        kept = Checkpoints(kept.folder.parent / "large", SCAFFOLD, size, "this run", keep=2)
        for state in states:
            kept.save(state)
    draw = random.Random(0)
    for name in ("0000003.safetensors", "0000003.json"):
        path = kept.folder / name
        data = path.read_bytes()
        cuts = [*range(0, len(data), max(1, min(4096, len(data) // 20))), len(data) - 1]
        for cut in cuts:
            damaged(kept, states, lambda *_, cut=cut, path=path, data=data: path.write_bytes(data[:cut]))
        same = 0
        for _ in range(flips):
            flipped = bytearray(data)
            flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            if name.endswith("json") and _same_json(flipped, data):  # type: ignore[arg-type]
                same += 1
                continue  # another spelling of the same manifest
            damaged(kept, states, lambda *_, path=path, flipped=flipped: path.write_bytes(flipped))
        path.write_bytes(bytes(len(data)))
        damaged(kept, states, lambda *_: None)
        path.write_bytes(data)
        facts = {
            "bytes": len(data),
            "flips": flips - same,
            "truncations": len(cuts),
            "loaded": 0,
        }  # each of them was refused
        record("R6", f"{'state' if name.endswith('safetensors') else 'manifest'} of {size} parameters", **facts)


def _larger(state: Any, size: int) -> Any:
    """The state of a model with more parameters."""
    parts = {slot: type(tree)(*(x.repeat(size)[:size] for x in tree)) for slot, tree in state.parts.items()}
    return replace(state, params=state.params.repeat(size)[:size], parts=parts)


def _same_json(left: bytes, right: bytes) -> bool:
    try:
        return bool(json.loads(left) == json.loads(right))
    except ValueError:
        return False


def test_what_does_not_belong_is_refused(kept: Checkpoints, states: Any) -> None:
    state, manifest = kept.folder / "0000003.safetensors", kept.folder / "0000003.json"
    good = state.read_bytes(), manifest.read_bytes()

    def check(change: Any, message: str) -> None:
        assert message in damaged(kept, states, change)
        state.write_bytes(good[0])
        manifest.write_bytes(good[1])

    check(lambda s, m: s.unlink(), "cannot be read: No such file")
    check(lambda s, m: s.write_bytes(b""), "damaged: it is not what 0000003.json describes")
    check(lambda s, m: m.write_bytes(b""), "0000003.json: damaged: it is not a manifest")
    check(lambda s, m: m.write_text("[" * 100_000), "0000003.json: damaged: it is not a manifest")
    check(lambda s, m: shutil.copy(m.with_name("0000002.json"), m), "describes round 2, not 3")
    check(lambda s, m: shutil.copy(s.with_name("0000002.safetensors"), s), "not what 0000003.json describes")
    other = Checkpoints(kept.folder.parent / "other", SCAFFOLD, kept.size, "another run")
    other.save(states[2])
    check(lambda s, m: shutil.copy(other.folder / m.name, m), "belongs to another run")
    for round in (2, 3):
        (kept.folder / f"000000{round}.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"0000002.json: damaged: it is not a manifest"):
        kept.latest()


def test_a_newer_format_is_refused(kept: Checkpoints, states: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.runs.folder.checkpoint.FORMAT", 2)
    kept.save(states[2])
    monkeypatch.undo()
    assert "format 2, this version reads 1" in damaged(kept, states, lambda *_: None)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_last_one(
    kept: Any, states: Any, call: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(OSError, match=os.strerror(code)):
        kept.save(states[2])
    monkeypatch.undo()
    assert fingerprint(kept.latest()) in (fingerprint(states[1]), fingerprint(states[2]))
    assert not list(kept.folder.glob("*.new"))


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "new", SCAFFOLD, 3, "run").latest() is None


# The audit log and the rows


def test_the_log_is_chained_and_survives_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    Audit(path).write("start", note="one\nline\x1b[31m")
    with open(path, "ab") as file:
        file.write(b'{"time": 1, "ev')  # a crash in the middle of a line
    audit = Audit(path)
    audit.write("resume", round=3)
    assert len(read_log(path).hashes) == 2
    lines = path.read_text().splitlines()
    assert len(lines) == 2 and "\x1b" not in lines[0]
    for broken in (lines[::-1], lines[1:], [lines[0].replace("start", "begin"), lines[1]], [lines[0], "x"]):
        path.write_text("\n".join(broken) + "\n")
        with pytest.raises(AuditError, match=r"audit.jsonl, line \d"):
            read_log(path)


def test_rows_are_rewound_and_become_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    metrics = Metrics(tmp_path / "metrics.jsonl")
    assert metrics.rows() == []
    for round in range(1, 5):
        metrics.append({"round": round, "loss": round / 2, **({} if round % 2 else {"accuracy": 0.5})})
    with open(metrics.path, "ab") as file:
        file.write(b'{"round": 5')
    assert len(metrics.rows()) == 4
    metrics.rewind(2)
    assert [row["round"] for row in metrics.rows()] == [1, 2]
    table = pq.read_table(BytesIO(metrics.parquet())).to_pydict()
    assert table == {"round": [1, 2], "loss": [0.5, 1.0], "accuracy": [None, 0.5]}
