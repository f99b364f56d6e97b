"""What blocks report: the hooks, with numbers by hand, and what is refused or left out."""

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest
import torch

from undrift import Algorithm, Local, Simulation, make, parse
from undrift.core.client.visit import ClientError
from undrift.core.method.aggregation import Gathering
from undrift.core.method.block import Correction
from undrift.core.records.report import collect, spread
from undrift.testing import Clinic, Quadratics

Q2 = Quadratics.scalar([1.0, 1.0], [0.0, 4.0], start=1.0, sizes=[1, 3])
"""From 1, the gradients are 1 and -3."""
HALF = Local(lr=0.5, batch_size=4)


def reported(algorithm: Algorithm, rounds: int = 1) -> dict[str, float]:
    """The columns of the last of some rounds on two quadratics."""
    return dict([record for _, record in Simulation(algorithm, Q2, HALF).rounds(rounds)][-1].reports)


def test_spread_does_not_depend_on_the_order() -> None:
    assert spread("a", [1e16, 1.0, -1e16]) == spread("a", [-1e16, 1e16, 1.0])
    assert spread("a", [0.1] * 3) == {"a": 0.1, "a_std": 0.0, "a_min": 0.1, "a_max": 0.1}
    assert spread("a/b", [0.0, 1.0]) == {"a/b": 0.5}


@pytest.mark.parametrize("names", ["radius", ["radius"], ("Radius",), ("radius_std",), ("a.b",), ("a/b",), (1,)])
def test_a_declaration_that_cannot_work_is_refused(names: Any) -> None:
    with pytest.raises(TypeError, match=r"Wrong: reports must be a tuple|Wrong: .* cannot be reported"):
        type("Wrong", (Correction,), {"reports": names})


def test_values_that_are_not_finite_are_left_out_and_undeclared_names_refused() -> None:
    given = {"a": torch.tensor(0.5), "b/x": 2, "c": nan, "d": -inf, "e": 1e200}
    assert collect("here", ("a", "b/*", "c", "d", "e"), given) == {"a": 0.5, "b/x": 2.0}  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="here reports 'b/x', which is not declared: add it to the block's reports"):
        collect("here", ("a", "b"), {"b/x": 2.0})


def test_norms_of_variates_and_duals() -> None:
    drift = {
        "client_norm": 2.0,
        "client_norm_std": 1.0,
        "client_norm_min": 1.0,
        "client_norm_max": 3.0,
        "server_norm": 1.0,
    }
    assert reported(make("scaffold")) == pytest.approx({f"drift.{name}": x for name, x in drift.items()})
    dual = reported(make("feddyn", mu=0.1))  # delta is -lr g
    assert dual["drift.client_norm"] == pytest.approx(0.1) and dual["drift.server_norm"] == pytest.approx(0.05)


@pytest.mark.quick
def test_fedscam_reports_its_score_once_and_its_weights() -> None:
    row = reported(make("fedscam", rho=0.05, alpha=1.0, gamma=1.0))  # S_i = n_i / (1 + h_i): 1/2 and 3/4
    wanted = {
        "perturbation.radius_max": 0.05 / 2,
        "perturbation.radius_min": 0.05 / 4,
        "perturbation.steepness": 2.0,
        "perturbation.agreement": 0.0,
        "aggregation.weight": 0.5,
        "aggregation.weight_min": 0.4,
        "aggregation.weight_max": 0.6,
    }
    assert {name: row[name] for name in wanted} == pytest.approx(wanted) and "aggregation.steepness" not in row
    alone = reported(make("fedscam-wa"))
    assert alone["aggregation.steepness"] == pytest.approx(2.0) and alone["aggregation.weight_max"] == pytest.approx(
        0.6
    )
    dampened = reported(make("fedscam", rho=0.0, clusters=2))
    assert dampened["aggregation.weight_max"] == pytest.approx(0.6)


def test_fedwmsam_reports_its_share_and_the_cosine_once_there_is_a_momentum() -> None:
    algorithm = make("fedwmsam", rho=0.0, a=0.4, pace=0.5, personalized=False)
    first, second = reported(algorithm), reported(algorithm, 2)
    assert (
        first["momentum.mixing_coefficient"] == pytest.approx(0.25) and "momentum.cosine" not in first
    )  # the turn is 0, cut to 0.1
    assert first["momentum.norm"] == pytest.approx(0.4)  # 0.4 times the mean gradient -1; the model moves to 1.2
    # Then the directions are 0.25 (1.2, -2.8) - 0.75 0.4: nothing, and -1 along the momentum.
    assert second["momentum.cosine"] == pytest.approx(0.5) and second["momentum.cosine_max"] == pytest.approx(1.0)
    assert second["momentum.mixing_coefficient"] == pytest.approx(0.5 * 0.25 + 0.5 * 0.5)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("by-agreement(steps=0)", {"aggregation.weight_min": 0.25, "aggregation.weight_max": 0.75}),
        ("norm-clip(1.0)", {"release.clipped": 0.5}),
        ("quantile-clip(1.0)", {"release.clipped": 0.5, "release.bound": 1.0}),
        ("q-fair(0.0)", {"aggregation.weight_min": 0.5, "aggregation.weight_max": 0.5}),
        ("layer-shrinking(high=0.0, low=0.0)", {"aggregation.shrink": 1.0}),
        ("server-momentum(1.0)", {"momentum.norm": 1.0}),
        ("warm-sam(0.1, warmup=2, first=0.02)", {"perturbation.radius": 0.02, "perturbation.radius_std": 0.0}),
    ],
)
def test_other_blocks(text: str, wanted: dict[str, float]) -> None:
    row = reported(parse(text))
    assert {name: row[name] for name in wanted} == pytest.approx(wanted)


def test_fsa_reports_which_layers_clients_chose() -> None:
    simulation = Simulation(parse("fsa(count=1)"), Clinic(), HALF)
    _, record = simulation.round(simulation.start(), [3, 4, 5])
    layers = {name: x for name, x in record.reports.items() if "/" in name}
    assert set(layers) == {"perturbation.chosen/body.0.weight", "perturbation.chosen/head.weight"}
    assert sum(layers.values()) == pytest.approx(1.0) and 0 < record.reports["perturbation.chosen_share"] < 1


def test_weights_learned_on_proxy_data_and_from_labels() -> None:
    for text, names in (("by-proxy(epochs=0)", ("weight", "shrink")), ("by-discrepancy", ("weight", "skew"))):
        simulation = Simulation(parse(text), Clinic(), HALF)
        _, record = simulation.round(simulation.start(), [3, 5])
        assert {f"aggregation.{name}" for name in names} <= set(record.reports)
        assert record.reports["aggregation.weight"] == pytest.approx(0.5)
    assert "aggregation.shrink" not in record.reports


@dataclass(frozen=True)
class Rare(Gathering):
    """Reports in gather, and something that is not a number beside it."""

    reports = ("first", "spread")

    def gather(self, uploads: Any, ups: Any, view: Any) -> Any:
        view.report("first", uploads[0].loss * 0 + 2)
        view.report("spread", [1.0, nan, 3.0])
        return uploads[0].delta.double(), None


def test_a_rule_reports_one_number_or_many() -> None:
    row = reported(Algorithm(aggregation=Rare()))
    assert row["aggregation.first"] == 2.0 and row["aggregation.spread"] == 2.0 and "aggregation.first_std" not in row


@dataclass(frozen=True)
class Lists(Gathering):
    """Reports nothing, and what is no list."""

    reports = ("none", "tensor")

    def gather(self, uploads: Any, ups: Any, view: Any) -> Any:
        view.report("none", [])
        view.report("tensor", torch.tensor([1.0, 2.0]))
        return uploads[0].delta.double(), None


def test_a_rule_may_report_an_empty_list_or_a_tensor() -> None:
    row = reported(Algorithm(aggregation=Lists()))
    assert row["aggregation.tensor"] == 1.5 and not any(name.startswith("aggregation.none") for name in row)


@dataclass(frozen=True)
class Careless(Correction):
    """Reports what it did not declare."""

    reports = ("a",)

    def finish(self, state: Any, end: Any) -> Any:
        end.report("b", 1.0)
        return None, None


def test_an_undeclared_name_is_an_error_that_names_the_block() -> None:
    with pytest.raises(ClientError, match=r"drift=Careless reports 'b', which is not declared"):
        Simulation(Algorithm(drift=Careless()), Q2, HALF).run(1)


@dataclass(frozen=True)
class EveryStep(Correction):
    """Reports in a step."""

    reports = ("a",)

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        step.report("a", 1.0)
        return grad


def test_a_report_in_a_step_is_refused() -> None:
    with pytest.raises(ClientError, match="'a' is reported in a step: report it once per visit, in begin or finish"):
        Simulation(Algorithm(drift=EveryStep()), Q2, HALF).run(1)
