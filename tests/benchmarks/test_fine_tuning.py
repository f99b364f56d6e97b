"""The study of fine-tuning with adapters: its text, its product error, its tuning, and what its lines hold."""

from collections import Counter
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from undrift import Local, Simulation, TensorTask, parse
from undrift.core import bind
from undrift.lens import client_vectors, product_errors

ROOT = Path(__file__).parents[2]


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The study with a base that is hardly trained."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "studies")
    import fine_tuning

    monkeypatch.setattr(fine_tuning, "PRETRAINING", 2)
    fine_tuning.pretrained.cache_clear()
    yield fine_tuning
    fine_tuning.pretrained.cache_clear()


def simulate(study: Any, label: str, rounds: int, watched: Any = None) -> tuple[Simulation, Any, Any]:
    """Some rounds of three clients: the simulation, the state before the last round, and the last one."""
    row, text = study.ROWS[label], study.write(study.evenly(12), 5)
    task = TensorTask(lambda: study.build(row.model), text.inputs, text.targets, torch.arange(12).split(4))
    local = Local(lr=0.5, steps=3, batch_size=4)
    simulation = Simulation(parse(row.method), task, local, backend=watched, failures="raise")
    before = simulation.run(rounds - 1)
    return simulation, before, simulation.round(before)[0]


def test_text_follows_its_topic(study: Any) -> None:
    text = study.write(study.evenly(80), 3)
    assert Counter(text.topics.tolist()) == {study.TOPICS + topic: 20 for topic in range(study.TOPICS)}
    assert torch.equal(text.inputs[:, 1:], text.targets[:, :-1]) and text.inputs.shape == (80, study.LENGTH)
    allowed = study.followers()[text.topics[:, None], text.inputs]
    places = (allowed == text.targets[..., None]).double().mean(dim=(0, 1))
    assert float(places.sum()) == pytest.approx(1)
    assert places.tolist() == pytest.approx(study.CHANCES, abs=0.05)
    assert not torch.equal(text.inputs, study.write(study.evenly(80), 4).inputs)


def test_a_watched_run_is_a_plain_one(study: Any) -> None:
    plain, ours = (simulate(study, "FedIT", 3, backend)[2] for backend in (None, study.Watched()))
    assert torch.equal(plain.params, ours.params)


def test_the_product_error_of_plain_means_is_that_of_the_lens(study: Any) -> None:
    watched = study.Watched()
    simulation, before, after = simulate(study, "FedIT", 3, watched)
    layout = bind(simulation.task.model()).layout
    updates = client_vectors(simulation, before, range(3), "update")
    found = product_errors(layout, before.params, updates)
    whole = sum((x.error / x.relative) ** 2 for x in found)
    expected = sqrt(sum(x.error**2 for x in found) / whole)
    assert study.product_error(layout, before.params, after.params, watched.moves) == pytest.approx(expected, rel=1e-4)
    assert expected > 1e-4


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("label", ["FFA-LoRA", "RoLoRA", "FedEx-LoRA", "FLoRA", "FedRot-LoRA", "LoRA-FAIR"])
def test_the_product_error_of_methods(study: Any, label: str) -> None:
    watched = study.Watched()
    simulation, before, after = simulate(study, label, 2, watched)
    error = study.product_error(bind(simulation.task.model()).layout, before.params, after.params, watched.moves)
    if label in ("FedRot-LoRA", "LoRA-FAIR"):
        assert 1e-5 < error < 1
    else:
        assert error < 1e-5


def test_tuning_widens_until_the_best_is_inside_and_resumes(
    study: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []

    def train(label: str, lr: float, seed: int, text: Any) -> dict[str, Any]:
        made.append((lr, seed, len(text.topics)))
        value = 0.5 - abs(lr - 3.9 * study.ROWS[label].first) / 100
        rounds = study.EVALUATED[:-1] if lr > 5 * study.ROWS[label].first else study.EVALUATED
        return {"label": label, "lr": lr, "seed": seed, "curve": [[x, value, 1.0, value] for x in rounds]}

    monkeypatch.setattr(study, "train", train)
    first = study.ROWS["FedIT"].first
    lines = study.Lines(tmp_path / "lines.jsonl")
    best = pytest.approx(4 * first, rel=1e-4)
    assert lines.tuned("FedIT") == best
    assert sorted({lr / first for lr, _, _ in made}) == pytest.approx([2 ** (i / 2) for i in range(6)], rel=1e-4)
    assert {seed for _, seed, _ in made} == set(study.TUNING) and len(made) == 12
    assert study.Lines(tmp_path / "lines.jsonl").tuned("FedIT") == best and len(made) == 12


def test_a_training_that_diverges_has_no_score(study: Any) -> None:
    whole = [[x, 0.25, 2.0, 0.5] for x in study.EVALUATED]
    assert study.late({"curve": whole}, study.OWN) == 0.5
    assert study.late({"curve": whole[:-1]}, study.OWN) != study.late({"curve": whole[:-1]}, study.OWN)


def test_lines_of_another_base_are_refused(study: Any, tmp_path: Path) -> None:
    lines = study.Lines(tmp_path / "lines.jsonl")
    lines.check_base()
    study.Lines(tmp_path / "lines.jsonl").check_base()
    study.PRETRAINING = 3
    study.pretrained.cache_clear()
    with pytest.raises(SystemExit, match="began with other weights"):
        study.Lines(tmp_path / "lines.jsonl").check_base()


def test_every_committed_run_has_the_best_rate_of_trials_with_other_seeds(study: Any) -> None:
    from shared import read_lines

    trials: dict[str, dict[float, dict[int, float]]] = {}
    for line in read_lines(study.LINES):
        if line["kind"] == "trial":
            score = study.late(line, study.judge(line["label"]))
            trials.setdefault(line["label"], {}).setdefault(line["lr"], {})[line["seed"]] = score
    found = study.runs()
    assert found.keys() <= study.ROWS.keys()
    for label, row in found.items():
        (lr,) = {line["lr"] for line in row.values()}
        scores = {rate: sum(own.values()) for rate, own in trials[label].items()}
        assert all(set(own) == set(study.TUNING) for own in trials[label].values())
        assert min(scores) < lr < max(scores) and not set(row) & set(study.TUNING)
        assert scores[lr] == max(x for x in scores.values() if x == x), label
