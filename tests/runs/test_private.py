"""S6, S13: a run's files are its owner's only, links are never followed, and no name leads out of its folder."""

import os
import random
import shutil
import stat
import string
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.own_tasks import SETTINGS, lines
from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import Simulation, make
from undrift.cli import app
from undrift.cli.training.run import slug
from undrift.core.records.types import ClientState
from undrift.core.server.wire import fingerprint
from undrift.engine.flower.records import check_name
from undrift.engine.stores.store import DiskStore
from undrift.runs import Config, resume, start
from undrift.runs.folder.checkpoint import CheckpointError, Checkpoints, kept_rounds
from undrift.runs.folder.files import RunError
from undrift.runs.reading.open_checkpoint import look
from undrift.studies import Comparison, compare
from undrift.studies.compare import check_folder_name
from undrift.studies.tune import Tuning, tune
from undrift.testing import Clinic
from undrift.util.storage.files import StorageError, append, delete, make_private, read, write

SCAFFOLD = make("scaffold")


@contextmanager
def umask(value: int) -> Any:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """What is not 0600, or 0700 for folders."""
    found = {path: path.lstat().st_mode for path in (root, *root.rglob("*"))}
    return {
        str(path.relative_to(root)): oct(mode)
        for path, mode in found.items()
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)
    }


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_everything_is_the_owners_only(mask: int, tmp_path: Path) -> None:
    """A run with clients' states, its best round, lens and report; a comparison and a tuning."""
    base = {**RUN, "model": "mlp", "rounds": 1}
    with umask(mask):
        output = {"keep_best": True, "lens_every": 1, "lens_clients": 2}
        folder = start(Config.build({**base, "method": "scaffold", "output": output}), tmp_path / "a" / "run").folder
        look(folder, clients=2, parts=["divergence"])
        look(folder, clients=2, parts=["divergence"], round=1)
        result = CliRunner().invoke(app, ["report", str(folder), "--out", str(folder / "report.html")])
        assert result.exit_code == 0, result.output
        compare(
            Comparison.build({"base": base, "methods": [{"method": "fedavg"}], "seeds": [0]}),
            tmp_path / "b" / "comparison",
        )
        tune(Tuning.build({"method": "fedavg", "grid": {"lr": [0.1, 1]}, "widenings": 0, "base": base}), tmp_path / "c")
    there = {path.name for path in folder.rglob("*")}
    assert {"report.html", "lens.json", "lens.jsonl", "metrics.parquet", "lock", "audit.jsonl", "lens", "best"} <= there
    assert any((folder / "clients").rglob("*")) and any((folder / "best").glob("clients-*/*"))
    assert not {name: modes(tmp_path / name) for name in "abc" if modes(tmp_path / name)}


def test_what_is_asked_for_outside_follows_the_umask(tmp_path: Path) -> None:
    """An exported model is made to be given away."""
    folder = start(task=lines(name="lines"), folder=tmp_path / "run", **{**SETTINGS, "rounds": 1}).folder
    with umask(0o022):
        result = CliRunner().invoke(app, ["export", str(folder), "--out", str(tmp_path / "model.safetensors")])
    assert result.exit_code == 0 and stat.S_IMODE((tmp_path / "model.safetensors").stat().st_mode) == 0o644


# Links


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() and not path.is_symlink() else b"")
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = {"keep_best": True, "lens_every": 0}
    settings = {**SETTINGS, "method": "scaffold", "rounds": 2, "output": output}
    return start(task=lines(name="lines"), folder=tmp_path_factory.mktemp("links") / "run", **settings).folder


NAMES = ["checkpoints", "clients", "best", "metrics.jsonl", "audit.jsonl", "summary.json", "config.toml", "lock"]


@pytest.mark.parametrize("name", [*NAMES, "model.safetensors", "metrics.parquet", "clients.json", "environment.json"])
def test_a_link_in_a_run_is_refused(name: str, ended: Path, tmp_path: Path) -> None:
    run, outside = Path(shutil.copytree(ended, tmp_path / "run")), tmp_path / "outside"
    shutil.move(run / name, outside)
    (run / name).symlink_to(outside)
    before = snapshot(tmp_path)
    with pytest.raises(RunError, match=f"run/{name}: it is a symbolic link, which is not followed; put the file"):
        resume(run, rounds=3, task=lines(name="lines"))
    assert snapshot(tmp_path) == before


def test_a_run_behind_a_link_is_refused(ended: Path, tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(ended)
    before = snapshot(ended)
    with pytest.raises(RunError, match="run: it is a symbolic link, which is not followed; put the run itself there"):
        resume(tmp_path / "run", rounds=3, task=lines(name="lines"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "new").symlink_to(tmp_path / "empty")
    with pytest.raises(RunError, match="new exists and is not a run"):
        start(task=lines(name="lines"), folder=tmp_path / "new", **SETTINGS)
    assert snapshot(ended) == before and not any((tmp_path / "empty").iterdir())


@pytest.fixture(scope="module")
def state() -> Any:
    return Simulation(SCAFFOLD, Clinic(), cohort=4).run(1)


def test_a_checkpoint_behind_a_link_is_refused(state: Any, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "checkpoints", SCAFFOLD, len(state.params), "run")
    kept.save(state)
    for name, what in (("0000001.safetensors", "cannot be read"), ("0000001.json", "cannot be read")):
        shutil.move(kept.folder / name, tmp_path / name)
        (kept.folder / name).symlink_to(tmp_path / name)
        with pytest.raises(CheckpointError, match=f"{name}: {what}: it is a symbolic link"):
            kept.load(1)
        (kept.folder / name).unlink()
        shutil.move(tmp_path / name, kept.folder / name)
    os.mkfifo(kept.folder / "0000002.json")
    with pytest.raises(CheckpointError, match=r"0000002.json: cannot be read: it is not an ordinary file"):
        kept.load(2)
    (tmp_path / "other").symlink_to(kept.folder)
    with pytest.raises(CheckpointError, match="other: it is a symbolic link, which is not followed"):
        Checkpoints(tmp_path / "other", SCAFFOLD, len(state.params), "run")


def test_a_folder_swapped_for_a_link_is_never_written_to(state: Any, tmp_path: Path) -> None:
    """Somebody swaps checkpoints/ for a link and back, as fast as they can, while checkpoints are written."""
    kept = Checkpoints(tmp_path / "checkpoints", SCAFFOLD, len(state.params), "run", keep=1)
    outside, away = tmp_path / "outside", tmp_path / "away"
    outside.mkdir()
    (outside / "0000001.json").write_text("precious")
    link, done, swaps = tmp_path / "link", threading.Event(), [0]
    link.symlink_to(outside)

    def swap() -> None:
        while not done.is_set():
            os.rename(kept.folder, away)
            os.rename(link, kept.folder)
            os.rename(kept.folder, link)
            os.rename(away, kept.folder)
            swaps[0] += 1

    thread = threading.Thread(target=swap)
    thread.start()
    written = 0
    for _ in range(300):
        with suppress(OSError):
            kept.save(state)
            written += 1
    done.set()
    thread.join()
    assert swaps[0] > 20 and {path.name for path in outside.iterdir()} == {"0000001.json"}, (swaps, written)
    assert (outside / "0000001.json").read_text() == "precious"
    kept.save(state)
    assert fingerprint(kept.latest()) == fingerprint(state)  # type: ignore[arg-type]


def test_files_are_written_and_read_without_links(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.symlink_to(outside)
    write(inside / "a", "a")
    with pytest.raises(StorageError, match=r"inside/b: cannot be written: .*; a symbolic link is not followed"):
        write(inside / "b", "b", follow=False)
    with pytest.raises(StorageError):
        delete(inside / "a")
    assert [path.name for path in outside.iterdir()] == ["a"]
    (tmp_path / "log").symlink_to(outside / "a")
    with pytest.raises(StorageError, match=r"log: cannot be written: .*; a symbolic link is not followed"):
        append(tmp_path / "log", b"x\n")
    with pytest.raises(OSError, match="it is a symbolic link"):
        read(tmp_path / "log")
    write(tmp_path / "log", "new", follow=False)
    assert (outside / "a").read_text() == "a" and (tmp_path / "log").read_text() == "new", "the link is replaced"
    delete(tmp_path / "log")
    delete(tmp_path / "log")
    with umask(0):
        make_private(tmp_path / "x" / "y")
    assert modes(tmp_path / "x") == {}


# Names


def hostile() -> list[str]:
    """300 names that lead elsewhere, or are not names at all."""
    draw = random.Random(0)
    ups = ["../" * n + "x" for n in range(1, 20)] + ["..\\" * n + "x" for n in range(1, 20)]
    roots = ["/etc/passwd", "/x", "//x/y", "~", "~root/x", "C:\\x", "C:x", "\\\\host\\share", "file:///x", "/dev/null"]
    odd = [".", "..", "", " ", "con", "NUL", "aux.json", "x\0y", "x\ny", "x\ry", "\x1b[31mx", "-rf", "--out", "$(id)"]
    odd += ["`id`", "%2e%2e%2f", "..%2f", "x;y", "x|y", "*", "?", "[a]", "x" * 10_000, "\u202ex", "é" * 200, "٣", "²"]
    odd += ["x/../../y", "a/b", "./x", "x/.", "\ud800", "0000001/../x", ".hidden", "x.", "x ", "\uff0e\uff0e/x"]
    signs = string.printable + "/\\.\0\n\x1b~:٣²é\u2028"
    return [*ups, *roots, *odd, *("".join(draw.choices(signs, k=draw.randint(1, 40))) for _ in range(300))][:300]


def test_no_name_leads_out_of_its_folder(state: Any, tmp_path: Path) -> None:
    """Names of runs, of clients and of checkpoints: refused, or a name in the folder."""
    root = tmp_path / "outer" / "root"
    root.mkdir(parents=True)
    (tmp_path / "outer" / "secret").write_text("secret")
    before, names = snapshot(tmp_path), hostile()
    assert len(names) == 300
    for name in names:
        for check in (check_name, check_folder_name):
            with suppress(ValueError, RunError):
                assert (root / check(name)).resolve().parent == root and "\0" not in name, (check, name)
        made = root / slug(name)
        assert made.resolve().parent == root and len(made.name) <= 80, name
    assert snapshot(tmp_path) == before

    kept = Checkpoints(root / "checkpoints", SCAFFOLD, len(state.params), "run", keep=5)
    kept.save(state)
    store = DiskStore(root / "clients", SCAFFOLD, len(state.params))
    client = ClientState(parts={}, buffers=None)
    store.save(3, 0, client, None)
    planted = 0
    for name in names:
        for folder, ending in ((kept.folder, ".json"), (root / "clients" / "0" / "3", "")):
            with suppress(OSError, ValueError):
                if name not in (".", "..", "") and "/" not in name:
                    (folder / f"{name}{ending}").symlink_to(tmp_path / "outer" / "secret")
                    planted += 1
    assert planted > 100
    assert kept_rounds(kept.folder) == [1] and fingerprint(kept.latest()) == fingerprint(state)  # type: ignore[arg-type]
    kept.save(state)
    store.save(3, 1, client, 0)
    assert {path.name for path in (root / "clients" / "0" / "3").iterdir()} == {"0", "1"}
    assert (tmp_path / "outer" / "secret").read_text() == "secret"
    assert {path.name for path in tmp_path.rglob("*") if root not in path.parents} == {"outer", "root", "secret"}
