"""Settings that a second call leaves out, and data that have changed: nothing is overwritten and nothing mixed."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.core.model.modules import plain_copy
from undrift.models import build
from undrift.runs import Config, ConfigError, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.folder.verify import verify
from undrift.runs.setup.prepare import prepare
from undrift.studies import Comparison, compare
from undrift.studies.comparable import check_default_model, check_left_out, check_shared
from undrift.studies.tune import Tuning, tune

pytestmark = pytest.mark.usefixtures("tiny")

SETTINGS: dict[str, Any] = {**RUN, "output": {"lens_every": 0}}


def without(*names: str) -> dict[str, Any]:
    """The settings without some keys."""
    return {key: value for key, value in SETTINGS.items() if key not in names}


def stop(row: dict[str, Any]) -> None:
    raise KeyboardInterrupt


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(
    ("given", "difference"),
    [
        ({"cohort": 3}, "cohort: 3 there, 8 given"),
        ({"model": "mlp"}, "model: 'mlp' there, 'small-cnn' given"),
        ({"clients": 5}, "clients: 5 there, 6 given"),
    ],
)
def test_a_run_is_not_resumed_with_a_setting_left_out(given: dict[str, Any], difference: str, tmp_path: Path) -> None:
    folder, left = tmp_path / "run", without(*given)
    with pytest.raises(KeyboardInterrupt):
        start(folder=folder, watch=stop, **left | given)
    before = (folder / "config.toml").read_bytes()
    with pytest.raises(RunError, match=rf"contains a run with other settings \({difference}\); name another folder"):
        start(folder=folder, resume=True, **left)
    assert (folder / "config.toml").read_bytes() == before and not verify(folder).problems
    whole = start(folder=tmp_path / "whole", **left | given)
    assert resume(folder).sha256 == whole.sha256


def comparison(base: dict[str, Any], *rows: str, **more: Any) -> Comparison:
    return Comparison.build({"seeds": [0], "base": base, "methods": [{"method": row} for row in rows], **more})


def labels(table: dict[str, Any]) -> list[str]:
    return [row["label"] for row in table["rows"]]


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_comparison_without_its_cohort_is_refused(tmp_path: Path) -> None:
    compare(comparison(without() | {"cohort": 3}, "fedavg"), tmp_path)
    before = files(tmp_path)
    with pytest.raises(RunError, match=r"other settings \(cohort: 3 there, 8 given\)"):
        compare(comparison(without("cohort"), "fedavg", "fedprox"), tmp_path)
    assert files(tmp_path) == before


@pytest.mark.parametrize(("key", "value", "new"), [("clients", 5, 6), ("model", "mlp", "small-cnn")])
def test_a_new_row_is_not_added_to_rows_of_another_default(key: str, value: Any, new: Any, tmp_path: Path) -> None:
    base = without("cohort", "clients", "model")
    compare(comparison(base | {key: value}, "fedavg"), tmp_path)
    table = compare(comparison(base, "fedavg", "fedprox"), tmp_path)
    (failure,) = table["failures"]
    assert f"({key}: {value!r} in fedavg/seed-0, {new!r} in the next run): write in [base]" in failure["error"]
    assert labels(table) == ["fedavg"] and not (tmp_path / "fedprox").exists()


def test_rows_that_are_mixed_already_are_refused(tmp_path: Path) -> None:
    base = without("model")
    compare(comparison(base, "fedavg"), tmp_path)
    start(Config.build({**base, "method": "fedprox", "model": "mlp"}), tmp_path / "fedprox/seed-0")
    before, both = files(tmp_path), comparison(base, "fedavg", "fedprox")
    with pytest.raises(RunError, match="model: 'small-cnn' in fedavg/seed-0, 'mlp' in fedprox/seed-0") as refused:
        compare(both, tmp_path)
    assert files(tmp_path) == before and "name another folder with --out" in str(refused.value)
    with pytest.raises(RunError, match="have other settings"):
        check_left_out({trial.name: trial.config for trial in both.trials()}, tmp_path)


@pytest.mark.parametrize("rows", [("fedavg", "fedcr"), ("fedcr", "fedavg")])
def test_a_default_model_does_not_depend_on_the_order_of_rows(rows: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"fedcr needs a variational model and fedavg does not, .* write model = "):
        comparison(without("model"), *rows)
    given = {"seeds": [0], "base": without("model"), "methods": [{"method": row} for row in rows]}
    assert len(Comparison.build(given, check=False).trials(check=False)) == 2, "finished ones can be read"
    check_default_model(comparison(without("model"), "fedcr").trials())
    check_default_model(comparison(without() | {"model": "variational-cnn"}, *rows).trials())


def test_changed_data_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    lines = [f"{n % 7},{n % 5},{n % 2}" for n in range(80)]
    Path("own.csv").write_text("\n".join(["a,b,label", *lines]))
    base = without("model", "partition") | {"data": "own.csv(target='label')", "partition": "iid"}
    compare(comparison(base, "fedavg"), tmp_path / "out")
    Path("own.csv").write_text("\n".join(["a,b,label", "9,9,0", *lines[1:]]))
    for seeds, failed in (([0], ["fedprox/seed-0"]), ([0, 1], ["fedprox/seed-0", "fedavg/seed-1", "fedprox/seed-1"])):
        table = compare(comparison(base, "fedavg", "fedprox", seeds=seeds), tmp_path / "out")
        assert [failure["run"] for failure in table["failures"]] == failed and labels(table) == ["fedavg"]
        assert "data: own.csv: it has changed; restore it or start a new run" in table["failures"][0]["error"]
    Path("own.csv").write_text("\n".join(["a,b,label", *lines]))
    assert not compare(comparison(base, "fedavg", "fedprox"), tmp_path / "out")["failures"]


def test_changed_initial_weights_and_partitions_are_not_mixed(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = {key: x.clone() for key, x in plain_copy(build("small-cnn", classes=10, channels=1, image=28)).items()}
    save_file(weights, tmp_path / "w.safetensors")
    base = without() | {"init": str(tmp_path / "w.safetensors")}
    compare(comparison(base, "fedavg"), tmp_path / "out")
    save_file({key: x + 1 for key, x in weights.items()}, tmp_path / "w.safetensors")
    table = compare(comparison(base, "fedavg", "fedprox"), tmp_path / "out")
    assert "has changed since the run was started" in table["failures"][0]["error"] and labels(table) == ["fedavg"]
    save_file(weights, tmp_path / "w.safetensors")
    (trial,), setup = comparison(base, "fedavg").trials(), prepare(Config.build(base))
    runs = {trial.name: trial.config}
    check_shared(runs, tmp_path / "out", setup)
    noted = tmp_path / "out/fedavg/seed-0/partition.json"
    noted.write_text(json.dumps({**json.loads(noted.read_text()), "sha256": "0" * 64}))
    with pytest.raises(RunError, match="the clients' data are not the run's"):
        check_shared(runs, tmp_path / "out", setup)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize(("key", "value", "new"), [("clients", 5, 6), ("model", "mlp", "small-cnn")])
@pytest.mark.parametrize("rates", [[0.1, 0.2, 0.3], [0.05, 0.1, 0.2]])
def test_a_search_does_not_mix_trials_of_another_default(
    key: str, value: Any, new: Any, rates: list[float], tmp_path: Path
) -> None:
    base = without("cohort", "clients", "model", "method", "local")

    def searched(rates: list[float], **given: Any) -> dict[str, Any]:
        values = {"method": "fedavg", "grid": {"lr": rates}, "widenings": 0, "base": base | given}
        return tune(Tuning.build(values), tmp_path)

    searched([0.1, 0.2], **{key: value})
    with pytest.raises(RunError, match=rf"{key}: .*{new!r} in .*write in \[base\] what the finished runs have"):
        searched(rates)
    searched([0.1, 0.2], **{key: value})
