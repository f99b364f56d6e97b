"""Rules that weigh or guard against uploads: their oracles and limiting cases; the numbers of those that weigh."""

from dataclasses import replace
from math import inf, log
from typing import Any

import numpy as np
import pytest
import torch

from oracle import methods, weights
from support.rounds import View, close, flat, part_of, path, rounds_to, watch
from support.rules import DOUBLE, LOCAL, TASK, Bowls, bowls, gather, uploads_of
from undrift import Algorithm, Local, Simulation, cost
from undrift.algorithms import make
from undrift.blocks import ByAgreement, ByDiscrepancy, LayerShrinking
from undrift.blocks.aggregation.agreement import disagreement, inner_products, turns
from undrift.blocks.aggregation.discrepancy import Skew, skew
from undrift.core.client.visit import ClientError
from undrift.core.model.flat_model import Layout
from undrift.core.records.rejection import Reason
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.testing import Clinic, Quadratics

# name, arguments, the oracle's arguments where they differ, size of the cohort
CASES: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
    ("feddisco", {"a": 0.5, "b": 0.1}, {}, 4),
    ("feddisco", {"a": 0.2, "b": 0.3, "metric": "l2"}, {}, 4),
    ("feddisco", {"a": 5.0, "b": 0.0, "reference": (0.5, 0.25, 0.25)}, {}, 4),
    ("fedawa", {"steps": 1, "lr": 1e-3}, {}, 4),
    ("fedawa", {"steps": 10, "lr": 0.05}, {}, 4),
    ("fedlws", {"beta": 0.03, "low": 0.01, "high": 0.2}, {}, 4),
    ("fedlws", {"beta": 0.2, "low": 0.0, "high": 0.3}, {}, 4),
    ("fedlaw", {"epochs": 3, "lr": 0.05}, {}, 4),
    ("fedlaw", {"epochs": 3, "lr": 0.05, "form": "quad"}, {}, 4),
    ("fedlaw", {"epochs": 21, "lr": 0.01, "shrink": False}, {}, 4),
    ("median", {}, {}, 4),
    ("median", {}, {}, 5),
    ("trimmed-mean", {"f": 1}, {}, 5),
    ("trimmed-mean", {"f": 0.3}, {"f": 2}, 6),
    ("krum", {"f": 1}, {}, 6),
    ("multi-krum", {"f": 1}, {"f": 1, "q": 3}, 6),
    ("multi-krum", {"f": 1, "q": 2}, {}, 6),
    ("bulyan", {"f": 1}, {}, 7),
    ("norm-clip", {}, {}, 4),
    ("norm-clip", {"c": 1.3}, {}, 4),
    ("norm-clip", {"c": 1.3, "q": 0.3, "lr": 0.5}, {}, 4),
    ("geometric-median", {"passes": 4, "floor": 1e-5}, {}, 4),
    ("geometric-median", {"passes": 30, "floor": 1e-3, "by_examples": False}, {}, 4),
]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(("name", "arguments", "other", "cohort"), CASES, ids=str)
@pytest.mark.parametrize("clip", [None, 5.0])
def test_equals_its_oracle(
    name: str, arguments: dict[str, Any], other: dict[str, Any], cohort: int, clip: float | None
) -> None:
    local = replace(LOCAL, clip=clip, weight_decay=0.0 if clip else 0.05)
    settings = methods.Settings(local.lr, local.decay, local.weight_decay, local.clip)
    rule, view = getattr(weights, name.replace("-", "_")), View(TASK, local, cohort=cohort, seed=2)
    expected = flat(weights.run(rule, view, settings, 3, **(other or arguments)))
    close(path(make(name, **arguments), TASK, local, 3, cohort, 2), expected)


SAME = {
    "feddisco a=b=0": (make("feddisco", a=0.0, b=0.0), "fedavg"),
    "feddisco a=0, b large": (make("feddisco", a=0.0, b=1e12), "uniform"),
    "fedawa no steps": (make("fedawa", steps=0), "fedavg"),
    "fedawa no rate": (make("fedawa", steps=3, lr=0.0), "fedavg"),
    "fedlws no tau": (make("fedlws", low=0.0, high=0.0), "fedavg"),
    "fedlaw exp": (make("fedlaw", epochs=0), "fedavg"),
    "fedlaw quad": (make("fedlaw", epochs=0, form="quad"), "uniform"),
    "trimmed mean f=0": (make("trimmed-mean", f=0), "uniform"),
    "trimmed mean of half": (make("trimmed-mean", f=9), "median"),
    "multi-krum q=1": (make("multi-krum", q=1), "krum"),
    "bulyan f=0": (make("bulyan", f=0), "uniform"),
    "norm clip c=inf": (make("norm-clip", c=inf), "uniform"),
    "geometric median by examples": (make("geometric-median", passes=0), "fedavg"),
    "geometric median": (make("geometric-median", passes=0, by_examples=False), "uniform"),
    "geometric median, high floor": (make("geometric-median", floor=1e9), "fedavg"),
}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", SAME)
def test_limiting_case(case: str) -> None:
    algorithm, name = SAME[case]
    close(path(algorithm, TASK, LOCAL, 6, 4), path(make(name), TASK, LOCAL, 6, 4))


def test_quantile_without_rate_is_the_fixed_radius() -> None:
    close(*(path(make("norm-clip", c=0.6, **more), TASK, LOCAL, 4, 4) for more in ({"q": 0.5, "lr": 0.0}, {})))  # type: ignore[arg-type]


def test_equal_labels_and_a_matching_offset_are_fedavg() -> None:
    class Alike(Bowls):
        counts = ([3, 1, 0],) * 7

    task, avg = Alike(TASK.curvatures, TASK.optima, TASK.start, TASK.sizes), path(make("fedavg"), TASK, LOCAL, 3, 4)
    far = float(np.linalg.norm([0.75 - 1 / 3, 0.25 - 1 / 3, -1 / 3]))
    close(path(make("feddisco", a=0.4, b=0.1), task, LOCAL, 3, 4), avg)  # every normalised d is 1/4
    close(path(make("feddisco", a=0.4, b=0.4 * far, metric="l2"), task, LOCAL, 3, 4), avg)


# The rules on rows written down


def test_discrepancy_numbers() -> None:
    uniform = torch.tensor([0.5, 0.5], dtype=DOUBLE)
    own = [torch.tensor(p, dtype=DOUBLE) for p in ([0.6, 0.4], [0.9, 0.1], [0.5, 0.5])]
    kl = [skew(p, uniform, "kl") for p in own]
    rounds_to(kl, "0.020136", "0.368064", "0")
    rounds_to([d / sum(kl) for d in kl], "0.051869", "0.948131", "0")
    rounds_to(ByDiscrepancy(0.5, 0.1).shares([5, 3, 2], kl), "0.656776", "0", "0.343224")
    close(skew(own[1], uniform, "l2"), 0.4 * 2**0.5)
    assert skew(torch.tensor([1.0, 0.0], dtype=DOUBLE), uniform, "kl") == pytest.approx(log(2))
    assert ByDiscrepancy(9.0, 0.0).shares([5, 3, 2], [1.0, 1.0, 1.0]) == [0.5, 0.3, 0.2]  # all r_i are 0
    assert ByDiscrepancy(0.5, 0.0).shares([1, 3], [0.0, 0.0]) == [0.25, 0.75]


def test_agreement_numbers() -> None:
    uploads = uploads_of([[0.0, 1.0], [0.0, 1.0], [0.0, -1.0]])
    w0 = torch.tensor([1.0, 0.0], dtype=DOUBLE)
    logits = torch.zeros(3, dtype=DOUBLE, requires_grad=True)
    gram, turned = inner_products(uploads), turns(uploads, w0)
    value = disagreement(logits.softmax(0), gram, turned)
    rounds_to(value - turned.mean(), "0.888889")
    rounds_to(turned.mean(), "0.292893")
    rounds_to(torch.autograd.grad(value, logits)[0], "-0.148148", "-0.148148", "0.296296")
    _, kept = gather(ByAgreement(), uploads, [1.0, 0.0])
    rounds_to(kept.values, "0.001", "0.001", "-0.001")
    two = uploads_of([[0.1, 0.0], [0.0, 0.2]])
    rounds_to(turns(two, w0), "0", "0.019419")
    rounds_to(disagreement(torch.full((2,), 0.5).double(), inner_products(two), turns(two, w0)), "0.121513")


def test_gram_form_of_agreement_is_the_direct_form() -> None:
    draw = np.random.default_rng(0)
    rows, w0 = list(draw.normal(size=(5, 9))), draw.normal(size=9)
    logits = torch.tensor(draw.normal(size=5), requires_grad=True)
    value = disagreement(logits.softmax(0), inner_products(uploads_of(rows)), turns(uploads_of(rows), torch.tensor(w0)))
    expected, slope = weights.alignment(weights.softmax(logits.detach().numpy()), rows, w0)
    close(value.detach(), expected, 1e-12)
    close(torch.autograd.grad(value, logits)[0], slope, 1e-12)
    for p in (0.1, 0.6):  # two clients: 2 p_1 p_2 ||D_1 - D_2||
        pair, still = uploads_of(rows[:2]), torch.zeros(2).double()
        found = disagreement(torch.tensor([p, 1 - p], dtype=DOUBLE), inner_products(pair), still)
        close(found, 2 * p * (1 - p) * np.linalg.norm(rows[0] - rows[1]), 1e-9)


def test_equal_uploads_leave_logits_alone() -> None:
    row = torch.randn(50, generator=torch.Generator().manual_seed(0)).double() * 100
    delta, kept = gather(ByAgreement(5, 0.1), uploads_of([row] * 3, [1, 2, 5]), [1.0] * 50)
    close(delta, row)
    close(kept.values, [log(1), log(2), log(5)], 1e-6)
    delta, kept = gather(ByAgreement(5, 0.1), uploads_of([row], [7]), [1.0] * 50)
    close(delta, row)
    close(kept.values, [log(7)], 1e-6)


def test_logits_belong_to_clients() -> None:
    # With T_i = log(n_i / n_S) at first sight, clients first seen in cohorts of different sizes would not compare:
    # 0 and 1 start at log 1/4 and log 3/4, then 2 (n = 3) at log 3/6 beside 1, and steps=0 would not be FedAvg.
    task = bowls((1, 3, 3, 5, 4, 7, 2))
    simulation = Simulation(Algorithm(aggregation=ByAgreement(1, 0.1)), task, LOCAL)
    first, _ = simulation.round(simulation.start(), [1, 0])
    assert part_of(first, "aggregation").clients.tolist() == [0, 1]
    second, _ = simulation.round(first, [2, 1])
    kept = part_of(second, "aggregation")
    assert kept.clients.tolist() == [0, 1, 2]
    assert kept.values[0] == part_of(first, "aggregation").values[0]
    close((kept.values[1] - part_of(first, "aggregation").values[1]).abs(), 0.1, 1e-6)  # a fresh Adam's step is lr long
    close((kept.values[2] - log(3)).abs(), 0.1, 1e-6)


def test_layer_numbers() -> None:
    delta, _ = gather(LayerShrinking(), uploads_of([[1.0, 0.0], [0.0, 1.0]]), [3.0, 4.0])
    rounds_to(delta + torch.tensor([3.0, 4.0]), "3.4895314", "4.4865404")
    gamma = 5 / (5 + 0.03 * 0.5**0.5 * 0.5**0.5)
    rounds_to(gamma, "0.9970090")
    same, _ = gather(LayerShrinking(), uploads_of([[1.0, 0.0]] * 2), [3.0, 4.0])
    close(same + torch.tensor([3.0, 4.0]), torch.tensor([4.0, 4.0]).double() * (5 / 5.01))  # by low alone, not by 1


def test_layers_are_modules_and_zero_layers_stay() -> None:
    layout = Layout(("a.weight", "a.bias", "b.weight"), ((1,), (1,), (2,)))
    rows = [[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 2.0]]
    delta, _ = gather(LayerShrinking(), uploads_of(rows), [3.0, 4.0, 0.0, 0.0], layout=layout)
    rounds_to(delta[:2] + torch.tensor([3.0, 4.0]), "3.4895314", "4.4865404")
    close(delta[2:], [1.0, 1.0])


def test_proxy_judges_the_mixture() -> None:
    # One parameter: clients end at 0.25 and 3.25, the server holds client 1's loss, best at 4 > 3.25.
    class Q2(Bowls):
        def proxy(self) -> list[int]:
            return [1]

    one = Quadratics.scalar([1.0, 1.0], [0.0, 4.0], 1.0, [1, 3])
    task = Q2(one.curvatures, one.optima, one.start, one.sizes)
    local = Local(lr=0.5, epochs=2, batch_size=3)
    learned = {
        shrink: float(path(make("fedlaw", epochs=200, lr=0.1, shrink=shrink), task, local, 1))
        for shrink in (True, False)
    }
    assert learned[True] == pytest.approx(4.0, abs=1e-3) and 3.2 < learned[False] < 3.25
    close(path(make("fedlaw", epochs=0), task, local, 1), 2.5)
    (frame,) = watch(make("fedlaw", epochs=9, shrink=False), replace(TASK, sizes=[4] * 7), LOCAL, 1, cohort=1)
    (upload,) = frame.uploads.values()
    close(frame.w, frame.before.params + upload.delta)  # one client, no shrinking: its model


def test_an_impossible_discrepancy_is_refused() -> None:
    algorithm = make("feddisco")
    simulation = Simulation(algorithm, TASK, LOCAL)
    state = simulation.start()
    broadcast = server.send(algorithm, state, simulation.job.setting)
    gate = Gate(algorithm, LOCAL, broadcast, [0, 1])
    upload = simulation.worker.visit(0, broadcast, None, gate)
    refused = gate.admit(replace(upload, parts={"aggregation": Skew(-1.0)}), gate.total())  # type: ignore[arg-type, type-var]
    assert refused is not None and refused.reason is Reason.WEIGHT
    assert "a discrepancy is 0 or more, got -1.0" in refused.detail


def test_a_task_must_tell_its_labels() -> None:
    bare = Quadratics(TASK.curvatures, TASK.optima, TASK.start, TASK.sizes)
    with pytest.raises(ClientError, match=r"ByDiscrepancy._shares: .*have no class labels; give the task label_counts"):
        Simulation(make("feddisco"), bare, LOCAL).run(1)
    with pytest.raises(ClientError, match="reference has 2 classes, the client's data 3"):
        Simulation(make("feddisco", reference=[0.5, 0.5]), TASK, LOCAL).run(1)

    class Silent(Clinic):
        label_counts = None  # type: ignore[assignment]

    with pytest.raises(ClientError, match="the number of classes cannot be read from the batches"):
        Simulation(make("feddisco"), Silent(), LOCAL).round(Simulation(make("feddisco"), Silent()).start(), [3, 4])
    thirds = (1 / 3, 1 / 3, 1 / 3)
    a, b = (Simulation(make("feddisco", reference=thirds), task, LOCAL).run(2).params for task in (Silent(), Clinic()))
    assert torch.equal(a, b)


def test_cost() -> None:
    names = "feddisco fedawa fedlws fedlaw median trimmed-mean krum multi-krum bulyan norm-clip geometric-median"
    for name in names.split():
        row = cost(make(name))
        assert (row.up, row.down, row.client_state, row.gradients_per_step, row.gathers) == (1, 1, 0, 1, True), name
    assert cost(make("norm-clip", c=1.0)).plain_sum
