"""The lens on runs: what is written, that nothing else changes, that a run is watched without a bit of difference."""

import json
import shutil
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import lens
from undrift.blocks.spectral import gaussian
from undrift.cli import app
from undrift.core.tasks.tensor_task import TensorTask
from undrift.models import build
from undrift.observe import live
from undrift.observe.live import Live, measure_state, sample_clients
from undrift.observe.look import PARTS
from undrift.runs import Config, ConfigError, resume, start
from undrift.runs.folder.checkpoint import Checkpoints
from undrift.runs.folder.files import RunError, RunFolder
from undrift.runs.reading import open_checkpoint as look
from undrift.runs.reading.open_checkpoint import open_scene
from undrift.util.storage.jsonable import jsonable

pytestmark = [pytest.mark.usefixtures("tiny"), pytest.mark.xdist_group("observe")]  # one run for all

EVERY = {"lens_every": 1}


def settings(**changes: Any) -> Config:
    return Config.build({**RUN, **changes})


@pytest.fixture(scope="module")
def ended(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """A run of SCAFFOLD with a perturbation and a filter, in which all clients take part."""
    config = settings(method="scaffold + sam(rho=0.05) + specgrad(r=0.3)", cohort=8, weights="uniform", output=EVERY)
    return start(config, tmp_path_factory.mktemp("runs") / "run").folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "lens.jsonl").read_text().splitlines()]


def hashes(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "lens.json"]
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}


# Inside a run


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_watching_changes_no_bit(method: str, tmp_path: Path) -> None:
    seen = start(settings(method=method, output=EVERY), tmp_path / "seen")
    plainly = start(settings(method=method, output={"lens_every": 0}), tmp_path / "unseen")
    assert seen.sha256 == plainly.sha256
    assert not (plainly.folder / "lens.jsonl").exists()
    metrics = [json.loads(line) for line in (seen.folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["lens_seconds"] for row in metrics] == [row["seconds"] for row in rows(seen.folder)]


@pytest.mark.sweep(every=4)
def test_a_row_tells_what_the_instruments_do(ended: Path) -> None:
    with open_scene(ended) as scene:
        job, layout = scene.simulation.job, scene.layout
        clients = sample_clients(job.task, 4, job.seed)
        gradients = lens.client_vectors(job, scene.state, clients, samples=job.local.batch_size)
        again = measure_state(job, scene.state, clients, layout, ("spectrum", "divergence"))
    row = rows(ended)[-1]
    assert row["round"] == 2 and {name: row[name] for name in again} == again
    ratio = lens.consensus(gradients, layout).overall["ratio"]
    assert torch.allclose(torch.tensor(row["consensus"]).double(), ratio, rtol=1e-6)
    found = lens.divergence_by_layer(gradients, layout)
    assert row["drift"] == pytest.approx(float(found.squared.sum().sqrt()), rel=1e-6)
    relative = found.squared.sqrt() / found.norm
    assert row["divergence"]["layers"] == list(layout.names)
    assert row["divergence"]["relative"] == pytest.approx(relative.tolist(), rel=1e-6)


def test_parts_and_rounds_are_chosen(tmp_path: Path) -> None:
    output = {"lens_every": 2, "lens": ["spectrum"], "lens_clients": 3}
    folder = start(settings(rounds=3, output=output), tmp_path / "run").folder
    (row,) = rows(folder)
    assert set(row) == {"round", "seconds", "consensus"} and row["round"] == 2
    assert all(0 < x <= 1 for x in row["consensus"])


@pytest.mark.sweep(every=4)
def test_heterogeneity_during_a_run(ended: Path, tmp_path: Path) -> None:
    output = {**EVERY, "lens": ["heterogeneity"], "lens_filter": "gaussian(0.2)"}
    seen = start(settings(output=output), tmp_path / "run")
    assert seen.sha256 == start(settings(output={"lens_every": 0}), tmp_path / "unseen").sha256
    found = rows(seen.folder)
    assert [set(row) for row in found] == [{"round", "seconds", "heterogeneity"}] * 2
    assert all(row["heterogeneity"]["filter"] == "gaussian(r=0.2)" for row in found)
    with open_scene(seen.folder) as scene:
        job, clients = scene.simulation.job, sample_clients(scene.task, 4, 0)
        samples = live.BATCHES * job.local.batch_size
        direct = lens.heterogeneity(job, scene.state, clients, filter=gaussian(0.2), samples=samples)
    for part, numbers in direct.items():
        assert found[-1]["heterogeneity"][part] == pytest.approx(numbers.as_dict())
    with open_scene(ended) as scene:
        row = measure_state(scene.simulation.job, scene.state, [0, 1], scene.layout, ("heterogeneity",))
    assert row["heterogeneity"]["filter"] == "high_pass(r=0.3)"  # the method's own


@pytest.mark.sweep(every=4)
def test_resume_rewinds_the_rows(tmp_path: Path) -> None:
    whole = start(settings(rounds=4, output=EVERY), tmp_path / "whole")

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(settings(rounds=4, output={**EVERY, "checkpoint_every": 3}), tmp_path / "cut", stop)
    assert [row["round"] for row in rows(tmp_path / "cut")] == [1, 2]
    assert resume(tmp_path / "cut").sha256 == whole.sha256
    result = [{**row, "seconds": 0} for row in rows(tmp_path / "cut")]
    assert result == [{**row, "seconds": 0} for row in rows(whole.folder)]


def test_what_cannot_be_seen_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("no tensor has the 18 elements that 10 bands need")

    monkeypatch.setattr(live, "sweep", refuse)
    folder = start(settings(rounds=1, output=EVERY), tmp_path / "run").folder
    assert rows(folder)[0]["skipped"].startswith("no tensor has the 18 elements")


def test_the_settings_are_checked() -> None:
    for output, message in (
        ({"lens_every": -1}, "output.lens_every: .*greater than or equal to 0"),
        ({"lens_clients": 1}, "output.lens_clients: .*greater than or equal to 2"),
        ({"lens": ["spectra"]}, "output.lens.0: .*'spectrum', 'divergence' or 'heterogeneity'"),
        ({"lens_filter": "sam(0.1)"}, "output.lens_filter: "),
        ({"lens_filter": "highpass(2)"}, "output.lens_filter: .*r must be in"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings(output=output)
    assert settings(output=EVERY).identity() == settings().identity()


def test_some_clients_that_have_examples() -> None:
    clients = [torch.arange(0 if n % 3 else 2) for n in range(30)]
    task = TensorTask(torch.nn.Identity, torch.zeros(2, 1), torch.zeros(2), clients)
    chosen = sample_clients(task, 4, seed=1)
    assert len(chosen) == 4 and chosen == sample_clients(task, 4, seed=1) and all(client % 3 == 0 for client in chosen)
    assert sample_clients(task, 99, seed=1) == list(range(0, 30, 3))
    assert {tuple(sample_clients(task, 4, seed=n)) for n in range(9)} != {tuple(chosen)}


def test_a_million_clients_are_not_gone_through() -> None:
    asked: list[int] = []

    class Many:
        population = 1_000_000

        def examples(self, client: int) -> int:
            asked.append(client)
            return client % 2  # every other client has none

    chosen = sample_clients(Many(), 10, seed=3)  # type: ignore[arg-type]
    assert len(set(chosen)) == 10 and all(client % 2 for client in chosen) and len(asked) < 200


def test_plain_values() -> None:
    found = jsonable({"a": torch.tensor([1.0, float("inf")]), "b": (float("nan"), 2, "x")})
    assert found == {"a": [1.0, None], "b": [None, 2, "x"]}


def test_live_is_off_without_a_file(tmp_path: Path) -> None:
    off = Live(None, tmp_path / "lens.jsonl", 0, 3, ())  # type: ignore[arg-type]
    off.rewind(3)
    assert off.after(None, None) == {} and not (tmp_path / "lens.jsonl").exists()  # type: ignore[arg-type]


# Afterwards


@pytest.fixture(scope="module")
def result(ended: Path) -> dict[str, Any]:
    """What the lens sees of the run, with its folder locked as if it went on."""
    before = hashes(ended)
    with RunFolder.open(ended):
        found = look.look(ended, clients=5, examples=40, points=3)
    assert hashes(ended) == before
    assert json.loads((ended / "lens.json").read_text()) == found
    return found


@pytest.mark.sweep(every=4)
def test_everything_is_told(result: dict[str, Any]) -> None:
    assert result["round"] == 2 and len(result["clients"]) == 5 and result["skipped"] == {}
    assert set(result["seconds"]) == set(PARTS)
    assert set(PARTS) - {"staleness"} <= set(result), "nothing is stale in synchronous rounds"
    spectrum = result["spectrum"]
    assert spectrum["bands"] == 10 and set(spectrum) >= {"gradient", "update", "perturbation", "filtered"}
    for source in ("gradient", "update", "perturbation", "filtered"):
        found = spectrum[source]
        table = (len(found["layers"]), 10)
        assert all(torch.tensor(found["raw"][name]).shape == table for name in ("distance", "std", "variance"))
        assert torch.tensor(found["normalised"]).square().sum(dim=1) == pytest.approx(torch.ones(table[0]), abs=1e-5)
        assert {"distance", "std", "variance"} <= set(found["overall"])
        assert len(found["consensus"]) == 10 and "agree" in found["reading"]
    assert spectrum["filtered"]["filter"] == "high_pass(r=0.3)"  # that of the method
    assert sum(spectrum["filtered"]["overall"]["distance"][:3]) < 1e-4 < spectrum["gradient"]["overall"]["distance"][0]
    assert isfinite(spectrum["filtered"]["filtering"]["gain"])
    divergence = result["divergence"]
    assert len(divergence["layers"]) == len(divergence["gradient"]) == len(divergence["relative"]) == 8
    assert torch.tensor(divergence["cosine"]["matrix"]).diagonal() == pytest.approx(torch.ones(5), abs=1e-5)
    theory = result["heterogeneity"]
    assert theory["filter"] == "high_pass(r=0.3)" and "lowers every variance" in theory["reading"]
    for key in ("gradient", "between", "within"):
        assert theory["kept"][key] + theory["removed"][key] == pytest.approx(theory["whole"][key], rel=1e-4)
    alignment = result["alignment"]
    assert alignment["clients"] == result["clients"] and torch.tensor(alignment["matrix"]).shape == (5, 5)
    assert set(alignment["layers"]) == {"penultimate", "features", "hidden", "head"}
    embedding = result["embedding"]["pca_update"]
    assert torch.tensor(embedding["points"]).shape == (5, 2) and 0 < sum(embedding["explained"]) <= 1
    assert result["curvature"]["examples"] == 40 and abs(result["curvature"]["top"][0]) >= abs(
        result["curvature"]["top"][1]
    )
    surface = result["surface"]
    assert surface["a"] == surface["b"] == [-1, 0, 1] and surface["directions"] == "top eigenvectors"


@pytest.mark.sweep(every=3)
def test_the_numbers_are_those_of_the_instruments(result: dict[str, Any], ended: Path) -> None:
    with open_scene(ended, clients=5, examples=40) as scene:
        assert scene.clients == result["clients"]
        drift = lens.divergence_by_layer(scene.updates, scene.layout)
        spread = lens.spread(scene.gradients, scene.layout)
        half = scene.objective(2)
    assert result["divergence"]["update"] == pytest.approx(drift.distance.tolist())
    assert result["spectrum"]["gradient"]["overall"]["std"] == pytest.approx(spread.overall["deviation"].tolist())
    assert half.examples == 20 and result["surface"]["loss"][1][1] == pytest.approx(half.value())


@pytest.mark.sweep(every=4)
def test_updates_are_those_of_the_next_round(ended: Path, tmp_path: Path) -> None:
    """The clients' states are found on disk: SCAFFOLD's mean update leads to the next checkpoint's model."""
    with open_scene(ended) as scene:
        assert scene.clients == list(range(8))
        expected = scene.state.params + scene.updates.mean(dim=0)
        identity, algorithm = Config.read(ended / "config.toml").identity(), scene.simulation.algorithm
    folder = shutil.copytree(ended, tmp_path / "run")
    resume(folder, rounds=3)
    state = Checkpoints(folder / "checkpoints", algorithm, len(expected), identity).load(3)  # type: ignore[arg-type]
    assert torch.allclose(state.params, expected, atol=1e-6) and not torch.allclose(state.params, scene.state.params)


def test_layers_to_align() -> None:
    image, text = torch.zeros(2, 3, 32, 32), torch.zeros(2, 5, dtype=torch.int64)
    stages = ["stem", "stages.0", "stages.1", "stages.2", "linear"]
    assert lens.outlets(build("resnet8", classes=10).eval(), image) == stages
    # What an LSTM gives out is no tensor.
    assert lens.outlets(build("lstm", classes=9, symbols=9).eval(), text) == ["embedding", "head"]


@pytest.mark.sweep(every=4)
def test_a_part_that_fails_is_left_out(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("top: 0 of 2 eigenvalues were found")

    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("tsne needs scikit-learn")

    monkeypatch.setattr(lens, "top", refuse)
    monkeypatch.setattr(lens, "tsne", missing)
    parts = ("embedding", "surface")
    found = look.look(ended, parts=parts, clients=2, examples=20, points=3)
    assert found["skipped"] == {
        "surface": "top: 0 of 2 eigenvalues were found",
        "tsne_features": "tsne needs scikit-learn",
    }
    assert "surface" not in found and set(found["embedding"]) == {"pca_update"}
    found = look.look(ended, parts=["surface"], clients=2, examples=20, points=3, directions="random")
    assert found["surface"]["directions"] == "random" and found["skipped"] == {}


def test_what_cannot_be_looked_at(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, message in (
        ({"parts": ["spectum"]}, "no part is named 'spectum'; did you mean 'spectrum'?"),
        ({"clients": 1}, "clients must be 2 or more, since they are compared with each other, got 1"),
        ({"examples": 3}, "examples must be 8 or more, got 3"),
        ({"directions": "down"}, "directions must be one of top eigenvectors, random, got 'down'"),
    ):
        with pytest.raises(ValueError, match=message.replace("?", r"\?")):
            look.look(ended, **given)
    with pytest.raises(RunError, match=r"is not a run: it has no config.toml"):
        look.look(tmp_path)
    (tmp_path / "config.toml").write_text(settings().toml())
    with pytest.raises(RunError, match="no checkpoint has been written yet"):
        look.look(tmp_path)
    (tmp_path / "partition.json").write_text('{"sha256": "0"}')
    with pytest.raises(RunError, match="the clients' data are not the run's"):
        look.look(tmp_path)
    monkeypatch.setattr("undrift.runs.reading.open_checkpoint.sample_clients", lambda *_: [0])
    with pytest.raises(RunError, match="only 1 of its clients has examples"):
        look.look(ended)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(settings().toml())
    (tmp_path / "run" / "lens").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="run/lens: it is a symbolic link, which is not followed"):
        look.look(tmp_path / "run", round=1)


@pytest.mark.quick
def test_the_command(ended: Path) -> None:
    flags = ["--clients", "3", "--examples", "20"]
    shown = CliRunner().invoke(
        app, ["lens", str(ended), *flags, "--parts", "spectrum,divergence,heterogeneity,alignment"]
    )
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    for words in (
        "agreement in band",
        "Clients agree most in band",
        "head.weight",
        "pull apart most in",
        "variance between clients",
        "(CKA,",
    ):
        assert words in text, words
    found = CliRunner().invoke(app, ["lens", str(ended), *flags, "--parts", "curvature", "--json"])
    assert json.loads(found.output)["curvature"]["trace_error"] > 0
    refused = CliRunner().invoke(app, ["lens", str(ended), "--parts", "x"])
    assert refused.exit_code == 2 and "undrift lens: look: no part is named 'x'; known are spectrum" in refused.output


@pytest.mark.sweep(every=4)
def test_stale_displacements_of_a_run_with_a_schedule(tmp_path: Path, ended: Path) -> None:
    config = settings(method="scaffold", schedule="buffered(2)", durations="log-normal(1, sd=1.5)", cohort=4, rounds=5)
    folder = start(config, tmp_path / "run").folder
    found = look.look(folder, clients=3, examples=40, parts=("staleness",))["staleness"]
    assert 1 <= len(found["clients"]) <= 3 and all(age >= 1 for age in found["ages"])
    assert len(found["agreement"]) == len(found["ratio"]) == 10 and all(-1 <= x <= 1 for x in found["agreement"])
    output = CliRunner().invoke(app, ["lens", str(folder), "--parts", "staleness", "--clients", "3"]).output
    assert "agree with fresh ones" in " ".join(output.split())
    assert "staleness" not in look.look(ended, clients=5, examples=40, points=3, parts=("staleness",))
