"""Clients' states behind a URL: the same rules as on disk, on fsspec's memory and on an S3 server if there is one."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch

pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import Local, Simulation, make
from undrift.blocks.drift.feddyn import Dual
from undrift.core.records.rejection import Reason
from undrift.core.records.types import ClientState
from undrift.engine.round.backend import DiskBackend, InProcess
from undrift.engine.stores.object_store import ObjectStore, check_url, download_states, open_store
from undrift.engine.stores.store import DiskStore, StoreError
from undrift.runs import Config, resume, start
from undrift.runs.reading.open_checkpoint import open_state
from undrift.runs.settings.engine import EngineConfig, resolve_engine
from undrift.runs.settings.schema import ConfigError
from undrift.testing import Clinic, fingerprint

ALGORITHM = make("feddyn")
LOCAL = Local(lr=0.05, batch_size=4)


def state(value: float, size: int = 7) -> ClientState:
    return ClientState({"drift": Dual(torch.full((size,), value))})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server on the loopback address: moto's."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)


@pytest.fixture(params=["memory", "s3"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = uuid4().hex
    if request.param == "memory":
        return f"memory://states/{name}"
    for key, value in {
        "AWS_ENDPOINT_URL": request.getfixturevalue("server"),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(key, value)
    import s3fs

    s3fs.S3FileSystem().makedirs(f"bucket-{name}", exist_ok=True)
    return f"s3://bucket-{name}/run"


def names(url: str, client: int) -> list[str]:
    """The states that are there."""
    store = ObjectStore(url, ALGORITHM, 7)
    return sorted(str(path).rsplit("/", 1)[-1] for path in store._files.ls(f"{store._path}/0/{client}", detail=False))


def test_the_accepted_and_the_provisional_state_are_kept(url: str) -> None:
    store = open_store(url, ALGORITHM, 7)
    store.save(3, 0, state(0.0), None)
    store.save(3, 4, state(4.0), 0)
    store.save(3, 5, state(5.0), 0)  # the round with index 4 was not accepted
    assert fingerprint(store.load(3, 0)) == fingerprint(state(0.0))
    assert fingerprint(store.load(3, 5)) == fingerprint(state(5.0)) and names(url, 3) == ["0", "5"]
    with pytest.raises(StoreError, match="no state of client 3 after round 5; resume with the clients' states"):
        store.load(3, 4)
    with pytest.raises(StoreError, match="no state of client 9 after round 1"):
        store.load(9, 0)


def test_states_last_as_long_as_a_checkpoint_may_name_them(url: str) -> None:
    store = open_store(url, ALGORITHM, 7, depth=4)
    last: int | None = None
    for round in (0, 2, 3, 7, 9, 10):
        store.save(5, round, state(float(round)), last)
        last = last if round == 9 else round
    assert sorted(map(int, names(url, 5))) == [3, 7, 10]
    store.save(5, 8, state(8.0), 7)  # a server that went back
    assert sorted(map(int, names(url, 5))) == [3, 7, 8]


@pytest.mark.quick
def test_damage_is_named(url: str) -> None:
    store = ObjectStore(url, ALGORITHM, 7)
    store.save(12, 3, state(1.0), None)
    data = store.read(12, 3)
    for broken in (data[:-1], data[:20], b"", data[:-1] + bytes([data[-1] ^ 1]), os.urandom(len(data))):
        store._files.pipe_file(f"{store._path}/0/12/3", broken)
        with pytest.raises(StoreError, match=r"the state of client 12 after round 4 cannot be used: .*/0/12/3: "):
            store.load(12, 3)


def test_a_run_has_the_bits_of_one_in_memory_and_goes_on_from_its_states(url: str) -> None:
    expected = Simulation("scaffold", Clinic(), LOCAL, cohort=4).run(4)
    with Simulation("scaffold", Clinic(), LOCAL, cohort=4, depth=1, backend=InProcess(root=url)) as simulation:
        stopped = simulation.run(2)
    with Simulation("scaffold", Clinic(), LOCAL, cohort=4, depth=1, backend=InProcess(root=url)) as simulation:
        assert fingerprint(simulation.run(2, stopped)) == fingerprint(expected)


def test_states_can_be_copied_into_a_folder(url: str, tmp_path: Path) -> None:
    open_store(url, ALGORITHM, 7).save(2, 1, state(2.0), None)
    download_states(url, {2: 1, 3: 1}, tmp_path / "copy")
    assert fingerprint(DiskStore(tmp_path / "copy", ALGORITHM, 7).load(2, 1)) == fingerprint(state(2.0))


def test_a_store_that_fails_sets_the_client_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation("scaffold", Clinic(), LOCAL, backend=InProcess(root=f"memory://states/{uuid4().hex}"))
    before = simulation.run(1)
    read, put = MemoryFileSystem.cat_file, MemoryFileSystem.pipe_file

    def cat(self: object, path: str, *rest: object, **more: Any) -> bytes:
        if "/4/" in path:
            raise TimeoutError("no answer\nfrom the store")
        out: bytes = read(self, path, *rest, **more)
        return out

    def pipe(self: object, path: str, *rest: object, **more: Any) -> None:
        if "/5/" in path:
            raise PermissionError("read-only bucket")
        put(self, path, *rest, **more)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe)
    _, record = simulation.round(before)
    failed = {r.client: r.detail for r in record.rejections if r.reason is Reason.FAILED}
    assert set(failed) == {4, 5} and failed[4].endswith("TimeoutError: no answer")
    assert "client 5 after round 2 cannot be written" in failed[5] and "read-only bucket" in failed[5]
    monkeypatch.setattr(MemoryFileSystem, "rm_file", lambda *_: 1 / 0)  # what is left over does no harm
    monkeypatch.setattr(MemoryFileSystem, "cat_file", read)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", put)
    assert len(simulation.round(before)[1].clients) == 7


def test_urls_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for url, said in {
        "memory://": "memory://: name a place in the store, as in memory://bucket/run",
        "s3://me:secret@bucket/run": r"s3://\.\.\.: leave credentials out of the URL",
        "nonsense://bucket/run": "nonsense://bucket/run: Protocol not known: nonsense; use a folder or a URL",
        "memory://states/run": "memory is seen by one process only; use an object store, or a folder that all can see",
    }.items():
        with pytest.raises(ValueError, match=said) as seen:
            check_url(url)
        assert "secret" not in str(seen.value)
    with pytest.raises(ValueError, match="DiskBackend keeps clients' states in a folder, got memory://states/run"):
        DiskBackend("memory://states/run")
    assert InProcess(root=f"file://{tmp_path}").root == tmp_path


@pytest.mark.skipif(find_spec("s3fs") is not None, reason="s3fs is there")
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden in ("s3fs", "fsspec.core"):
        monkeypatch.setitem(sys.modules, hidden, None)
        with pytest.raises(ImportError, match=r"s3://bucket/run needs .*pip install 'undrift\[s3\]'"):
            check_url("s3://bucket/run")


def test_a_run_in_a_folder_notes_where_its_states_are(tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    def settings(rounds: int, **engine: Any) -> Config:
        return Config.build({**RUN, "method": "scaffold", "rounds": rounds, "engine": engine})

    url = f"local://{tmp_path}/bucket"  # fsspec's name of the local files, as a store like any other
    expected = start(settings(3), tmp_path / "plain").sha256
    start(settings(2, states=url), tmp_path / "run")
    (noted,) = (tmp_path / "run" / "clients").iterdir()
    assert noted.read_text().startswith(f"{url}/") and any((tmp_path / "bucket").rglob("0/*/1"))
    with pytest.raises(ConfigError, match=r"engine: states: this run has its clients' states in local://.*; do not"):
        resume(tmp_path / "run", rounds=3, states="local:///elsewhere")
    assert resume(tmp_path / "run", rounds=3).sha256 == expected
    with open_state(tmp_path / "run") as (_, simulation, after):
        assert len(simulation.scores(after, range(3), lambda *_: 1.0)) == 3
    with pytest.raises(ConfigError, match=r"this run has its clients' states in .*clients; leave the setting out"):
        resume(tmp_path / "plain", rounds=4, states=url)


def test_the_best_round_takes_its_states_along(tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    url, output = f"local://{tmp_path}/bucket", {"keep_best": True}
    start(Config.build({**RUN, "method": "scaffold", "engine": {"states": url}, "output": output}), tmp_path / "run")
    (kept,) = (tmp_path / "run" / "best").glob("clients-*")
    assert [path for path in kept.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"states": "s3:"}, "engine: states must be the URL of an object store, as s3://bucket/runs, got s3:"),
        ({"states": "file:///states"}, "engine: states must be the URL of an object store"),
        ({"states": "memory://states/run"}, "engine: memory://states/run: memory is seen by one process only"),
        ({"states": "local:///x/y", "name": "flower"}, "engine: states: Flower's nodes store states in folders; leave"),
    ],
)
def test_settings_that_cannot_work_are_refused(engine: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve_engine(EngineConfig(**engine))
