"""FSA as a plug-in: compositions against their oracles, and the limits in which a host stays as it was."""

from functools import partial

import pytest

from oracle import methods, seeds
from support.rounds import View, close, flat, path
from test_oracle import TASKS
from undrift import parse

WEIGHTS = {"quadratics": ("conv_weight", "fc_weight"), "network": ("body.0.weight", "head.weight")}
FSA_IN = {
    "fedspeed(0.1, 0.2) + fsa(larger=0.5, count=1)": partial(seeds.fedspeed_fsa, mu=0.2, blend=1.0),
    "fedspeed(0.1, 0.2, 0.4) + fsa(larger=0.5, count=1)": partial(seeds.fedspeed_fsa, mu=0.2, blend=0.4),
    "fedsam(0.1) + fsa(larger=0.5, count=1)": partial(seeds.fedfsa, a=1.0),
    "mofedsam(0.1, 0.3) + fsa(larger=0.5, count=1)": partial(seeds.fedfsa, a=0.3),
}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("problem", ["clipped quadratics", "clipped network"])
@pytest.mark.parametrize("line", FSA_IN)
def test_fsa_in_a_host_equals_its_oracle(line: str, problem: str) -> None:
    task, local, _ = TASKS[problem]
    settings = methods.Settings(local.lr, local.decay, local.weight_decay, local.clip)
    view = View(task, local, cohort=3, seed=2)
    slow = FSA_IN[line](view, settings, 5, rho=0.1, larger=0.5, chosen=1, eligible=WEIGHTS[problem.split()[-1]])
    close(path(parse(line), task, local, 5, cohort=3, seed=2), flat(slow))


@pytest.mark.parametrize("host", ["fedsam(0.2)", "fedspeed(0.2, 0.2, 0.4)", "fedgamma(0.2)", "mofedsam(0.2)"])
def test_fsa_without_chosen_tensors_is_its_host(host: str) -> None:
    task, local, _ = TASKS["clipped quadratics"]
    expected = path(parse(host), task, local, 3, cohort=3, seed=2)
    for term in ("fsa(count=0)", "fsa(larger=0.2)"):
        close(path(parse(f"{host} + {term}"), task, local, 3, cohort=3, seed=2), expected)
