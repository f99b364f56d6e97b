"""Runs on data and partitions of one's own: by command line and file, resumed, compared, rehearsed, on Ray."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from undrift.cli import app
from undrift.data.partitions.draw import parse
from undrift.runs import Config, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.loop.dry_run import dry_run
from undrift.runs.reading.open_checkpoint import look
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.prepare import default_model, prepare
from undrift.studies import Comparison, compare

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
Image = pytest.importorskip("PIL.Image")

SMALL = {"data": "./scans", "partition": "column:site", "rounds": 4, "local": {"batch_size": 10}}


def coded(value: int) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(value).integers(0, 256, (6, 6), dtype=np.uint8)).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with scans of three sites, a table of houses and lists of clients."""
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scans").mkdir()
    for split, count in (("train", 60), ("test", 12)):
        columns = {
            "image": [coded(i) for i in range(count)],
            "label": [i % 2 for i in range(count)],
            "site": ["bonn" if i < 6 else "rome" if i % 3 else "lima" for i in range(count)],
        }
        parquet.write_table(pa.table(columns), tmp_path / "scans" / f"{split}.parquet")
    (tmp_path / "clients.json").write_text(json.dumps({"a": list(range(30)), "b": list(range(30, 55))}))
    houses = [f"{2 * i},{i % 7},{i / 3},{'xy'[i % 2]}" for i in range(50)]
    (tmp_path / "houses.csv").write_text("\n".join(["size,rooms,price,town", *houses]))
    return tmp_path


def run_cli(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


def test_a_run_by_command_line_resumes_to_the_bit(here: Path) -> None:
    words = ("run", "fedavg", "--data", "./scans", "--partition", "column:site", "--batch-size", "10")
    assert (done := run_cli(*words, "--rounds", "2", "--out", "run")).exit_code == 0, done.output
    whole = start(Config.build(SMALL), here / "whole")
    assert resume(here / "run", rounds=4).sha256 == whole.sha256
    held = Config.read(here / "run" / "config.toml")
    assert held.data == "./scans" and held.partition == "column('site')" and held.clients == 3 and held.cohort == 3
    assert len(json.loads((here / "run" / "clients.json").read_text())["accuracy"]) == 3


def test_a_resume_elsewhere_says_where_the_data_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Config.build(SMALL | {"rounds": 1}), here / "run")
    (here / "else").mkdir()
    monkeypatch.chdir(here / "else")
    with pytest.raises(FileNotFoundError, match=r"\./scans: no such file or folder; relative paths start from the w"):
        resume(here / "run", rounds=2)


def test_another_partition_file_is_refused(here: Path) -> None:
    start(Config.build(SMALL | {"partition": "file:clients.json", "rounds": 1}), here / "run")
    (here / "clients.json").write_text(json.dumps([[0, 1], [2, 3]]))
    with pytest.raises(RunError, match=r"partition: clients\.json: the file has changed"):
        resume(here / "run", rounds=2)


@pytest.mark.sweep(every=0)
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_gives_the_same_bits(here: Path) -> None:
    pytest.importorskip("ray")
    local = start(Config.build(SMALL), here / "local")
    ray = start(Config.build(SMALL | {"engine": {"name": "ray", "workers": 2}}), here / "ray")
    assert ray.sha256 == local.sha256


def test_a_file_with_arguments_and_a_comparison(here: Path) -> None:
    (here / "run.toml").write_text(
        'partition = "file:clients.json"\nrounds = 1\n[data]\nname = "./scans"\nowner = "site"\nresize = 8\n'
    )
    config = Config.read(here / "run.toml")
    assert config.data == "./scans(owner='site', resize=8)"
    setup = prepare(config)
    assert setup.data_task.dataset.shape == (1, 8, 8) and setup.partition is not None
    assert setup.partition.sizes.tolist() == [30, 25]
    assert setup.config.model == "mlp"
    values = {"base": SMALL | {"rounds": 1}, "methods": [{"method": "fedavg"}, {"method": "fedsam"}], "seeds": [0]}
    compare(Comparison.build(values, "here"), here / "comparison")
    assert (here / "comparison" / "table.json").is_file()


def test_a_dry_run_takes_the_data_themselves(here: Path) -> None:
    assert dry_run(Config.build(SMALL)).summary["rounds"] == 1
    (here / "far.json").write_text(json.dumps([[0, 1], [59_999]]))
    dry_run(Config.build({"data": "fashion-mnist", "partition": "file:far.json", "model": "mlp"}))


@pytest.mark.quick
def test_the_partition_command(here: Path) -> None:
    for data, partition, sizes in (
        ("./scans", "column:site", [6, 18, 36]),
        ("houses.csv(target='price')", "column:town", [22, 23]),
        ("houses.csv(target='price')", "iid", [45]),
        ("digits", "file:clients.json", [25, 30]),
    ):
        done = run_cli("partition", "--data", data, "--partition", partition, "--out", "split.png", "--json")
        assert done.exit_code == 0, done.output
        found = json.loads(done.output[done.output.index("{") :])
        assert parse(found["scheme"]) == parse(partition) and [found["size_min"], found["size_max"]] == [
            min(sizes),
            max(sizes),
        ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--data", "./scans", "--partition", "column:place"),
            "./scans: train has no column 'place'; found image, label",
        ),
        (("--data", "digits", "--partition", "column:place"), "digits has no column 'place' of owners; use another"),
        (("--data", "houses.csv"), "houses.csv: name the column to predict, one of size, rooms, price, town"),
        (
            ("--data", "houses.csv(target='price')"),
            "these targets are numbers; use iid, column('NAME'), file('clients.json')",
        ),
        (
            ("--data", "./scans(owner='label')", "--partition", "column:site"),
            "./scans has owner = 'label'; name the same",
        ),
        (("--data", "./scans", "--model", "cn"), "no model is named 'cn'"),
        (("--data", "scan"), "no data set is named 'scan'"),
        (("--data", "digits", "--partition", "file:none.json"), "file('none.json'): No such file or directory"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(words: tuple[str, ...], message: str) -> None:
    done = run_cli("run", "fedavg", *words)
    assert done.exit_code == 2 and message in done.output and done.output.count("\n") <= 3, done.output


def test_default_models_fit_the_size() -> None:
    from undrift.data import load

    assert default_model(load("digits"), Config().algorithm()) == "mlp"
    assert default_model(load("digits", resize=16), Config().algorithm()) == "small-cnn"
    with pytest.raises(ConfigError, match="model 'cnn' reads image data and these are table data; try 'mlp'"):
        prepare(Config.build({"data": "houses.csv(target='price')", "partition": "iid", "model": "cnn"}))


@pytest.mark.parametrize("target", ["y", "y;z"])
def test_the_lens_compares_no_classes_where_targets_are_numbers(target: str, here: Path) -> None:
    draw = np.random.default_rng(0).random((60, 4))
    lines = [",".join([*map(str, row), "pqr"[n % 3]]) for n, row in enumerate(draw.tolist())]
    (here / "numbers.csv").write_text("\n".join(["a,b,y,z,site", *lines]) + "\n")
    data = f"numbers.csv(target={target!r}, inputs='a;b')"
    result = run_cli("run", "fedavg", "--data", data, "--partition", "column:site", "--rounds", "1", "--out", "run")
    assert result.exit_code == 0, result.output
    found = look(Path("run"), parts=["embedding", "joint", "views"], clients=3)
    assert set(found["skipped"]) == {"tsne_features", "joint"} and "features of each class" not in found["views"]
    assert found["embedding"]["pca_update"]["points"]
