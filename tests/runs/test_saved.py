"""Runs read from their folders, and their models in files for other programs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import load_run
from undrift.cli import app
from undrift.models import build
from undrift.runs import Config, Outcome, export, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.setup.prepare import prepare

pytestmark = pytest.mark.usefixtures("tiny")

KEPT = {"output": {"keep_best": True, "keep": 3}}


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:  # noqa: F811
    return start(Config.build({**RUN, **KEPT}), tmp_path_factory.mktemp("saved") / "run")


@pytest.fixture(scope="module")
def personal(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:  # noqa: F811
    return start(Config.build({**RUN, "method": "fedper"}), tmp_path_factory.mktemp("saved") / "personal")


def test_a_run_is_read(run: Outcome) -> None:
    saved = load_run(str(run.folder))
    assert saved.summary == run.summary and saved.config.method == "fedavg" and saved.report is None
    assert len(saved.history) == 2 and saved.history[-1]["accuracy"] == run.summary["accuracy"]
    task = prepare(saved.config).data_task
    for module in (saved.model(), saved.model(task)):
        assert not module.training and task.test(module).accuracy == run.summary["accuracy"]
    first = saved.model(task, round=1)
    assert task.test(first).accuracy == saved.history[0]["accuracy"]
    assert repr(saved).endswith(f"fedavg on fashion-mnist, 2 of 2 rounds, accuracy {run.summary['accuracy']:.4g})")
    assert repr(run).startswith("Outcome(") and "\n" not in repr(run)
    assert run._repr_html_() == saved._repr_html_() and "dirichlet(1)" in saved._repr_html_()
    with pytest.raises(RunError, match="is not a run"):
        load_run(run.folder.parent)


def test_the_last_model_of_a_run_that_is_extended(tmp_path: Path) -> None:
    """Not that of its first end, which is still in its file."""

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    folder = start(Config.build({**RUN, "rounds": 1}), tmp_path / "run").folder
    with pytest.raises(KeyboardInterrupt):
        resume(folder, stop, rounds=3)
    last, second = load_run(folder).weights(), load_run(folder).weights(round=2)
    assert all(last[name].equal(second[name]) for name in second)
    assert any(not last[name].equal(x) for name, x in load_file(folder / "model.safetensors").items())
    done = resume(folder).folder
    assert all(load_run(done).weights()[name].equal(x) for name, x in load_file(done / "model.safetensors").items())


def test_a_run_in_progress_is_read(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        raise StopError

    with pytest.raises(StopError):
        start(Config.build(RUN), tmp_path / "run", stop)
    saved = load_run(tmp_path / "run")
    assert saved.summary is None and len(saved.history) == 1 and "1 of 2 rounds" in repr(saved)
    assert prepare(saved.config).data_task.test(saved.model()).accuracy == saved.history[0]["accuracy"]


def test_weights_have_the_plain_names(run: Outcome, tmp_path: Path) -> None:
    plain = build("small-cnn", classes=10, channels=1, image=28)
    path = export(run.folder, tmp_path / "m.safetensors")
    plain.load_state_dict(load_file(path))
    torch_path = export(run.folder, tmp_path / "m.pt")
    again = torch.load(torch_path, weights_only=True)
    assert all(torch.equal(x, again[name]) for name, x in load_file(path).items())
    best = load_file(export(run.folder, tmp_path / "b.safetensors", round="best"))
    kept = load_run(run.folder).weights(round=run.summary["best_round"])
    assert all(torch.equal(x, kept[name]) for name, x in best.items())


def test_a_client_has_a_model_of_its_own(personal: Outcome, run: Outcome, tmp_path: Path) -> None:
    saved = load_run(personal.folder)
    task = prepare(saved.config).data_task
    ones, others = saved.weights(client=0), saved.weights(client=1)
    assert any(not torch.equal(ones[name], others[name]) for name in ones)
    result = json.loads((personal.folder / "clients.json").read_text())["accuracy"]
    assert task.own_score(saved.model(task, client=0), 0).accuracy == result[0]
    with pytest.raises(RunError, match="client 8: there are 8 clients, numbered from 0 to 7"):
        saved.weights(client=8)
    with pytest.raises(RunError, match="client 0: fedavg has no personal models; leave the client out"):
        export(run.folder, tmp_path / "m.safetensors", client=0)


def test_a_client_has_a_model_of_its_own_whatever_the_goal(tmp_path: Path) -> None:
    run = start(Config.build({**RUN, "method": "fedper", "goal": "global accuracy"}), tmp_path / "run")
    ones, others = (load_run(run.folder).weights(client=client) for client in (0, 1))
    assert any(not torch.equal(ones[name], others[name]) for name in ones)


@pytest.mark.sweep(every=4)
def test_a_graph_computes_what_the_model_does(run: Outcome, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    reference = pytest.importorskip("onnx.reference")
    path = export(run.folder, tmp_path / "m.onnx")
    saved = load_run(run.folder)
    task = prepare(saved.config).data_task
    images = task.dataset.test.inputs[:5]
    (found,) = reference.ReferenceEvaluator(str(path)).run(None, {"input": images.numpy()})
    expected = torch.softmax(saved.model(task)(task.prepare(images)), 1)
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-5)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_model_that_cannot_be_a_graph(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    from undrift.runs.reading.export import write_onnx

    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if float(x.sum()) > 0 else -x

    with pytest.raises(ValueError, match=r"Branching cannot be written as ONNX: .*; use --format safetensors"):
        write_onnx(Branching(), (torch.ones(2, 3), None), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.quick
def test_the_command(run: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["export", str(run.folder)])
    assert done.exit_code == 0 and done.stdout.startswith("model  1.7 MB: README.md, config.json, model.pt2, ")
    assert CliRunner().invoke(app, ["export", str(run.folder), "--format", "torch", "--round", "1"]).exit_code == 0
    assert Path("model.pt").is_file()
    for words, reason in (
        (["--out", "m.bin"], "the format must be folder, safetensors, torch, onnx, adapter, merged; got 'm.bin'"),
        (["--out", "none/m.pt"], "the folder none does not exist"),
        (["--round", "7"], "round 7 was not kept; there are 1, 2"),
        (["--client", "1"], "has no personal models"),
    ):
        refused = CliRunner().invoke(app, ["export", str(run.folder), *words])
        assert refused.exit_code == 2 and reason in refused.stderr, refused.stderr
