"""A client leaves: its states are deleted, it is never selected again, and a run without it can be trained."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.audit import events
from support.own_tasks import SETTINGS, lines
from undrift import Local, Simulation, make
from undrift.cli import app
from undrift.engine.round.quarantine import WITHDRAWN
from undrift.runs import resume, start, unlearn, verify, withdraw
from undrift.runs.folder.files import RunError, RunLockedError
from undrift.testing import fingerprint
from undrift.util.storage.metrics import Metrics


class Stop(Exception):
    """Ends a run after a round."""


def run(folder: Path, rounds: int = 6, stop: int | None = None, **more: Any) -> Any:
    """A run of a method with clients' states, which may stop after a round."""

    def stopping(row: dict[str, Any]) -> None:
        if row["round"] == stop:
            raise Stop

    settings = {**SETTINGS, "method": "scaffold", "rounds": rounds, "cohort": 2, **more}
    return start(task=lines(name="lines"), folder=folder, watch=stopping, **settings)


def never_had(client: int, rounds: int = 6, method: str = "scaffold") -> str:
    """The hash of a training that the client had left before its first round."""
    with Simulation(make(method), lines(name="lines"), Local(**SETTINGS["local"]), cohort=2) as simulation:
        simulation.quarantined.withdrawn.add(client)
        return fingerprint(simulation.run(rounds))


def test_a_client_that_has_left_takes_no_part_and_has_no_states(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run(tmp_path / "run", stop=3, cohort=4)
    states = tmp_path / "run" / "clients" / "0" / "1"
    assert any(states.iterdir())
    told = withdraw(tmp_path / "run", 1)
    assert "never selected again" in told[0] and "states deleted" in told[1] and not states.exists()
    withdraw(tmp_path / "run", 1)  # again: nothing more
    outcome = resume(tmp_path / "run", task=lines(name="lines"))
    found = events(tmp_path / "run")
    assert [event["client"] for event in found if event["event"] == "withdraw"] == [1]
    left = [(event["round"], event["client"]) for event in found if event.get("detail") == WITHDRAWN]
    assert left == [(4, 1), (5, 1), (6, 1)] and not states.exists()
    assert [row["clients"] for row in Metrics(tmp_path / "run" / "metrics.jsonl").rows()] == [4, 4, 4, 3, 3, 3]
    assert verify(outcome.folder).intact


@pytest.mark.parametrize("method", ["scaffold", "fedavg"])
def test_unlearning_gives_the_bits_of_a_run_without_the_client(method: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "run", method=method)
    result = unlearn(tmp_path / "run", 1, tmp_path / "without", task=lines(name="lines"))
    assert result is not None and result.sha256 == never_had(1, method=method) != whole.sha256
    assert verify(result.folder).intact and verify(whole.folder).intact
    assert not (result.folder / "clients" / "0" / "1").exists()
    facts = [event for event in events(result.folder) if event["event"] in ("unlearn", "withdraw")]
    assert [event["client"] for event in facts] == [1, 1]


def test_unlearning_begins_at_the_last_checkpoint_before_the_client(tmp_path: Path) -> None:
    """All checkpoints are kept, and the client is drawn late: the rounds before are not trained again."""
    output = {"keep": 20}
    whole = run(tmp_path / "run", rounds=8, output=output)
    with Simulation(make("scaffold"), lines(name="lines"), cohort=2) as simulation:
        drawn = [simulation.sample(round) for round in range(8)]
    first = {client: min((r for r in range(1, 9) if client in drawn[r - 1]), default=9) for client in range(4)}
    client, late = max(first.items(), key=lambda item: item[1])
    assert 1 < late <= 8, first
    result = unlearn(whole.folder, client, tmp_path / "without", task=lines(name="lines"))
    assert result is not None and result.sha256 == never_had(client, rounds=8)
    (event,) = [event for event in events(result.folder) if event["event"] == "unlearn"]
    assert event["round"] == late - 1


def test_what_cannot_be_withdrawn_is_refused(tmp_path: Path) -> None:
    whole = run(tmp_path / "run", rounds=1)
    with pytest.raises(RunError, match="there is no client 99: clients are numbered from 0; the run has 4"):
        withdraw(whole.folder, 99)
    with pytest.raises(RunError, match="exists"):
        unlearn(whole.folder, 1, whole.folder)

    def leaving(row: dict[str, Any]) -> None:
        withdraw(tmp_path / "live", 1)

    with pytest.raises(RunLockedError, match="another process is running it"):
        start(task=lines(name="lines"), folder=tmp_path / "live", watch=leaving, **SETTINGS)
    said = CliRunner().invoke(app, ["withdraw", str(whole.folder), "2"])
    assert said.exit_code == 0 and "client 2 has left" in said.stdout
    said = CliRunner().invoke(app, ["withdraw", str(whole.folder), "7"])
    assert said.exit_code == 2 and "there is no client 7" in said.stderr
