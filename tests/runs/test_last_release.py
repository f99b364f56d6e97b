"""A run that release 0.2.0 began goes on with this program, to the bits that 0.2.0 gave."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from golden.test_golden import WRITTEN, machine
from support.release import old_source
from undrift.runs import resume, verify
from undrift.runs.folder.backup import unpack

HALF = Path(__file__).with_name("run-0.2.0.tar.gz")
"""Two rounds of SCAFFOLD on digits with six clients, by release 0.2.0."""
WHOLE = "bfc4a69a1c064bb534ff9b2ba2749b7f36bf39fec002e7866a114eda4c0315fb"
"""The hash after four rounds, by release 0.2.0."""

METHODS = ["fedavgm", "feddyn", "fedadam", "fedfft-d", "fedfsa", "fedper", "median"]
BEGIN = """
import sys
from undrift.cli import app
app(["run", sys.argv[1], "--data", "digits", "--model", "mlp(width=4, depth=1)", "--clients", "6", "--cohort", "3",
     "--partition", "dirichlet:0.3", "--set", "local.steps=3", "--rounds", sys.argv[2], "--out", sys.argv[3]])
"""


def test_a_run_of_the_last_release_goes_on_to_its_bits(tmp_path: Path) -> None:
    with tarfile.open(HALF) as archive:
        unpack(archive, tmp_path)
    run = tmp_path / "half"
    assert verify(run).intact, verify(run).problems
    outcome = resume(run, rounds=4)
    assert outcome.trained and verify(run).intact, verify(run).problems
    if machine() == WRITTEN:
        assert outcome.sha256 == WHOLE


@pytest.mark.slow
def test_runs_of_other_methods_go_on_to_the_bits_of_the_last_release(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(old_source(tmp_path / "release")), "OMP_NUM_THREADS": "1"}
    for method in METHODS:
        for rounds, name in ((4, "whole"), (2, "half")):
            command = [sys.executable, "-c", BEGIN, method, str(rounds), str(tmp_path / method / name)]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr[-2000:]
        whole = json.loads((tmp_path / method / "whole" / "summary.json").read_text())["sha256"]
        assert resume(tmp_path / method / "half", rounds=4).sha256 == whole, method
