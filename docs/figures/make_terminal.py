"""Record a terminal: `python docs/figures/make_terminal.py [OUT]` writes terminal.svg from a real comparison.

It runs `undrift compare` on a pseudo-terminal, so that it draws as it does for a person, keeps what is on the screen at
the end, and lets rich export it. The runs go to OUT, or to a temporary folder.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from canvas import HERE, MONO
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

WIDTH = 116
ROOT = HERE.parents[1]
COMMAND = "undrift compare examples/compare-digits.toml"


def record(folder: Path) -> list[str]:
    """The lines that the command leaves on a terminal, with their colours."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "LINES": "40", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    words = [sys.executable, "-m", "undrift", *COMMAND.split()[1:], "--out", str(folder)]
    process = subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, env=environment, cwd=ROOT)  # noqa: S603
    os.close(follower)
    output = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed: the command has ended
            break
        if not part:
            break
        output += part
    if process.wait():
        raise SystemExit(f"make_terminal.py: {COMMAND} ended with {process.returncode}:\n{output.decode()}")
    text = output.decode().replace("\r\n", "\n").replace(str(folder), "runs/compare-digits")
    lines = [line.split("\r")[-1] for line in text.split("\n")]  # a bar that is drawn again begins with a return
    return [re.sub(r"\x1b\[(\?\d+[hl]|\d*[KA])", "", line) for line in lines]


def main() -> None:
    """Run the command and write the picture."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(f"[bold green]$[/] [bold]{COMMAND}[/]", highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        for line in record(Path(sys.argv[1] if len(sys.argv) > 1 else folder).resolve()):
            if line.strip():
                console.print(Text.from_ansi(line), soft_wrap=True)
    svg = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # no fonts from the network
    text = console.export_svg(
        title="undrift", code_format=svg.replace("Fira Code, monospace", MONO), unique_id="undrift"
    )
    (HERE / "terminal.svg").write_text(text)


if __name__ == "__main__":
    main()
