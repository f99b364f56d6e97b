"""The table of conformance: its page is up to date, and every difference in it is explained by a formula."""

import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "conformance"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def test_the_page_is_up_to_date() -> None:
    import conformance

    results = json.loads(conformance.RESULTS.read_text())
    assert conformance.PAGE.read_text() == conformance.page(results), "run python benchmarks/conformance/conformance.py"


def test_every_difference_is_explained() -> None:
    import conformance
    from differences import DIFFERENCES

    results = json.loads(conformance.RESULTS.read_text())
    cells = {
        (library, method): conformance.word(verdict)
        for library, result in results.items()
        for method, verdict in result["methods"].items()
    }
    assert {place for place, cell in cells.items() if cell == "differs"} == set(DIFFERENCES)
    assert set(cells.values()) == {"yes", "differs", "not there", "does not run"}
    assert all(cells[place] == "yes" for place in conformance.NOTES)


def test_a_formula_differs_from_the_paper() -> None:
    from differences import DIFFERENCES
    from task import expected

    for (_, method), (_, formula) in DIFFERENCES.items():
        assert min(np.abs(formula() - paper).max() for paper in expected(method)) > 1e-2


def test_undrift_conforms() -> None:
    import conformance
    from libraries import undrift_local
    from task import HYPER

    for method in HYPER:
        verdict = conformance.judged("Undrift", method, {"models": undrift_local.run(method)})
        assert verdict["distance"] <= conformance.TOLERANCE, method


def test_the_page_of_coverage_is_up_to_date() -> None:
    import coverage_of_libraries as coverage

    assert coverage.PAGE.read_text() == coverage.page(coverage.stored()), "run make conformance"


def test_at_least_25_methods_are_in_no_other_library() -> None:
    import coverage_of_libraries as coverage

    found = coverage.table(coverage.stored())
    alone = {method for method, having in found.items() if not having} - set(coverage.OWN)
    assert len(alone) >= 25 and {"fedmuon", "fednsam", "fedgps", "fedloge", "feduv"} <= alone
    assert {"Flower", "fluke", "FedLab", "PFLlib"} <= set(found["fedavg"]) and "fluke" in found["fedexp"]


def test_names_of_other_libraries() -> None:
    import coverage_of_libraries as coverage

    assert "fedexp" in coverage.keys("FedExPServer") and "qfedavg" in coverage.keys("qFedAvgServerHandler")
    assert "scaffold" in coverage.keys("ScaffoldSerialClientTrainer") and "fedmuon" not in coverage.keys("FedMuonCV")


def test_classes_and_modules_are_read_without_importing(tmp_path: Path) -> None:
    import coverage_of_libraries as coverage

    package = tmp_path / "peer" / "lib" / "thing"
    (package / "algorithms").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError\n")
    (package / "algorithms" / "fedx.py").write_text("class FedX:\n    pass\n")
    assert coverage.installed("thing", tmp_path) is None, "it has no version"
    (tmp_path / "peer" / "lib" / "thing-1.2.dist-info").mkdir()
    assert coverage.installed("thing", tmp_path) == {"version": "1.2", "names": ["FedX", "fedx", "thing"]}
