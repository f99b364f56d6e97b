"""The annotations are true when the code runs: beartype checks every call of a few whole runs."""

import subprocess
import sys

SCRIPT = """
import logging
from beartype import BeartypeConf
from beartype.claw import beartype_package

beartype_package("undrift", conf=BeartypeConf(claw_is_pep526=False))
logging.disable()

from undrift import Local, Simulation
from undrift.algorithms import ALGORITHMS, make, specgrad
from undrift.blocks import gaussian
from undrift.testing import clinic
from undrift.testing.contract import check_wire

for algorithm in [*(make() for make in ALGORITHMS.values()), specgrad(host=make("scaffold"), filter=gaussian(0.1))]:
    Simulation(algorithm, clinic(algorithm), Local(batch_size=6), cohort=3).run(2)
check_wire(make("fedlesam-s"), clinic(make("fedlesam-s")))
"""


def test_annotations_hold_at_run_time() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
