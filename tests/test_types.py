"""The annotations are true when the code runs: beartype checks every call of a few whole runs."""

import subprocess
import sys

import pytest

SCRIPT = """
import logging, sys
from beartype import BeartypeConf
from beartype.claw import beartype_package

beartype_package("undrift", conf=BeartypeConf(claw_is_pep526=False))
logging.disable()

from undrift import Local, Simulation
from undrift.algorithms import ALGORITHMS, make, specgrad
from undrift.blocks import gaussian
from undrift.testing import clinic
from undrift.testing.contract import check_wire

every = [*(make() for make in ALGORITHMS.values()), specgrad(host=make("scaffold"), filter=gaussian(0.1))]
for algorithm in every[int(sys.argv[1])::int(sys.argv[2])]:
    Simulation(algorithm, clinic(algorithm), Local(batch_size=6), cohort=3).run(2)
check_wire(make("fedlesam-s"), clinic(make("fedlesam-s")))
"""
PARTS = 8


@pytest.mark.sweep(every=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_annotations_hold_at_run_time(part: int) -> None:
    words = [sys.executable, "-c", SCRIPT, str(part), str(PARTS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
