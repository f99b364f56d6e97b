"""Every decoder raises only the error that it documents, quickly, whatever it is given."""

import json
import logging
import random
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

import run
import targets
from run import fuzz, statistics
from undrift.core.records.types import ServerState
from undrift.core.server import wire


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_good_inputs_are_accepted(name: str) -> None:
    for data in targets.TARGETS[name].seeds():
        data = data if name != "wire" or len(data[1:]) % 5 else data + b" "
        if name not in ("wire", "schedule", "partition", "config", "toml"):
            assert targets.attempt(name, data), data[:200]
        else:
            targets.attempt(name, data)


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("name", targets.TARGETS)
def test_three_hundred_changed_inputs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fuzz(name, 300, 20.0, seed=7)["inputs"] > 0


@pytest.mark.parametrize("name", ["config", "composition", "partition", "schedule", "augment", "reference", "records"])
@pytest.mark.sweep(every=2)
def test_texts_of_any_kind(name: str) -> None:
    words = [word.decode("latin-1") for word in targets.TARGETS[name].words]
    words += [part for seed in targets.TARGETS[name].seeds()[:8] for part in seed.decode().split(" ")]

    @settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.one_of(st.sampled_from(words), st.text(max_size=9)), max_size=9))
    def attempt(pieces: list[str]) -> None:
        targets.attempt(name, "".join(pieces).encode("utf-8", "surrogatepass"))

    attempt()


def test_mutations_are_reproducible() -> None:
    first, again = (list(islice(targets.mutations("wire", random.Random(3)), 20)) for _ in range(2))
    assert first == again


def test_a_forged_record_of_the_wrong_shape_is_refused() -> None:
    """The checksum of these fits: what is behind it must be refused by name."""
    algorithm, state = targets._state()
    tensors = wire.flatten(state)
    for field, odd in {
        "accepted": (torch.zeros(3), torch.zeros(2, 3), torch.tensor(1.0), torch.full((1, 2), 0.5)),
        "buffers": (torch.zeros((), dtype=torch.float32), torch.zeros(2, 2)),
        "params": (state.params[:-1], state.params[None]),
    }.items():
        for x in odd:
            with pytest.raises(wire.WireError, match=field):
                wire.restore(ServerState, algorithm, {**tensors, field: x}, len(state.params))


def test_what_was_tried_is_recorded_in_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = tmp_path / "faults.json"
    figures.write_text('{"R5": {}}')
    monkeypatch.setenv("UNDRIFT_FIGURES", str(figures))
    monkeypatch.setattr("sys.argv", ["run.py", "reference", "partition", "--inputs", "20"])
    assert run.main() == 0
    found = json.loads(figures.read_text())
    assert found["R5"] == {} and found["S4"]["random"]["faults"] == 0
    assert [one["inputs"] for one in found["S4"]["random"]["decoders"].values()] == [20, 20]


def test_blocks_that_do_not_fit_are_no_fault() -> None:
    """`drift:uniform` is a text of good words; inputs guided by coverage find it."""
    assert not targets.attempt("composition", b"drift:uniform") and targets.attempt("composition", b"drift:scaffold")


def test_statistics_of_a_guided_run() -> None:
    output = "#9 INITED cov: 1050 ft: 2\n#3000\tDONE   cov: 1078 ft: 1862\nstat::number_of_executed_units: 3000\n"
    assert statistics(output) == {"inputs": 3000, "edges_at_first": 1050, "edges": 1078}
    with pytest.raises(ValueError, match="no figures"):
        statistics("Killed")
