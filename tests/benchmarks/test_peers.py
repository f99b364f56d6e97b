"""The peers benchmark: its protocol, with the contenders that need no other environment."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
DATA = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.sweep(every=0)
@pytest.mark.skipif(not DATA.is_dir(), reason="needs Debian's package dataset-fashion-mnist")
def test_contenders_take_turns_and_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one order Undrift's SCAFFOLD is the one written by hand."""
    monkeypatch.syspath_prepend(FOLDER)
    from peers import timed
    from table import markdown

    names = ["bare", "flower", "undrift", "undrift-together"]
    bare, ours, group = timed(names, tmp_path, "logistic", "scaffold", rounds=2, in_order=True)
    assert (bare["contender"], ours["contender"]) == ("bare", "undrift")  # Flower has no SCAFFOLD
    assert bare["over_bare"] == 1 and bare["seconds"] > 0 and ours["over_bare"] > 0
    assert bare["megabytes"] > 100 and bare["processes"] == 1 and bare["start_up"] > 0
    assert bare["parameters"] == ours["parameters"] == 7850
    assert bare["accuracy"] > 0.3 and bare["accuracy"] == pytest.approx(ours["accuracy"], abs=1e-3)
    assert group["accuracy"] == pytest.approx(ours["accuracy"], abs=1e-3)
    assert "| bare PyTorch | 1 |" in markdown({"rows": [bare, ours], "checks": []})
