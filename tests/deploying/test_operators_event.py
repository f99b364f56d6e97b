"""Changes of the proxy's list of operators are events of the run."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from support.deploy_runs import deployed
from undrift.deploying.operators import Operators, compare_operators, read_operators
from undrift.runs import verify

ANNA, BEN = "0a" * 20, "1b" * 20


def test_an_operator_who_comes_or_goes_is_an_event_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "operators.map"
    path.write_text(f'# who may control it\n{ANNA} "anna read start admit";\n')

    def change(state: Any, _: Any) -> None:
        if state.round == 2:
            path.write_text(f'{BEN} "ben read";\n')

    run = deployed("fedavg", tmp_path, rounds=4, operators=path, on_round=change).folder
    events = [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]
    first, second = [event for event in events if event["event"] == "operators"]
    assert first["operators"] == {ANNA: {"name": "anna", "rights": ["read", "start", "admit"]}}
    assert second["added"] == {BEN: {"name": "ben", "rights": ["read"]}} and second["changed"] == {}
    assert list(second["removed"]) == [ANNA] and first["sha256"] != second["sha256"]
    assert events.index(second) < max(n for n, event in enumerate(events) if event["event"] == "commit")
    assert verify(run).intact


def test_a_list_of_operators_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    noted: list[dict[str, Any]] = []
    path = tmp_path / "operators.map"
    watched = Operators(path, lambda **facts: noted.append(facts))
    for text in (None, 'anna "read";', f'{ANNA} "anna read";', f'{ANNA} "anna read start";'):
        if text is not None:
            path.write_text(text)
        for _ in range(2):
            watched.check()
    assert ["error" in facts for facts in noted] == [True, True, False, False]
    assert "line 1" in noted[1]["error"] and noted[2]["operators"][ANNA]["rights"] == ["read"]
    assert noted[3]["changed"] == {ANNA: {"name": "anna", "rights": ["read", "start"]}}
    Operators(None, lambda **facts: noted.append(facts)).check()
    assert len(noted) == 4


def test_a_list_of_operators_by_hand() -> None:
    text = f'\n# nobody\n  {ANNA.upper()} "anna read start";  # since May\n"{BEN}" "ben";\n'
    found = read_operators(text)
    assert found == {ANNA: {"name": "anna", "rights": ["read", "start"]}, BEN: {"name": "ben", "rights": []}}
    with pytest.raises(ValueError, match="line 2"):
        read_operators(f'{ANNA} "anna read";\n{BEN} ben read;\n')
    assert compare_operators(found, {BEN: found[BEN]}) == {"added": {}, "removed": {ANNA: found[ANNA]}, "changed": {}}
