"""The rows of FedFSA's tables: every method is evaluated after clients tune the classifier, and trains as before."""

from dataclasses import replace

import pytest
import torch

from oracle.methods import Settings
from oracle.personal import slope
from support.rounds import close, path
from test_personal_methods import GROUPED, LOCAL, SEED, Wide, own_models
from undrift import Algorithm, Simulation, parse
from undrift.algorithms import make
from undrift.blocks import Tuned

EPOCHS, ROUNDS, COHORT, HEAD = 2, 4, 3, {"head.weight", "head.bias"}
FSA = "fsa(rho=0.05, larger=0.9, count=2)"
ROWS = {
    "fedavg-ft": (make("fedavg-ft", epochs=EPOCHS), make("fedavg")),
    "fedala": (make("fedala", tuned=EPOCHS), make("fedala")),
    "fedfsa": (make("fedfsa", tuned=EPOCHS), make("fedfsa")),
    "random": (make("fedfsa-random", tuned=EPOCHS), make("fedfsa-random")),
    "reverse": (make("fedfsa-reverse", tuned=EPOCHS), make("fedfsa-reverse")),
    "fedala-fsa": (parse(f"fedala(tuned={EPOCHS}) + {FSA}"), parse(f"fedala + {FSA}")),
    **{
        host: (parse(f"{host} + tuned({EPOCHS})"), parse(host))
        for host in ("fedsam(0.05)", "mofedsam", "fedsmoo", "fedspeed", f"fedsam(0.05) + {FSA}", f"fedspeed + {FSA}")
    },
}
TASK, TRAINING = GROUPED, replace(LOCAL, clip=1.5, batch_size=4)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("label", ROWS)
def test_only_the_head_is_tuned_and_only_at_evaluation(label: str) -> None:
    """As FedFSA's and FedRep's code do it: the model received, a frozen body, plain SGD on the head for some epochs."""
    tuned, plain = ROWS[label]
    assert torch.equal(*(path(a, TASK, TRAINING, ROUNDS, COHORT, SEED) for a in (tuned, plain)))
    assert tuned.personalized
    untuned = (
        replace(plain, personalization=Tuned(0)) if plain.personalization == make("fedfsa").personalization else plain
    )
    found, begun = (evaluated(algorithm) for algorithm in (tuned, untuned))
    mixing = label.startswith(
        "fedala"
    )  # its clients begin with mixtures of their own, all others with the global model
    assert any(not torch.equal(one, begun[0]) for one in begun) == mixing
    problem, settings = Wide(TASK, TRAINING, COHORT, SEED), Settings(0.0, 1.0, TRAINING.weight_decay, TRAINING.clip)
    lr = TRAINING.lr * TRAINING.decay**ROUNDS  # that of the next round
    names = list(problem.start())
    layout = Simulation(plain, TASK, TRAINING).worker.model.layout
    for client, (end, start) in enumerate(zip(found, begun, strict=True)):
        x = dict(zip(names, (v.clone() for v in layout.split(start)), strict=True))
        for batch in problem.epochs(client, ROUNDS, EPOCHS):
            g = slope(settings, problem.gradient(x, batch), x, HEAD)
            x = {name: x[name] - lr * g[name] for name in names}
        close(end, torch.cat([x[name].reshape(-1) for name in names]))


def evaluated(algorithm: Algorithm) -> list[torch.Tensor]:
    """The model of every client after some rounds."""
    simulation = Simulation(algorithm, TASK, TRAINING, cohort=COHORT, seed=SEED)
    return own_models(simulation, simulation.run(ROUNDS))
