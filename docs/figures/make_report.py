"""Photograph a report: `python docs/figures/make_report.py runs/compare-digits` writes report.png; it needs Chromium.

The runs are those of `undrift compare examples/compare-digits.toml`.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from canvas import HERE

QUIET = "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --disable-background-networking"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Write the report of the folder and take a picture of its first screen."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if len(sys.argv) != 2 or browser is None:
        raise SystemExit("make_report.py: name the folder of the runs, and install Chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write = [sys.executable, "-m", "undrift", "report", sys.argv[1], "--out", str(page)]
        subprocess.run(write, check=True)  # noqa: S603
        flags = [*QUIET.split(), f"--user-data-dir={folder}/browser", "--window-size=1100,1150"]
        picture = [f"--screenshot={HERE / 'report.png'}", "--virtual-time-budget=5000", page.as_uri()]
        subprocess.run([browser, *flags, *picture], check=True, capture_output=True)  # noqa: S603


if __name__ == "__main__":
    main()
