"""A run records its device and its workers, and is not resumed on another kind of device by accident."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.devices import needed
from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.cli.app import print_warnings
from undrift.runs import Config, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.settings.engine import (
    EngineConfig,
    Workers,
    device_change,
    engine_record,
    plan_workers,
    resolve_engine,
    warn_device_change,
)
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.prepare import prepare

pytestmark = needed


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_DEVICE_MODULE", "support.pretend")


def test_a_run_records_its_device_and_another_kind_is_noticed(tiny: Any, tmp_path: Path) -> None:  # noqa: F811
    whole = start(Config.build({**RUN, "engine": {"device": "auto"}}), tmp_path / "whole")
    assert 'device = "cpu"' in (tmp_path / "whole" / "config.toml").read_text()
    noted = json.loads((tmp_path / "whole" / "engine.json").read_text())
    assert (noted["device"], noted["plan"]["workers"], noted["probe"]) == ("cpu", 1, None)
    begun = tmp_path / "begun"
    start(Config.build({**RUN, "rounds": 1}), begun)
    settings = {**RUN, "folder": begun, "resume": True}
    with pytest.raises(
        RunError, match=r"trained on cpu and would continue on pretend, .* undrift resume .* --device pre"
    ):
        start(engine={"device": "pretend"}, **settings)
    with pytest.warns(UserWarning, match=r"trained on cpu and would continue on pretend: the result is close"):
        moved = resume(begun, rounds=2, device="pretend")
    assert moved.sha256 == whole.sha256  # this device has the CPU's bits
    assert '"event": "device"' in (begun / "audit.jsonl").read_text()
    assert json.loads((begun / "engine.json").read_text())["device"] == "pretend"
    assert resume(begun, rounds=2).trained is False


def test_settings_that_cannot_work_are_refused_by_name() -> None:
    assert resolve_engine(EngineConfig(device="auto")).device == "cpu"
    with pytest.raises(ConfigError, match=r"engine: gpus=0.5: the local engine has one worker on one device"):
        resolve_engine(EngineConfig(gpus=0.5))
    with pytest.raises(ConfigError, match=r"engine: gpus=0.5: the run is on device pretend"):
        resolve_engine(EngineConfig(name="ray", device="pretend", gpus=0.5))
    with pytest.raises(ConfigError, match=r"no device is named 'gpu'; write auto, cpu, cuda"):
        Config.build({"engine": {"device": "gpu"}})
    with pytest.raises(ConfigError, match=r"engine.workers"):
        Config.build({"engine": {"workers": "many"}})
    before = EngineConfig(device="cuda", deterministic=True)
    assert device_change(before, EngineConfig(device="cuda:1", deterministic=True)) is None
    assert "with deterministic kernels and would continue without" in str(
        device_change(before, EngineConfig(device="cuda"))
    )


def test_workers_are_chosen_or_as_given(tiny: Any) -> None:  # noqa: F811
    setup = prepare(Config.build(RUN))
    chosen, probe = plan_workers(EngineConfig(name="flower", workers="auto"), setup.job, 4)
    assert probe is not None and 1 <= chosen.workers <= 4
    given, none = plan_workers(EngineConfig(name="ray", workers=3), setup.job, 4)
    assert (given.workers, given.gpus, given.reason, none) == (3, 0.0, "as given", None)
    record = engine_record(EngineConfig(name="flower"), chosen, probe)
    assert record["probe"]["client"] == probe.client and record["title"] == "cpu"
    with Workers() as workers:
        assert workers.pool is None  # started by the first run that needs them


@pytest.mark.quick
def test_the_command_line(tiny: Any, tmp_path: Path) -> None:  # noqa: F811
    call = CliRunner().invoke
    (tmp_path / "run.toml").write_text(Config.build(RUN).toml())
    result = call(app, ["doctor", "--config", str(tmp_path / "run.toml"), "--json"])
    assert json.loads(result.stdout)["plan"]["workers"] >= 1
    assert "a visit on cpu:" in call(app, ["doctor", "--config", str(tmp_path / "run.toml")]).stdout
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text((tmp_path / "run.toml").read_text())
    assert "a visit on cpu:" in call(app, ["doctor", "--config", str(tmp_path / "run")]).stdout
    words = ["doctor", "--device", "pretend", "--method", "fedavg", "--method", "scaffold", "--no-measure"]
    result = call(app, [*words, "--out", str(tmp_path / "report")])
    assert result.exit_code == 0 and "2 of 2 methods pass" in result.stdout
    assert json.loads((tmp_path / "report.json").read_text())["device"] == "pretend"
    assert (tmp_path / "report.md").read_text() in result.stdout
    refused = call(app, ["doctor", "--device", "warp"])
    assert refused.exit_code == 2 and refused.stderr.startswith("undrift doctor: device warp: PyTorch knows no such")
    out = tmp_path / "out"
    flags = ["--device", "mps", "--workers", "auto", "--deterministic", "--out", str(out)]
    refused = call(app, ["run", "fedavg", "--config", str(tmp_path / "run.toml"), *flags])
    assert refused.exit_code == 2 and len(refused.stderr.strip().splitlines()) == 1 and not out.exists()
    assert "device mps: there is no Apple GPU that PyTorch can use; use device cpu, or auto" in refused.stderr


def test_a_warning_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with print_warnings("resume"), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("the run moved", UserWarning, "file.py", 1)
        warn_device_change("runs/a", "it was trained on cuda and would continue on cpu")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "undrift resume: the run moved" and lines[1].startswith("undrift resume: runs/a: it was trained")
