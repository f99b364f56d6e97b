"""Tables of several sites, prepared alike by sums over them: as if they were one table, and without one of its rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from undrift.data import DataError, load
from undrift.data.arrays.preprocess import Preprocess
from undrift.data.own.columns import Reading
from undrift.data.own.sites import Question, Site, SiteReply, prepare_sites

pytest.importorskip("pyarrow")

SEXES = (("f", "m"), ("f",), ("m", "x"))  # no site has all of them


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def write(target: str = "outcome") -> list[str]:
    """A folder with train.csv and test.csv for each of three sites, and one for all of them."""
    whole: dict[str, list[str]] = {"train": [], "test": []}
    head = f"age,bmi,sex,{target}"
    for site, sexes in enumerate(SEXES):
        draw = np.random.default_rng(site)
        for split, count in (("train", 40 + 7 * site), ("test", 10)):
            rows = []
            for number in range(count):
                age = "" if number % 9 == 4 else str(int(draw.integers(20 + 10 * site, 60)))
                last = ("home", "ward", "home")[number % (1 + site)] if target == "outcome" else f"{draw.normal():.4f}"
                rows.append(f"{age},{draw.normal(25 + site, 3):.3f},{sexes[number % len(sexes)]},{last}")
            whole[split] += rows
            Path(f"site{site}").mkdir(exist_ok=True)
            Path(f"site{site}/{split}.csv").write_text("\n".join([head, *rows]) + "\n")
    Path("all").mkdir()
    for split, rows in whole.items():
        Path(f"all/{split}.csv").write_text("\n".join([head, *rows]) + "\n")
    return [f"site{site}" for site in range(len(SEXES))]


def prepare(sites: list[str], **reading: Any) -> Preprocess:
    """As `prepare_sites` finds it, with questions and answers as JSON."""
    members = [Site(name) for name in sites]

    def ask(question: Question) -> list[SiteReply]:
        sent = Question.from_text(question.text(), question.given)
        replies = [member.reply(sent) for member in members]
        return [SiteReply(json.loads(json.dumps(reply.facts)), reply.arrays) for reply in replies]

    made = prepare_sites(ask, Reading(**reading))
    Path("preprocess.json").write_text(json.dumps(made.record()))
    return made


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("missing", ["mean", "median", "mode", "drop"])
@pytest.mark.parametrize("target", ["outcome", "stay"])
def test_sites_are_prepared_as_one_table(missing: str, target: str) -> None:
    sites = write(target)
    made = prepare(sites, target=target, inputs="age;bmi;sex", missing=missing)
    whole = load("all", target=target, inputs="age;bmi;sex", missing=missing)
    assert made == whole.preprocess
    parts = [
        load(name, prepared="preprocess.json", **({"missing": "drop"} if missing == "drop" else {}))  # type: ignore[arg-type]
        for name in sites
    ]
    for split in ("train", "test"):
        for part in ("inputs", "targets"):
            joined = torch.cat([getattr(getattr(data, split), part) for data in parts])
            assert torch.equal(joined, getattr(getattr(whole, split), part))
    assert {data.statistics for data in parts} == {"given"} and parts[0].labels == whole.labels


def test_the_statistics_are_those_of_the_rows_that_are_trained_on() -> None:
    sites = write()
    for name in sites:
        Path(name, "test.csv").unlink()
    made = prepare(sites, target="outcome", inputs="bmi")
    own = [load(name, prepared="preprocess.json").train.inputs.double() for name in sites]
    joined = torch.cat(own)
    assert joined.mean().item() == pytest.approx(0, abs=1e-6)
    assert joined.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert abs(float(own[0].mean())) > 0.1 and made.statistics == "exact"


def test_what_the_file_decides_is_not_given_again() -> None:
    sites = write()
    prepare(sites, target="outcome", inputs="bmi")
    with pytest.raises(ValueError, match=r"site0: prepared='preprocess.json' decides target, scale: leave that out"):
        load("site0", prepared="preprocess.json", target="outcome", scale="none")
    with pytest.raises(DataError, match=r"prepared='none.json': no preprocess.json of a run can be read there"):
        load("site0", prepared="none.json")
    Path("image.json").write_text(json.dumps(Preprocess("image", (1, 8, 8)).record()))
    with pytest.raises(DataError, match="it is of image data without named columns"):
        load("site0", prepared="image.json")
    Path("site0/train.csv").write_text("age,bmi,sex,outcome\n3,4,f,morgue\n" * 3)
    with pytest.raises(DataError, match="column 'outcome' has 'morgue', which is no class: these are home, ward"):
        load("site0", prepared="preprocess.json")


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        ({"target": "outcome"}, "tables of several sites may differ: name the columns"),
        ({"target": "outcome", "inputs": "bmi", "scale": "pooled"}, "reads the rows of all sites together"),
        ({"target": "outcome", "inputs": "weight"}, "site0 has no column 'weight'; found age, bmi, sex, outcome"),
        ({"target": "outcome", "inputs": "sex", "categories": "none"}, "'sex' has texts, and categories='none'"),
        ({"target": "outcome", "inputs": "age"}, "column 'age' has no value in row 4 of train; fill it"),
    ],
)
def test_what_cannot_be_prepared(reading: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, DataError), match=message):
        prepare(write(), **reading)


def test_columns_of_different_kinds_are_refused() -> None:
    sites = write()
    Path("site1/train.csv").write_text("age,bmi,sex,outcome\n" + "33,20.5,1,home\n31,20.5,2,home\n" * 5)
    Path("site1/test.csv").write_text("age,bmi,sex,outcome\n33,20.5,1,home\n")
    with pytest.raises(DataError, match="column 'sex' has texts at one site and numbers at another; write it alike"):
        prepare(sites, target="outcome", inputs="sex")
