"""FedFSA, FedWMSAM and FedSCAM: their oracles, the numbers and limiting cases of the sheet, and what always holds."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracle import methods, seeds
from support.rounds import View, close, flat, part_of, path, rounds_to, spy, watch
from test_oracle import TASKS
from undrift import Algorithm, Local
from undrift.algorithms import (
    fedavg,
    fedcm,
    fedfft_d,
    fedfsa,
    fedfsa_random,
    fedfsa_reverse,
    fedgamma,
    fedsam,
    fedscam,
    fedscam_sam,
    fedscam_wa,
    fedspeed,
    fedwmsam,
    mofedsam,
    scaffold,
)
from undrift.blocks import FSA, ByExamples, Tuned
from undrift.blocks.perturbation.fsa import Top, eligible, rank_scores, sensitivity
from undrift.core.method.block import Personalization
from undrift.core.model.flat_model import Layout, bind, unit
from undrift.core.model.random import generator
from undrift.models import CharLSTM, resnet
from undrift.testing import Quadratics

T2 = Quadratics.scalar((1, 3), (0, 4), 1.0, (1, 1))
TASK = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
LOCAL = Local(lr=0.05, epochs=5, batch_size=7)
UNEQUAL = Local(lr=0.05, decay=0.9, epochs=2, batch_size=2)
LAYOUT = Layout(tuple(TASK.start), tuple(tuple(x.shape) for x in TASK.start.values()))
SCORED: dict[str, Any] = {"kappa": 0.4, "gamma": 0.7, "beta": 0.6}


class Slopes(Quadratics):
    """Losses with constant gradients: the optima are the gradients."""

    def loss(self, model: nn.Module, batch: int) -> Tensor:
        return torch.cat([p.reshape(-1) for p in model.parameters()]) @ self.optima[batch]


def draw(client: int, round: int) -> list[float]:
    return torch.rand(2, generator=generator(2, round, client, "fsa")).tolist()


fsa = partial(seeds.fedfsa, rho=0.1, larger=0.5, chosen=1, a=0.3)
scam = partial(seeds.fedscam, rho=0.2, alpha=0.5, **SCORED)
CASES: dict[str, tuple[Algorithm, Callable[..., Any]]] = {
    "fedfsa": (fedfsa(0.1, 0.5, 1, 0.3), fsa),
    "fedfsa raw": (fedfsa(0.1, 0.5, 1, 0.3, "raw"), partial(fsa, measure="raw")),
    "fedfsa sum": (fedfsa(0.1, 0.5, 1, 0.3, "sum"), partial(fsa, measure="sum")),
    "fedfsa-random": (fedfsa_random(0.1, 0.5, 1, 0.3), partial(fsa, choice="random", draw=draw)),
    "fedfsa-reverse": (fedfsa_reverse(0.1, 0.5, 1, 0.3), partial(fsa, choice="smallest")),
    "fedwmsam": (fedwmsam(0.2, 0.3, 0.4), partial(seeds.fedwmsam, rho=0.2, a=0.3, lam=0.4)),
    "fedwmsam paced": (fedwmsam(0.2, 0.3, 0, paced=True), partial(seeds.fedwmsam, rho=0.2, a=0.3, lam=0, scaled=True)),
    "fedwmsam without variates": (
        fedwmsam(0.2, 0.3, 0.4, personalized=False),
        partial(seeds.fedwmsam, rho=0.2, a=0.3, lam=0.4, variates=False),
    ),
    "fedscam": (fedscam(0.2, 0.5, **SCORED), scam),
    "fedscam long sketch": (fedscam(0.2, 0.5, **SCORED, batches=2, length=7), partial(scam, batches=2, q=7)),
    "fedscam dampened": (fedscam(0.2, 0.5, **SCORED, clusters=2, damp=0.3), partial(scam, clusters=2, damp=0.3)),
    "fedscam-wa, some without weight": (fedscam_wa(1.0, 9.0), partial(seeds.fedscam, gamma=1.0, beta=9.0)),
    "fedscam-wa": (fedscam_wa(0.7, 0.6, 0.4), partial(seeds.fedscam, **SCORED)),
    "fedscam-sam": (fedscam_sam(0.2, 0.5, 0.4), partial(seeds.fedscam, rho=0.2, alpha=0.5, kappa=0.4)),
}
WEIGHTS = {"quadratics": ("conv_weight", "fc_weight"), "network": ("body.0.weight", "head.weight")}


def both(case: str, problem: str, **changes: Any) -> tuple[Tensor, Tensor]:
    (algorithm, oracle), (task, local, _) = CASES[case], TASKS[problem]
    local = replace(local, **changes)
    own: dict[str, Any] = {"eligible": WEIGHTS[problem.split()[-1]]} if case.startswith("fedfsa") else {}
    own |= {"epochs": local.epochs} if case.startswith("fedscam") else {}
    settings = methods.Settings(local.lr, local.decay, local.weight_decay, local.clip)
    view = View(task, local, cohort=3, seed=2)
    return path(algorithm, task, local, 4, cohort=3, seed=2), flat(oracle(view, settings, 4, **own))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("problem", ["clipped quadratics", "clipped network"])
@pytest.mark.parametrize("case", CASES)
def test_equals_its_oracle(case: str, problem: str) -> None:
    close(*both(case, problem))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("fedscam")])
def test_equals_its_oracle_with_weight_decay(case: str) -> None:
    close(*both(case, "quadratics", weight_decay=0.05))


def plug(host: Algorithm, *radii: Any, **more: Any) -> Algorithm:
    return replace(host, perturbation=FSA(*radii, **more))


def by_examples(algorithm: Algorithm) -> Algorithm:
    return replace(algorithm, aggregation=ByExamples())


SAME = {
    "larger=rho": (fedfsa(0.2, 0.2, 1, 0.3), mofedsam(0.2, 0.3)),
    "count=0": (fedfsa(0.2, 0.9, 0, 0.3), mofedsam(0.2, 0.3)),
    "larger=rho a=1": (fedfsa(0.2, 0.2, 1, 1.0), fedsam(0.2)),
    "rho=larger=0": (fedfsa(0.0, 0.0, 1, 0.3), fedcm(0.3)),
    "random, all": (fedfsa_random(0.1, 0.5, 5, 0.3), fedfsa(0.1, 0.5, 2, 0.3)),
    "reverse, all": (fedfsa_reverse(0.1, 0.5, 2, 0.3), fedfsa(0.1, 0.5, 9, 0.3)),
    "plug-in fedgamma": (plug(fedgamma(0.2), 0.2, 0.2), fedgamma(0.2)),
    "plug-in fedspeed": (plug(fedspeed(0.2, 0.2, 0.4), 0.2, 0.2, blend=0.4), fedspeed(0.2, 0.2, 0.4)),
    "plug-in fedfft-d": (plug(fedfft_d(0.2, 0.2, 0.2), 0.2, 0.2), fedfft_d(0.2, 0.2, 0.2)),
    "wmsam is fedcm": (fedwmsam(0.0, 0.3, 0.0, personalized=False), fedcm(0.3)),
    "wmsam is scaffold": (fedwmsam(0.0, 1.0, 0.0), scaffold()),
    "scam is fedsam": (fedscam(0.2, 0.0, gamma=0.0, beta=0.0), by_examples(fedsam(0.2))),
    "scam is fedavg": (fedscam(0.0, gamma=0.0, beta=0.0), fedavg()),
    "scam rho=0": (fedscam(0.0, **SCORED), fedscam_wa(0.7, 0.6, 0.4)),
    "scam gamma=beta=0": (fedscam(0.2, 0.5, 0.4, 0.0, 0.0), fedscam_sam(0.2, 0.5, 0.4)),
    "scam damp=1": (fedscam(0.2, **SCORED, clusters=2, damp=1.0), fedscam(0.2, **SCORED)),
    "scam-wa gamma=beta=0": (fedscam_wa(0.0, 0.0), fedavg()),
    "scam-sam alpha=0": (fedscam_sam(0.2, 0.0), by_examples(fedsam(0.2))),
    "scam-sam rho=0": (fedscam_sam(0.0), fedavg()),
}
DIFFERENT = {
    "larger": (fedfsa(0.1, 0.9, 1, 0.3), mofedsam(0.1, 0.3)),
    "reverse": (fedfsa(0.1, 2.0, 1, 0.9), fedfsa_reverse(0.1, 2.0, 1, 0.9)),
    "plug-in": (plug(fedgamma(0.1), 0.1, 0.9), fedgamma(0.1)),
    "paced": (fedwmsam(0.5, 0.5, paced=True), fedwmsam(0.5, 0.5)),
    "wmsam rho": (fedwmsam(0.5, 0.5, 0.5), fedwmsam(0.0, 0.5, 0.5)),
    "wmsam pace": (fedwmsam(0.5, 0.5, 0.5), fedwmsam(0.5, 0.5, 0.0)),
    "wmsam personalized": (fedwmsam(0.5, 0.5, 0.5), fedwmsam(0.5, 0.5, 0.5, personalized=False)),
    "scam radius": (fedscam(0.5), fedscam(0.5, alpha=0.0)),
    "scam weights": (fedscam_wa(1.0, 0.0), fedscam_wa(0.0, 0.8)),
    "scam kappa": (fedscam(0.5, kappa=1.0), fedscam(0.5, kappa=0.0)),
    "scam damp": (fedscam(clusters=1, damp=0.0), fedscam()),
}


@cache
def trained(algorithm: Algorithm, rounds: int) -> Tensor:
    return path(algorithm, TASK, LOCAL, rounds, cohort=3)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", SAME)
def test_a_part_switched_off_gives_the_method_without_it(case: str) -> None:
    close(*(trained(a, 10) for a in SAME[case]))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", DIFFERENT)
def test_every_part_does_something(case: str) -> None:
    a, b = (trained(a, 6) for a in DIFFERENT[case])
    assert float((a - b).abs().max()) > 1e-3


def test_radii_of_the_sheet() -> None:
    g = torch.tensor([3.0, 0.0, 0.0, 4.0], dtype=torch.float64)
    view = SimpleNamespace(w=g, w0=g, layout=Layout(("a", "b"), ((2,), (2,))), gradient=lambda: g.clone())
    block = FSA(0.05, 0.9)
    offset = block.perturb(block.begin(None, Top(torch.tensor([1])), view), view)  # type: ignore[arg-type]
    close(offset, (0.03, 0, 0, 0.72))
    rounds_to(offset.norm(), "0.720625")  # type: ignore[union-attr]
    close(block.perturb(block.begin(None, block.init_client(g), view), view), 0.05 * unit(g))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measure", "values", "top"),
    [("normalized", (1 / 64, 1 / 48), 1), ("raw", (1 / 4, 1 / 12), 0), ("sum", (1, 1 / 4), 0)],
)
def test_sensitivities_of_the_sheet_rank_layers_either_way(measure: str, values: tuple[float, float], top: int) -> None:
    start = {"conv_weight": [[0.0, 1], [2, 4]], "fc_weight": [[-1.0, 0, 1]], "bias": [0.0, 0]}
    moves = torch.tensor([0.0, 0, 1, 0, 0, 0.5, 0, 5, -5]).double()  # the bias moves most and is not chosen
    tensors = {name: torch.tensor(x).double() for name, x in start.items()}
    old = torch.cat([x.reshape(-1) for x in tensors.values()])
    new = old + moves
    for part, value in zip((slice(0, 4), slice(4, 7)), values, strict=True):
        close(sensitivity(old[part], new[part], measure), value)
    task = Slopes([torch.zeros(9, 9)], [-moves], tensors, [1])
    (frame,) = watch(plug(fedsam(), 0.1, 0.2, 1, measure=measure), task, Local(lr=1.0), 1)
    assert part_of(frame.states[0][0], "perturbation").tensors.tolist() == [top]


def test_measures_compare_layers_of_unequal_size() -> None:
    """The sum prefers large tensors, the mean those whose weights move far; scales cancel in the normalized one."""
    start = [torch.linspace(-1, 1, 9).double(), torch.linspace(-0.1, 0.1, 900).double()]
    ends = [x + move * (-1.0) ** torch.arange(len(x)).double() for x, move in zip(start, (0.1, 0.03), strict=True)]

    def found(measure: str) -> list[float]:
        return [sensitivity(old, new, measure) for old, new in zip(start, ends, strict=True)]

    close(found("raw"), (0.01, 0.0009))
    close(found("sum"), (0.09, 0.81))
    assert [rank_scores(found(measure))[0] for measure in ("normalized", "raw", "sum")] == [1, 0, 1]
    scaled = [sensitivity(7 * old, 7 * new) for old, new in zip(start, ends, strict=True)]
    close(scaled, found("normalized"))


def test_ranks() -> None:
    nan = float("nan")
    assert rank_scores([1.0, nan, 3.0, 0.0, 3.0]) == [2, 4, 0, 3, 1]
    assert rank_scores([1.0, nan, 3.0, 0.0, 1.0], smallest=True) == [0, 4, 2, 1]
    assert str(sensitivity(torch.ones(3), torch.rand(3))) == "nan"


def test_layers_that_may_be_chosen() -> None:
    layout = bind(resnet(20)).layout
    names = [layout.names[i] for i in eligible(layout)]
    kinds = {layout.owners[i] for i in eligible(layout)}
    assert kinds == {"Conv2d", "Linear"} and len(names) == 20 and not any("shortcut" in name for name in names)
    words = bind(CharLSTM()).layout
    assert {words.owners[i] for i in eligible(words)} == {"LSTM", "Linear"}


def test_the_norm_of_the_offset_follows_the_share_of_the_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    frames = watch(plug(fedsam(), 0.1, 0.5, 1), TASK, LOCAL, 2)
    tops = [part_of(frames[0].states[i][0], "perturbation").tensors.tolist() for i in range(6)]
    for look in seen.steps[:30]:  # the first round of a client has one radius
        close(look.offset, 0.1 * unit(look.here))
    for i, look in enumerate(seen.steps[30:]):
        inside = LAYOUT.split(look.here)[tops[i // 5][0]]
        share = float(inside.square().sum() / look.here.square().sum())
        close(look.offset.square().sum(), 0.1**2 + (0.5**2 - 0.1**2) * share)  # type: ignore[union-attr]
        assert float(look.offset @ look.here) > 0  # type: ignore[operator]


def test_a_client_is_evaluated_with_the_model_it_last_trained() -> None:
    frames, own = watch(fedfsa(), TASK, LOCAL, 4, cohort=2), dict[int, Tensor]()
    for frame in frames:
        own |= {i: frame.before.params + upload.delta for i, upload in frame.uploads.items()}
    last = frames[-1]
    stale = set(own) - set(last.uploads)
    assert stale and len(own) < 6
    for client in range(6):
        kept = last.states[client][last.after.accepted[client]] if client in own else None
        close(fedfsa().personal(last.w, kept, LAYOUT), own.get(client, last.w))
    for other in (Personalization(), Tuned(2, ("fc_weight",))):  # what is kept changes no training
        close(path(replace(fedfsa(), personalization=other), TASK, LOCAL, 4, 2)[-1], last.w)
