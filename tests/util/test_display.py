"""The progress of a training: lines in a log, one line on a terminal, one output in a notebook."""

from io import StringIO

import pytest
from rich.console import Console

from undrift.util.display import progress
from undrift.util.display.progress import Progress
from undrift.util.steps import tell, warn


@pytest.mark.quick
def test_a_log_has_the_first_and_the_last_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "perf_counter", lambda: 0.0)
    text = StringIO()
    with Progress(100, console=Console(file=text)) as bar:
        for done in range(1, 101):
            bar.update(done, f"accuracy [{done}]")
    assert text.getvalue().splitlines() == [
        "1 of 100 rounds done  accuracy [1]  (0 s)",
        "100 of 100 rounds done  accuracy [100]  (0 s)",
    ]


def test_nothing_is_shown_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(3, shown=False) as bar:
        bar.update(3, "done")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar() -> None:
    text = StringIO()
    with Progress(2, console=Console(file=text, force_terminal=True, width=100)) as bar:
        bar.update(2, "accuracy [bold]")
    assert "2/2" in text.getvalue() and "accuracy [bold]" in text.getvalue()


def test_a_notebook_has_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Cell:
        def display(self, shown: object) -> None:
            seen.append(f"display {shown!r}")

        def update(self, shown: progress._Html) -> None:
            seen.append(shown._repr_html_())

    monkeypatch.setattr(progress, "_notebook_cell", Cell)
    with Progress(100) as bar:
        for done in range(1, 101):
            bar.update(done, "loss <1>")
    assert seen[0].startswith("display 0 of 100 rounds") and len(seen) < 10
    assert seen[-1].startswith('<progress value="100" max="100">') and "loss &lt;1&gt;" in seen[-1]


def test_a_warning_is_shown_and_handed_to_the_log_of_a_program(caplog: pytest.LogCaptureFixture) -> None:
    text = StringIO()
    with Progress(2, console=Console(file=text)):
        warn("worker %d was lost", 3)
        tell("round 1, client 1 of 2")
    assert "worker 3 was lost" in text.getvalue() and "round 1, client 1 of 2" in text.getvalue()
    assert [record.getMessage() for record in caplog.records] == ["worker 3 was lost"]
