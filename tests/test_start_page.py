"""What docs/guide/start.md tells a newcomer to type works, in its order, in an empty folder."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from undrift.cli import app

PAGE = (Path(__file__).parent.parent / "docs" / "guide" / "start.md").read_text()
COMMANDS = [
    line.removeprefix("undrift ").split()
    for block in re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("undrift ")
]


@pytest.mark.sweep(every=4)
def test_the_commands_of_the_start_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.toml").write_text(re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)[0].replace("15", "2"))
    done = []
    for words in COMMANDS:
        if words[0] in ("doctor", "demo"):  # have tests of their own
            continue
        fewer = ["3" if word == "20" else "2" if word == "10" else word for word in words]  # rounds: the same, sooner
        result = CliRunner().invoke(app, fewer, catch_exceptions=False)
        assert result.exit_code == 0, f"{words}: {result.output}"
        done.append(words[0])
    assert done == ["run", "resume", "compare", "report"]
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert {path.parent.name for path in (tmp_path / "runs" / "first").glob("*/seed-0")} == {
        "fedavg",
        "fedprox",
        "scaffold",
    }
