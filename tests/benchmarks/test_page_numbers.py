"""Measured numbers of README, performance and findings: each has a file and a path in it, or it is not there.

Intervals are differences of two rows of a committed study, tables are computed again from their files; decimals,
shares, factors and points that are left in the text are bound here, one by one, or named as settings.
"""

import json
import re
from collections.abc import Callable
from statistics import fmean, variance
from typing import Any

import pytest
from scipy.special import stdtrit

from support.page_numbers import INTERVAL, ROOT, differences, intervals, prose, result, same, stated, tables, unbound
from undrift.algorithms import fedfsa
from undrift.papers import paper
from undrift.studies.statistics import late_mean, paired_difference, quantile

LOW, MEAN = "docs/evidence/findings/low-frequencies.md", "docs/evidence/findings/mean-part.md"
RATES, PARTS = "docs/evidence/findings/learning-rates.md", "docs/evidence/findings/parts.md"
BAD, PRIVATE = "docs/evidence/findings/poisoning.md", "docs/evidence/findings/private-accuracy.md"
TUNED = "docs/evidence/findings/fine-tuning.md"
SCHEDULES = "docs/evidence/findings/schedules.md"
SPEED, README = "docs/evidence/performance.md", "README.md"
ADAPTERS = "docs/guide/adapters.md"
INDEX, FRONT = "docs/evidence/results/index.md", "docs/index.md"
CASES = {"Fashion-MNIST": "Fashion-MNIST", "CIFAR-10": "CIFAR-10 (JPEG)"}
KINDS = {"label, 0.1": "label-0.1", "label, 0.3": "label-0.3", "none": "iid"}


def curve(name: str) -> float:
    """The last accuracy of a method in README's figure, in per cent."""
    seeds = result("../docs/figures/curves.json")["accuracy"][name]
    out: float = 100 * sum(accuracies[-1] for accuracies in seeds) / len(seeds)
    return out


def peer(setting: str, contender: str, kind: str, method: str = "fedavg") -> float:
    """A number of the comparison with other libraries."""
    rows = result("peers/results/peers.json")["rows"]
    key = (setting, contender, method)
    out: float = next(row[kind] for row in rows if (row["setting"], row["contender"], row["method"]) == key)
    return out


def small_clients() -> tuple[float, ...]:
    """The least and the most that clients of three steps take in one process without groups, over the bare loop."""
    each = [peer(x, "undrift", "over_bare", y) for x in ("mlp", "logistic") for y in ("fedavg", "scaffold")]
    return min(each), max(each)


def grouped_clients() -> tuple[float, ...]:
    """The least and the most that they take with FedAvg in groups."""
    return ends([peer(x, "undrift-together", "over_bare") for x in ("logistic", "mlp")])


def two_workers(contender: str) -> tuple[float, ...]:
    """How many times as long as the fastest peer a contender takes with the CNN, with FedAvg and with SCAFFOLD."""
    return tuple(peer("cnn", contender, "over_fastest_peer", method) for method in ("fedavg", "scaffold"))


def slower(setting: str, contender: str, other: str) -> float:
    """How many times as long the other takes."""
    return peer(setting, other, "seconds") / peer(setting, contender, "seconds")


def ray_start(kind: str, *names: str) -> tuple[float, ...]:
    """Seconds or megabytes of Ray's start."""
    found = result("speed/results/engine.json")["start"][kind]
    return tuple(found[name] for name in names)


def ray_services() -> float:
    """The megabytes of Ray's own processes."""
    found: dict[str, float] = result("speed/results/engine.json")["start"]["megabytes"]
    return sum(x for name, x in found.items() if name not in ("driver", "workers"))


def spread_here() -> float:
    """By how many per cent the rounds of the CNN in one process differ, groups left out."""
    rows = result("peers/results/peers.json")["rows"]
    here = [x for x in rows if (x["setting"], x["method"], x["workers"]) == ("cnn", "fedavg", 1)]
    alone = [x for x in here if x["contender"] != "undrift-together"]
    seconds = [x["seconds"] for x in alone]
    out: float = 100 * (max(seconds) / min(seconds) - 1)
    return out


def chances() -> tuple[float, ...]:
    """Of the four words that may follow a word of the made-up language."""
    import fine_tuning

    return fine_tuning.CHANCES


def looks(kind: str = "gradient") -> list[dict[str, Any]]:
    """The measurements behind the tables of low-frequencies.md."""
    return [look[kind] for row in result("studies/results/findings.json")["rows"] for look in row["rounds"]]


def inside_and_outside(look: dict[str, Any]) -> tuple[float, float]:
    """The agreement in the lowest band, and in the others together."""
    agreement, energy = look["agreement"], look["energy_share"]
    others = sum(a * e for a, e in zip(agreement[1:], energy[1:], strict=True)) / sum(energy[1:])
    return agreement[0], others


def adapters() -> Any:
    """What adapters cost."""
    return result("speed/results/adapters.json")


def slow_recall(data: str, label: str) -> float:
    """The recall of the slow clients' classes in a row of the study of schedules."""
    import schedules

    return fmean(schedules.recalls(line, True) for line in schedules.judging()[data, "classes", label].values())


def prices(name: str) -> Any:
    """What the table of a million clients assumes."""
    import planned

    return getattr(planned, name)


def planned_gains(engine: Any) -> tuple[float, float]:
    """How many times shorter a tree makes the round with the most workers, for both models."""
    import planned

    pairs = [[planned.plan(size, 1000, engine, x)[1].seconds for x in (False, True)] for size in planned.PARAMETERS]
    return ends([flat / tree for flat, tree in pairs])


def ends(values: list[float]) -> tuple[float, float]:
    """The smallest and the largest."""
    return min(values), max(values)


def removed(r: str) -> tuple[float, float]:
    """The smallest and the largest share of the energy that a high-pass removes."""
    return ends([look["filtering"][r]["energy_removed"] for look in looks()])


def gains(kind: str) -> list[float]:
    """What a high-pass with r = 0.05 adds to the agreement."""
    return [look["filtering"]["r=0.05"]["gain"] for look in looks(kind)]


def mean_part(data: str, kind: str) -> dict[str, Any]:
    """A row of mean-part.json."""
    rows = result("studies/results/mean-part.json")["rows"]
    return next(row for row in rows if (row["data"], row["kind"]) == (data, kind))


def damage(data: str) -> list[float]:
    """The loss that the shortened whole update adds on all clients, over that of the rest, where that is above zero."""
    rows = [row["effects"] for row in result("studies/results/mean-part.json")["rows"] if row["data"] == data]
    pairs = [(row["shorter"]["test"], row["kept"]["test"]) for row in rows]
    return [shorter / kept for shorter, kept in pairs if kept > 0.005]


def trial(setting: str, label: str, rate: float | None = None, study: str = "table-fashion") -> float:
    """The held-out accuracy of a trial in points, the best of the row without a rate."""
    from shared import read_lines

    lines = read_lines(ROOT / "benchmarks/studies/results/here/rates" / f"{study}.jsonl")
    rates = next(dict(x["rates"]) for x in lines if (x["setting"], x["label"]) == (setting, label))
    out: float = 100 * (max(rates.values()) if rate is None else rates[rate])
    return out


def published(name: str, item: str, part: str, label: str) -> float:
    """A number of a paper, without its spread."""
    found = paper(name).published[item][part][label]
    assert isinstance(found, float | tuple)
    return found[0] if isinstance(found, tuple) else found


def gap(name: str, item: str, part: str, label: str, other: str) -> float:
    """By how much a paper has one row above another."""
    return published(name, item, part, label) - published(name, item, part, other)


def steps(label: str) -> list[dict[str, Any]]:
    """The rows of a method in the comparison of step sizes."""
    return [row for row in result("studies/results/compare-steps.json")["rows"] if row["label"] == label]


def conditions() -> tuple[float, float]:
    """The gains of both filters in the conditions of one study that the page counts."""
    names = (
        "dirichlet-0.05",
        "dirichlet-0.3",
        "dirichlet-1",
        "iid",
        "central",
        "cohort-20",
        "clients-50",
        "clients-200",
    )
    pairs = [(name, label) for name in names for label in ("specgrad", "center")]
    return ends([difference("ablation-fashion", name, label, "uniform") for name, label in pairs])


def difference(study: str, setting: str, label: str, other: str) -> float:
    """The mean difference of two rows in points."""
    return paired(late(study, setting, label), late(study, setting, other))[0]


def correlations(study: str, setting: str) -> tuple[float, ...]:
    """With the order of each published table, and over how many rows, as on the page of the study."""
    text = (ROOT / f"docs/evidence/results/{study}.md").read_text(encoding="utf-8")
    found = re.findall(r"^Rank correlation with the order measured here: (.*)$", text, flags=re.MULTILINE)
    line = found[("label-0.1", "label-0.6").index(setting)]
    return tuple(float(x) for pair in re.findall(r"([+-]\d\.\d+) \((\d+) rows\)", line) for x in pair)


BOTH = ("label-0.1", "label-0.6")
SLOW, FAST = ("0123", "0231", "0312"), ("3210", "1230", "2130", "2310", "random")
CIFAR, ORDERS = ("table-cifar",), ("0123", "1230", "center-inputs", "fedavg")


def added(label: str, other: str, studies: tuple[str, ...] = ("table-fashion", "table-cifar")) -> list[float]:
    """The mean differences of two rows in the tables."""
    return [
        paired(late(study, setting, label), late(study, setting, other))[0]
        for study in studies
        for setting in ("label-0.1", "label-0.6")
    ]


Value = Callable[[], float | tuple[float, ...]]
BOUND: dict[str, list[tuple[str, Value]]] = {
    README: [
        ("FedAvg # %,", lambda: curve("fedavg")),
        ("SCAFFOLD # %,", lambda: curve("scaffold")),
        ("FedDyn # %,", lambda: curve("feddyn")),
        ("FedFFT-D # %", lambda: curve("fedfft-d")),
        ("with tiny models up to # times as much", lambda: small_clients()[1:]),
        ("as much, or # to # times as much with", grouped_clients),
    ],
    SPEED: [
        ("The aim was a ratio between # and #", lambda: prices("AIM")),
        ("a round at # for an hour", lambda: prices("HOUR")),
        ("and # for a gigabyte", lambda: prices("GIGABYTE")),
        ("a round # to # times shorter on Ray", lambda: planned_gains("ray")),
        ("and # to # times with edge servers", lambda: planned_gains("flower")),
        ("takes Ray # of the time of Flower", lambda: result("speed/results/engine.json")["ray_over_flower_60k"]),
        (
            "with 11 million parameters # (# s and # s)",
            lambda: (
                result("speed/results/engine.json")["ray_over_flower_11m"],
                *(result("speed/results/engine.json")["seconds_11m"][0][side] for side in ("ray", "flower")),
            ),
        ),
        ("Ray workers has # of the throughput", lambda: result("speed/results/engine.json")["throughput_over_bare"]),
        ("clients in a round is # of that with", lambda: result("speed/results/engine.json")["memory_1000_over_10"]),
        ("Ray starts in # s and two workers in # s;", lambda: ray_start("seconds", "ray", "workers")),
        ("receive the task, takes # s", lambda: ray_start("seconds", "round")),
        ("# MB of the driver", lambda: ray_start("megabytes", "driver")),
        ("# MB of each worker, most", lambda: ray_start("megabytes", "workers")[0] / 2),
        ("and # MB of Ray's own processes", ray_services),
        (
            "is # ms with 10 in flight, # with 1,000 and # with 10,000",
            lambda: tuple(
                x["ms_per_arrival"] for x in result("speed/results/arrivals.json")["plan"] if x["in_flight"] != 100
            ),
        ),
        ("fastest: # times as fast as the fastest peer", lambda: slower("logistic", "undrift-ray-together", "pfl-2")),
        ("regression, # times with the perceptron", lambda: slower("mlp", "undrift-ray-together", "pfl-2")),
        ("perceptron (# times in one process)", lambda: slower("mlp", "undrift-together", "pfl")),
        (
            "# and # times as fast as Flower",
            lambda: tuple(slower(x, "undrift-ray-together", "flower") for x in ("logistic", "mlp")),
        ),
        ("in one process all lie within # %", spread_here),
        ("three steps takes # to # times as long as in the bare", small_clients),
        (
            "Undrift takes # times as long as the fastest with FedAvg and # times with SCAFFOLD",
            lambda: two_workers("undrift-ray"),
        ),
        ("SCAFFOLD, # and # times with the default allocator", lambda: two_workers("undrift-ray-allocator")),
    ],
    LOW: [
        (
            "two clients is # to # times",
            lambda: ends([x["distance"][0] / max(x["distance"][1:]) for x in looks()]),
        ),
        ("the lowest has # to # of 1", lambda: ends([x["normalised"][0] for x in looks()])),
        ("as much in one (# and #)", lambda: inside_and_outside(looks()[10])),
        (
            "their energy to within #.",
            lambda: max(abs(x["disagreement_share"][0] - x["energy_share"][0]) for x in looks()),
        ),
        ("at or below zero (# to #)", lambda: ends(gains("update")[2::3])[::-1]),
        ("SpecGradFilter gains # to # points", lambda: ends([100 * x["last_difference"] for x in steps("specgrad")])),
        ("other rows, by up to #.", lambda: -min(gains("gradient"))),
        ("The filter removes # to # of the energy", lambda: removed("r=0.05")),
        ("r = 0.05, and # to # at r", lambda: removed("r=0.01")),
    ],
    MEAN: [
        (
            "it reports # to # % on CIFAR-10",
            lambda: ends([published("specgrad", "table4", "cifar10", x) for x in SLOW]),
        ),
        ("other orders # to # %", lambda: ends([published("specgrad", "table4", "cifar10", x) for x in FAST])),
        ("SpecGradFilter reports # points", lambda: gap("specgrad", "table1", "cifar10-0.1", "specgrad", "fedavg")),
        (
            "accuracies of # to # %",
            lambda: ends([fmean(late("orders-cifar", "label-0.1", x).values()) for x in ORDERS]),
        ),
        (
            "part is larger (# against # of",
            lambda: tuple(mean_part("cifar10", x)["filters"]["inputs"]["energy"] for x in ("label-0.1", "iid")),
        ),
        ("whole update does # to # times the damage", lambda: ends(damage("fashion-mnist"))),
        ("On CIFAR-10 it is # times and more", lambda: min(damage("cifar10"))),
        (
            "of both alone (# against # + #)",
            lambda: tuple(
                mean_part("fashion-mnist", "label-0.1")["effects"][x]["test"] for x in ("whole", "mean", "kept")
            ),
        ),
    ],
    RATES: [
        (
            "FedCM with SAM: # points below FedAvg",
            lambda: gap("fedwmsam", "table1", "fashion-mnist-dirichlet-0.1", "fedavg", "mofedsam"),
        ),
        ("momentum too, # points below FedSCAM", lambda: gap("fedscam", "table1", "all", "fedscam", "fedwmsam")),
        (
            "for both, it is # points better than FedAvg",
            lambda: trial("label-0.1", "mofedsam", 0.1) - trial("label-0.1", "fedavg", 0.1),
        ),
        (
            "Dirichlet 0.1 and # worse with 0.6",
            lambda: trial("label-0.6", "fedavg", 0.1) - trial("label-0.6", "mofedsam", 0.1),
        ),
        ("rate of each it is # better with 0.1", lambda: trial("label-0.1", "mofedsam") - trial("label-0.1", "fedavg")),
    ],
    PARTS: [
        (
            "it costs FedAvg and FedCM about # to # points",
            lambda: ends([-x for x in (*added("fedsam", "uniform", CIFAR), *added("mofedsam", "fedcm", CIFAR))]),
        ),
        ("an interval reaches # standard errors", lambda: quantile(2)),
        ("four settings: `` is # to # points", lambda: ends(added("center-feddyn", "center"))),
        ("does the same: # to # points", lambda: ends(added("specgrad-feddyn", "specgrad"))),
        ("adds # points on CIFAR-10", lambda: added("fedcm", "uniform", CIFAR)[0]),
    ],
    ADAPTERS: [
        ("A step takes # of that", lambda: adapters()["step"]["large"]["loop_over_bare"]),
        ("half of the turns from # to #)", lambda: tuple(adapters()["step"]["large"]["quartiles"])),
        ("# with a model of two layers", lambda: adapters()["step"]["small"]["loop_over_bare"]),
    ],
    FRONT: [
        ("FedAvg # %,", lambda: curve("fedavg")),
        ("SCAFFOLD # %,", lambda: curve("scaffold")),
        ("FedDyn # %,", lambda: curve("feddyn")),
        ("FedFFT-D # %", lambda: curve("fedfft-d")),
        ("with tiny models up to # times as much", lambda: small_clients()[1:]),
        ("as much, or # to # times as much with", grouped_clients),
    ],
    INDEX: [
        (
            "accuracies of # to # %",
            lambda: ends([fmean(late("orders-cifar", "label-0.1", x).values()) for x in ORDERS]),
        ),
        ("by # to # points from Dirichlet", conditions),
        (
            "end # to # points below FedAvg",
            lambda: ends(
                [-difference("text-shakespeare", "roles", x, "fedavg") for x in ("feddyn", "fedsam-d", "fedfft-d")]
            ),
        ),
        ("nearly as published (#)", lambda: gap("fedfft", "table1", "cifar10-0.1", "fedfft-d", "fedavg")),
        ("are # points in its favour", lambda: gap("fedfft", "table12", "all", "fedfft-d", "fedsam-d")),
        (
            "are # (FedFFT, Table 1, # rows), # (SpecGradFilter, Table I, # rows), # (FedWMSAM, Table 1, # rows) and "
            "# (FedSCAM, Table 2, # rows)",
            lambda: correlations("table-cifar", "label-0.1"),
        ),
        ("they are #, # and # for the first", lambda: correlations("table-cifar", "label-0.6")[::2]),
        ("FedWMSAM's Table 1 are # and #.", lambda: tuple(correlations("table-fashion", x)[0] for x in BOTH)),
        ("Dirichlet 0.1: # points published", lambda: gap("specgrad", "table1", "cifar10-0.1", "specgrad", "fedavg")),
        ("here # after 30 rounds", lambda: difference("skew-cifar", "label-0.1", "specgrad", "fedavg")),
        ("and # after 100", lambda: difference("long-cifar", "label-0.1", "specgrad", "fedavg")),
        ("weights, # after 30 over", lambda: difference("table-cifar", "label-0.1", "specgrad", "fedavg")),
    ],
    BAD: [],
    PRIVATE: [],
    TUNED: [("with the chances #, #, # and #.", chances)],
    SCHEDULES: [("recall of # %, and", lambda: slow_recall("cifar10", "over-selected"))],
}


def late(study: str, setting: str, label: str) -> dict[int, float]:
    """The late accuracies of a row in points, by seed."""
    from shared import read_lines

    lines = read_lines(ROOT / "benchmarks/studies/results/here" / f"{study}.jsonl")
    chosen = [x for x in lines if (x["setting"], x["label"]) == (setting, label)]
    return {x["seed"]: 100 * late_mean([value for _, value in x["curve"]]) for x in chosen}


def paired(ours: dict[int, float], theirs: dict[int, float]) -> tuple[float, ...]:
    """The paired difference of two rows."""
    found = paired_difference(ours, theirs)
    assert found is not None and found.low is not None and found.high is not None
    return found.mean, found.low, found.high


def welch() -> tuple[float, ...]:
    """How much more the filter gains with skewed labels than without skew, in the small CNN on Fashion-MNIST."""
    gains = []
    for setting in ("label-0.1", "iid"):
        ours, theirs = (late("skew-fashion", setting, label) for label in ("specgrad", "fedavg"))
        gains.append([ours[seed] - theirs[seed] for seed in ours])
    parts = [variance(gain) / len(gain) for gain in gains]
    freedom = sum(parts) ** 2 / sum(part**2 / (len(gain) - 1) for part, gain in zip(parts, gains, strict=True))
    gap, half = fmean(gains[0]) - fmean(gains[1]), stdtrit(freedom, 0.975) * sum(parts) ** 0.5
    return gap, gap - half, gap + half


ACROSS: dict[str, Callable[[], tuple[float, ...]]] = {
    "1.4 [0.4, 2.5]": welch,
    "2.1 [0.9, 3.3]": lambda: paired(
        late("table-cifar", "label-0.1", "fedfft"), late("ablation-cifar", "label-0.1", "rescaled-0.1")
    ),
}
"""Differences of rows that are not of one setting of one study."""

GIVEN = (
    r"The aim was 1\.3 times|r = 0\.01 and 0\.5"
    r"|Dirichlet 0\.\d+( and 0\.\d+)?|(learning rate|radius of|radius|r =|mu =|skew|rate|Python|PyTorch|Flower|version"
    r"|BlazeFL|step is|Python:|Apache-|at|At) \d+(\.\d+)+|(worse|better) with 0\.[16]|95 %|Apache-2\.0|within 2e-6"
    r"|(within|up to) 0\.1,?"
    r"|with 0\.[16]|that was tried \(0\.8\)|stays below 0\.003|there, 0\.05, was"
    r"|alpha = 0\.5|95 % intervals|rate 0\.1 and equal|only the 1\.00|Withdrawn: \"[^\"]*\"|rate 0\.01 for all"
    r"|FedSCAM at 0\.01|0\.01 for all|and 0\.9 of the last|the 0\.\d+ of Fed|radius is 0\.01|rate 0\.2|`` 0\.05 every"
    r"|`` from 0\.05 to 0\.5|; 0\.1 was chosen"
)
"""Settings, versions, and limits that tests hold."""


def made_table(page: str) -> str:
    """The tables of a page that is made from the lines of one script; empty for the others."""
    import fine_tuning
    import poisoning
    import private_accuracy
    import schedules

    makers = {
        BAD: poisoning.tables,
        PRIVATE: private_accuracy.table,
        TUNED: fine_tuning.tables,
        SCHEDULES: schedules.tables,
    }
    return makers[page]() if page in makers else ""


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("studies", "peers", "speed"):
        monkeypatch.syspath_prepend(ROOT / "benchmarks" / folder)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("page", BOUND)
def test_an_interval_is_a_difference_of_committed_rows(page: str) -> None:
    from beside import gap_text
    from protocol_state import measured_claims

    claims = {gap_text(claim.difference) for claim in measured_claims()}
    steps = [row for row in result("studies/results/compare-steps.json")["rows"] if "last_low" in row]
    known = [*differences(), *(tuple(100 * row[f"last_{x}"] for x in ("difference", "low", "high")) for row in steps)]
    whole, made = (ROOT / page).read_text(encoding="utf-8"), made_table(page)
    assert made in whole, f"{page} is not up to date: run make results"
    for text in intervals(prose(page) if made else whole):
        if text in made or text in claims:  # corrected for the number of claims of its page
            continue
        found = [ACROSS[text]()] if text in ACROSS else known
        assert any(same(text, value) for value in found), f"{page}: {text} is no difference of two committed rows"


@pytest.mark.parametrize("page", BOUND)
def test_no_measured_number_is_without_a_file(page: str) -> None:
    assert unbound(page, [text for text, _ in BOUND[page]], GIVEN) == [], "bind them to a file in BOUND, or remove them"


@pytest.mark.parametrize(("page", "text"), [(page, text) for page, bound in BOUND.items() for text, _ in bound])
def test_a_number_in_the_text_is_that_of_its_file(page: str, text: str) -> None:
    value = dict(BOUND[page])[text]()
    assert same(stated(page, text), value if isinstance(value, tuple) else (value,)), (stated(page, text), value)


def table(page: str, start: str) -> list[list[str]]:
    """The rows of the table whose header starts so."""
    (found,) = (rows for head, rows in tables(page).items() if head.startswith(start))
    return found


def test_tables_of_bands() -> None:
    rows, filtered = table(LOW, "| case | rounds | distance"), table(LOW, "| case | rounds | energy")
    assert len(rows) == len(filtered) == len(looks()) == 12
    for row, other, look in zip(rows, filtered, looks(), strict=True):
        distance, share = (
            look["distance"],
            (look[key][0] for key in ("normalised", "energy_share", "disagreement_share")),
        )
        values = (distance[0] / max(distance[1:]), *share, *inside_and_outside(look))
        assert same(" ".join(row[2:]), values), row
        fine, coarse = look["filtering"]["r=0.05"], look["filtering"]["r=0.01"]
        values = (
            *(fine[key] for key in ("energy_removed", "agreement/removed", "agreement/kept", "gain")),
            coarse["gain"],
        )
        assert same(" ".join(other[2:]), values), other


def test_table_of_step_sizes() -> None:
    rows = result("studies/results/compare-steps.json")["rows"]
    for cells, row in zip(table(LOW, "| step | method"), rows, strict=True):
        assert same(cells[2], (100 * row["last"], 100 * row["last_std"])), cells


def test_tables_of_the_mean_part() -> None:
    names = {"Fashion-MNIST": "fashion-mnist", "CIFAR-10": "cifar10"}
    for data, kind, energy, taken, kept in table(MEAN, "| data | skew | energy removed"):
        filters = mean_part(names[data], KINDS.get(kind, kind))["filters"]
        assert same(energy, tuple(filters[name]["energy"] for name in ("inputs", "maps", "high-pass"))), energy
        assert same(f"{taken} {kept}", (filters["high-pass"]["removed"], filters["high-pass"]["kept"])), (data, kind)
    for data, kind, *cells in table(MEAN, "| data | skew | whole: own, all"):
        effects = mean_part(names[data], KINDS.get(kind, kind))["effects"]
        values = tuple(effects[part][key] for part in ("whole", "mean", "kept", "shorter") for key in ("own", "test"))
        assert same(" ".join(cells), values), cells


def test_trials_in_the_table_of_learning_rates() -> None:
    rows = [row for row in table(RATES, "| | learning rate") if "one seed" in row[0]]
    for row, rate in zip(rows, (0.1, None), strict=True):
        values = tuple(trial(x, "fedcm", rate) - trial(x, "fedavg", rate) for x in ("label-0.1", "label-0.6"))
        assert same(" ".join(row[2:]), values), (row, values)
    places = {
        "FedWMSAM, Table 1, Fashion-MNIST": ("fedwmsam", "fashion-mnist-dirichlet-"),
        "FedWMSAM, Table 1, CIFAR-10": ("fedwmsam", "cifar10-dirichlet-"),
        "SpecGradFilter, Table I, CIFAR-10": ("specgrad", "cifar10-"),
    }
    printed = {row[0]: row for row in table(RATES, "| | learning rate")}
    for title, (name, part) in places.items():
        values = tuple(gap(name, "table1", f"{part}{alpha}", "fedcm", "fedavg") for alpha in ("0.1", "0.6"))
        assert same(" ".join(printed[title][2:]), values), (title, values)


def test_table_of_filters() -> None:
    results = {(f"{row['size']:,}", str(row["r"])): row for row in result("speed/results/filters.json")}
    for size, r, way, *cells in table(SPEED, "| elements | r | way"):
        row = results[size, r]
        *times, error = cells
        assert way == row["way"] and f"{row['error']:.0e}" == error
        assert same(" ".join(times), tuple(row[f"{name}_min_ms"] for name in ("fft", "now", "copy"))), cells


def test_table_of_arrivals() -> None:
    known = {
        (x["method"].split()[0], str(x["uploads_per_step"])): x for x in result("speed/results/arrivals.json")["rows"]
    }
    rows = table(SPEED, "| method | uploads per step")
    assert len(rows) == len(known)
    names: tuple[str, ...] = ("ms_per_client_of_a_large_round", "ms_per_client_of_an_equal_round", "ms_per_arrival")
    names += ("over_large", "over_equal", "kb_per_client_of_an_equal_round", "kb_per_arrival")
    for method, size, *cells in rows:
        assert same(" ".join(cells), tuple(known[method, size][name] for name in names)), (method, size)


def test_table_of_predictions() -> None:
    import planned

    rows = result("speed/results/plan.json")["runs"]
    found = table(SPEED, "| run | processor time, predicted")
    assert [name for name, *_ in found] == [row["run"] for row in rows]
    for (_, *cells), row in zip(found, rows, strict=True):
        values = [row[kind][name] for kind in ("processor", "clock") for name in ("predicted", "measured", "ratio")]
        assert same(" ".join(cells), tuple(values)), row["run"]
        assert all(planned.AIM[0] <= row[kind]["ratio"] <= planned.AIM[1] for kind in ("processor", "clock"))


def test_table_of_a_million_clients() -> None:
    """It is what the cost model gives; nothing of it is measured."""
    import planned

    page = (ROOT / SPEED).read_text(encoding="utf-8")
    assert planned.markdown() in page, "run python benchmarks/speed/planned.py"


def test_table_of_populations() -> None:
    rows = result("speed/results/engine.json")["population"]
    found = table(SPEED, "| method | registered")
    assert len(found) == len(rows)
    for (method, registered, sampled, *cells), row in zip(found, rows, strict=True):
        assert (method, registered, sampled) == (row["method"], f"{row['registered']:,}", f"{row['sampled']:,}")
        values = (row["ms_per_sampled_client"], row["server_megabytes"], row["worker_megabytes"])
        assert same(" ".join(cells), values), row


def test_table_of_groups() -> None:
    rows = result("speed/results/together.json")["rows"]
    found = table(SPEED, "| model | bare, ms")
    assert len(found) == len(rows)
    for (_, *cells), row in zip(found, rows, strict=True):
        times = [row["times_bare"][size] for size in ("1", "10", "25", "50")]
        assert same(" ".join(cells), (row["ms_per_client"]["bare"], *times)), row["model"]


def test_table_of_light_nodes() -> None:
    rows = result("speed/results/light_nodes.json")["rows"]
    found = table(SPEED, "| nodes | edge servers")
    assert len(found) == len(rows)
    for (nodes, edges, *cells), row in zip(found, rows, strict=True):
        assert (nodes, edges) == (f"{row['nodes']:,}", str(row["edges"] or ""))
        seconds = row["seconds"]
        values = [seconds["server"], *([seconds["edges"]] if row["edges"] else []), seconds["nodes"]]
        assert same(" ".join(cells), (*values, row["megabytes"])), (nodes, edges)
    for nodes in {row["nodes"] for row in rows}:
        assert len({row["sha256"] for row in rows if row["nodes"] == nodes}) == 1


def test_table_of_real_nodes() -> None:
    lines = (ROOT / "benchmarks/speed/results/real_nodes.jsonl").read_text(encoding="utf-8").splitlines()
    known = {str(row["nodes"]): row for row in map(json.loads, lines)}
    printed = table("docs/guide/deployment.md", "| SuperNodes | seconds a round")
    assert len(printed) == len(known)
    for nodes, *cells in printed:
        row = known[nodes]
        assert row["accepted"] == [row["nodes"]] * len(row["accepted"])
        seconds = (min(row["round_seconds"]), max(row["round_seconds"]))
        cost = (row["superlink_processor_seconds_per_node_and_round"], row["superlink_megabytes"])
        assert same(" ".join(cells), (*seconds, *cost)), nodes


def test_table_of_steps() -> None:
    whole, names = result("speed/results/step.json"), ("cnn5", "resnet20", "resnet18")
    for head, results in (("| ratio |", whole), ("| ratio, memory kept |", whole["kept"])):
        rows = table(SPEED, head)
        assert len(rows) == len(results["cnn5"]["quartiles"])
        for name, *others in rows:
            ratio = name.strip("`")
            for model, cell in zip(names, others[-3:], strict=True):
                low, high = results[model]["quartiles"][ratio]
                assert cell == f"{results[model][ratio]:.2f} ({low:.2f} to {high:.2f})", (model, ratio)


def test_table_of_whitening() -> None:
    results = result("speed/results/whitened.json")
    shown = (1, 64), (1, 16), (5, 16), (10, 16), (20, 16)
    settings = ("center-maps", *(f"every {every}, patches {p}" for every, p in shown))
    found = table(SPEED, "| model | FedAvg, ms")
    assert len(found) == 4
    for model, milliseconds, *cells in found:
        row = results[model]
        assert f"{row['ms']['uniform']:.2f}" == milliseconds
        for name, cell in zip(settings, cells, strict=True):
            low, high = row["quartiles"][name]
            assert cell == f"{row['ratio'][name]:.2f} ({low:.2f} to {high:.2f})", (model, name)


def test_table_of_adapters() -> None:
    rows, bases = adapters()["memory"], {"from-file": "from its file", "in-memory": "built by each process"}
    printed = table(ADAPTERS, "| method | base | server")
    assert len(printed) == len(rows)
    for (method, base, *cells), row in zip(printed, rows, strict=True):
        assert (method, base) == (f"`{row['method']}`", bases[row["base"]])
        peaks, sent = row["peak_in_bases"], row["bytes_of_a_client"]
        values = (peaks["server"], max(peaks["worker 0"], peaks["worker 1"]), peaks["all"], row["seconds"])
        assert same(" ".join(cells), (*values, sent["down"] / 1e6, sent["up"] / 1e6)), cells


def test_tables_of_peers() -> None:
    from table import markdown

    page = (ROOT / SPEED).read_text(encoding="utf-8")
    for part in markdown(result("peers/results/peers.json")).split("\n\n"):
        assert part.startswith("No SCAFFOLD") or part in page, part


@pytest.mark.parametrize("page", BOUND)
def test_every_table_with_decimals_is_bound(page: str) -> None:
    """By one of the tests above, by its intervals, or it has settings only."""
    known = (
        "| case |",
        "| model | FedAvg, ms",
        "| step |",
        "| data |",
        "| | learning rate",
        "| elements |",
        "| method | uploads",
        "| | workers |",
        "| ratio |",
        "| ratio, memory kept |",
        "| method | base |",
        "| method | published | here",
        "| setting | rows | points",
        "| | CIFAR-10, 0.1",
        "| run | processor",
        "| parameters | workers",
        "| method | registered",
        "| model | bare",
        "| nodes |",
    )
    studied = ("| late accuracy", "| success of the trigger", "| row | rate |", "| row | accuracy |", "| schedule")
    for head, rows in tables(page).items():
        cells = [INTERVAL.sub("", cell) for row in rows for cell in row]
        numbers = [cell for cell in cells if re.search(r"\d\.\d", re.sub(GIVEN + r"|, 0\.\d|^0\.\d+", "", cell))]
        assert head.startswith((*known, *studied)) or not numbers, (head, numbers)


def test_fedfsa_compares_its_measures() -> None:
    """The note of the method has the numbers of sensitivity.json."""
    rows = result("studies/results/sensitivity.json")["rows"]
    own = [row for row in rows if row["measure"] == "normalized"]
    note = " ".join(str(fedfsa.__doc__).split())
    agree = tuple(100 * fmean(x["agree"].get(f"normalized, {other}", 0) for x in own) for other in ("raw", "sum"))
    found = re.search(r"same two layers in (.*?) % of the visits .*? in (.*?) %, .*? accuracies of (.*?) % over", note)
    assert found and same(f"{found[1]} {found[2]}", agree) and not any("raw, sum" in row["agree"] for row in rows)
    personal = [
        fmean(100 * x["personal"] for x in rows if x["measure"] == kind) for kind in ("normalized", "raw", "sum")
    ]
    assert same(found[3], tuple(personal))


def test_the_published_numbers_of_the_contradictions() -> None:
    """What the papers print, and that the results page has it with its sign."""
    fashion, cifar, near = ("fashion-mnist-dirichlet-{}", "cifar10-{}", ("0.1", "0.6"))
    wmsam = {
        name: [gap("fedwmsam", "table1", fashion.format(x), name, "fedavg") for x in near]
        for name in ("fedcm", "mofedsam")
    }
    fft = {
        pair: [gap("fedfft", "table1", cifar.format(x), *pair) for x in near]
        for pair in (
            ("fedsam", "fedavg"),
            ("fedfft", "fedavg"),
            ("fedsmoo", "feddyn"),
            ("fedgloss", "feddyn"),
            ("fedfft-d", "feddyn"),
            ("fedfft-s", "scaffold"),
            ("scaffold", "fedavg"),
        )
    }
    spec = [
        gap("specgrad", "table1", "cifar10-0.1", "scaffold", "fedavg"),
        gap("specgrad", "table1", "cifar10-0.6", "fedsam", "fedavg"),
    ]
    scam = [gap("fedscam", "table2", "alpha-0.1", x, "fedavg") for x in ("fedwmsam", "uniform")]
    rest = [gap("fedwmsam", "table1", "cifar10-dirichlet-0.1", x, "fedavg") for x in ("fedwmsam", "scaffold")]
    expected = {
        "FedCM, Fashion-MNIST": [-x for x in wmsam["fedcm"]],
        "MoFedSAM, Fashion-MNIST": [-x for x in wmsam["mofedsam"]],
        "FedWMSAM, CIFAR-10, Dirichlet 0.1": [-scam[0], rest[0]],
        "FedSCAM, Fashion-MNIST, Dirichlet 0.1": [gap("fedscam", "table1", "all", "fedscam", "fedwmsam")],
        "equal weights, CIFAR-10, Dirichlet 0.1": [-scam[1]],
        "FedSAM, CIFAR-10, Dirichlet 0.6": [fft["fedsam", "fedavg"][1], -spec[1]],
        "FedFFT": fft["fedfft", "fedavg"],
        "FedSMOO, CIFAR-10": fft["fedsmoo", "feddyn"],
        "FedGloSS, CIFAR-10, Dirichlet 0.1": fft["fedgloss", "feddyn"][:1],
        "FedFFT-D, CIFAR-10": fft["fedfft-d", "feddyn"],
        "FedFFT-S, CIFAR-10": fft["fedfft-s", "scaffold"],
        "Gaussian kernel (GD), CIFAR-10": [-gap("specgrad", "table3", "cifar10", "gd", "low-frequency")],
        "SCAFFOLD, CIFAR-10, Dirichlet 0.1": [-spec[0], fft["scaffold", "fedavg"][0], rest[1]],
    }
    rows = {method: printed for method, printed, *_ in table(INDEX, "| method | published | here")}
    for method, values in expected.items():
        numbers = re.findall(r"\d+\.\d+", rows[method])
        assert same(" ".join(numbers), tuple(values)), (method, numbers, values)
    assert set(rows) - set(expected) == {"FedDyn with filtered gradients, CIFAR-10"}


def test_every_committed_result_is_cited() -> None:
    """By a page of the docs, or by the README of its folder, with its path."""
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*/README.md"), ROOT / "README.md"]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    for path in ROOT.glob("benchmarks/*/results/**/*"):
        name, folder = (x.relative_to(ROOT).as_posix() for x in (path, path.parent))
        if path.is_file() and path.name != "machine.json":
            assert name in texts or f"`{folder}/`" in texts, f"{name}: no page cites it"


def test_what_the_front_pages_say_of_speed() -> None:
    """As much as a bare loop, within a tenth."""
    for page in (README, FRONT):
        assert "round in one process costs as much as in a bare PyTorch loop" in prose(page)
    assert peer("cnn", "undrift", "over_bare") == pytest.approx(1, abs=0.1)
