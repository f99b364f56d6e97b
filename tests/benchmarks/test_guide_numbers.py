"""Measured numbers of the guides, the concepts and the front page of the docs: each has a file, or it is not there.

Decimals, shares, factors, times and sizes. What is computed, a setting, or a limit that a test holds is named here.
"""

import re
from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest
from scipy.special import stdtr, stdtrit

from support.page_numbers import MEASURED, ROOT, result, same, stated, tables, unbound
from undrift.privacy import gaussian_epsilon, loss_epsilon, sampled_epsilon

BOUND_ELSEWHERE = {"adapters", "oracles", "security"}
"""Guides whose numbers other tests of this folder hold."""
GUIDES = sorted(path.stem for path in (ROOT / "docs/guide").glob("*.md") if path.stem not in BOUND_ELSEWHERE)
PAGES = [
    *(f"docs/guide/{name}.md" for name in GUIDES),
    *(f"docs/concepts/{path.name}" for path in sorted((ROOT / "docs/concepts").glob("*.md"))),
]
TIMED = re.compile(
    MEASURED.pattern + r"|(?<![\w.-])\d[\d,.]* (?:ns|us|ms|s|min|minutes|seconds|microseconds|[kKMG]i?B)\b"
)


def digits(after: int) -> float:
    """FedAvg's accuracy on digits after so many rounds, in per cent, the mean of five seeds."""
    seeds = result("../docs/figures/curves.json")["accuracy"]["fedavg"]
    assert len(seeds) == 5
    return 100 * fmean(seed[after - 1] for seed in seeds)


def covered(seeds: int) -> float:
    """How often a normal interval of so many seeds has the true value, in per cent."""
    return 100 * (1 - 2 * float(stdtr(seeds - 1, -1.96)))


def looks(part: str, clients: int = 10) -> float:
    """What a stream takes, in models."""
    rows = result("speed/results/lens-memory.json")["memory"]
    found: float = next(row["models"] for row in rows if (row["part"], row["clients"]) == (part, clients))
    return found


def share(name: str) -> float:
    """What looking costs, in per cent."""
    found: float = 100 * result("speed/results/lens.json")["share"][name]
    return found


def compiled(kind: str, name: str) -> float:
    """A number of the compiled ResNet-20."""
    found: float = result("studies/results/compiled.json")[kind][name]
    return found


def scale() -> list[dict[str, Any]]:
    """The runs with a hundred million parameters."""
    runs: list[dict[str, Any]] = result("speed/results/scale.json")["runs"]
    return runs


def before() -> tuple[float, float]:
    """The resident memory before a run, in GB."""
    sizes = [size / 1000 for run in scale() for size in run["megabytes_before"].values()]
    return min(sizes), max(sizes)


def epsilons() -> tuple[float, float]:
    """Of two accountants, for one case."""
    case = (1.5, 0.04, 1e-5, 2250)
    return loss_epsilon(*case), sampled_epsilon(*case)


Value = Callable[[], float | tuple[float, ...]]
BOUND: dict[str, list[tuple[str, Value]]] = {
    "docs/guide/faq.md": [
        (
            "FedAvg has # % after the first round, # % after ten and # % after thirty",
            lambda: (digits(1), digits(10), digits(30)),
        ),
    ],
    "docs/guide/comparing.md": [
        ("freedom: # for three seeds and # for five", lambda: (float(stdtrit(2, 0.975)), float(stdtrit(4, 0.975)))),
        ("true difference in # % and # % of cases", lambda: (covered(3), covered(5))),
    ],
    "docs/guide/lens.md": [
        ("one measurement takes # % of a round", lambda: share("share_every_round")),
        ("costs # % of a run", lambda: share("share_every_5")),
        (
            "# (two of them are the sum), `` #, `` #, all three at once #.",
            lambda: tuple(looks(x) for x in ("bands", "spread", "gram", "all")),
        ),
        ("All three need # models for 100 clients", lambda: looks("all", 100)),
    ],
    "docs/guide/scale.md": [("Ray take before (# to # GB)", before)],
    "docs/guide/tasks.md": [
        (
            "takes # ms compiled and # ms plain, the first # s",
            lambda: (
                compiled("compiled", "step_milliseconds"),
                compiled("plain", "step_milliseconds"),
                compiled("compiled", "first_step_seconds"),
            ),
        ),
        (
            "after 12 rounds # and # %",
            lambda: (100 * compiled("compiled", "accuracy"), 100 * compiled("plain", "accuracy")),
        ),
    ],
    "docs/guide/privacy.md": [
        ("smaller: # where the first gives #", epsilons),
        ("where Gaussian noise spends #", lambda: gaussian_epsilon(10, 1e-5, 100)),
    ],
    "docs/guide/data.md": [("a batch of 200 takes # MB", lambda: 200 * 3 * 224 * 224 * 4 / 1e6)],
    "docs/guide/partitions.md": [("# MB of disk for each type", lambda: 10_000 * 32 * 32 * 3 / 1e6)],
}
"""Where a page has a measured or a computed number as #, and what it is."""

GIVEN: dict[str, str] = {
    "docs/guide/accelerators.md": r"with 0\.5 GB|50 ms of training|24 MiB of cuBLAS|up to 1 % of the distance",
    "docs/guide/asynchronous.md": r"three times|at 1\.0, the optimum|alpha 0\.1 at 1\.124|AREA at 2\.0",
    "docs/guide/comparing.md": r"1 - 0\.05 / m|quantile, 1\.96|are 0\.01, 0\.05, 0\.1 and 0\.15|up to 6 times",
    "docs/guide/data.md": (
        r"each type takes 31 MB|doi 10\.24432|first 80 %|trains on 20 %|0\.0 and 1\.0|with 0\.5 and 0\.5"
    ),
    "docs/guide/deployment.md": (
        r"at most 5 seconds ahead|about 5 minutes behind|every 3 seconds|above 8 MB|chunks of 5 MB|has 32 KB|or 2 GB"
        r"|fail after 5 seconds|is fetched \(5 MB\)"
    ),
    "docs/guide/engines.md": r"about 15 seconds",
    "docs/guide/local-training.md": r"\(1e-5 in our tests\)",
    "docs/guide/notebooks.md": r"every 30 seconds",
    "docs/guide/operations.md": r"at least 600 seconds",
    "docs/guide/partitions.md": r"With alpha 0\.1|15 times instead of once",
    "docs/guide/privacy.md": (
        r"under 0\.3 of that|delta 1e-5 spend 4\.73|noise 1\.5, probability 0\.04"
        r"|delta 1e-5; Opacus' PRV accountant gives 6\.78"
        r"|0\.5 is a guess|at 1 % of false"
    ),
    "docs/guide/report.md": r"more than 20 times|6\.5 inches|1\.5 decades",
    "docs/guide/runs.md": (
        r"every 30 seconds|100 clients and 0\.1|by 0\.9995|by 0\.998|at most (10|4) times|at 8 points"
    ),
    "docs/guide/scale.md": (
        r"33\.5 million|a model is 404 MB|A model is 4 GB|needs about 56 GB|41 GB on a worker|file of 4 GB|needs 40 GB"
        r"|the 5 GB of a sum|broadcast, 8 GB"
    ),
    "docs/guide/tasks.md": r"a test: within 1e-5",
}
"""Settings, versions, limits that a test holds, and arithmetic that stands beside the number."""


def given(page: str) -> str:
    """What is no measurement on a page."""
    everywhere = r"Dirichlet 0\.\d+|(Flower|fluke|pfl-research|Python|version|BY) \d+\.\d[.\d]*|95 %|99 %"
    return "|".join(filter(None, (everywhere, GIVEN.get(page, ""))))


@pytest.mark.parametrize("page", PAGES)
def test_no_measured_number_of_a_guide_is_without_a_file(page: str) -> None:
    assert unbound(page, [text for text, _ in BOUND.get(page, ())], given(page), TIMED) == []


@pytest.mark.parametrize(("page", "text"), [(page, text) for page, bound in BOUND.items() for text, _ in bound])
def test_a_number_of_a_guide_is_that_of_its_file(page: str, text: str) -> None:
    value = dict(BOUND[page])[text]()
    assert same(stated(page, text), value if isinstance(value, tuple) else (value,)), (stated(page, text), value)


def table(page: str, start: str) -> list[list[str]]:
    """The rows of the table whose header starts so."""
    (found,) = (rows for head, rows in tables(page).items() if head.startswith(start))
    return found


def test_the_table_of_an_example_is_that_of_its_file() -> None:
    rows = {row["label"]: row for row in result("studies/results/compare-fashion.json")["rows"]}
    printed = table("docs/guide/comparing.md", "| method | best %")
    assert [label for label, *_ in printed] == list(rows)
    for label, best, last, difference, to_target, traffic, worst in printed:
        row = rows[label]
        for cell, name in ((best, "best"), (last, "last"), (worst, "worst_tenth")):
            assert same(cell, (100 * row[name], 100 * row[f"{name}_std"])), (label, name)
        values = tuple(100 * row[f"last_{x}"] for x in ("difference", "low", "high")) if difference else ()
        assert same(difference, values), label
        assert same(to_target, (row["rounds_to_target"], row["reached"], len(row["seeds"]))), label
        assert same(traffic, (row["traffic"],)), label


def test_the_memory_of_looking_is_that_of_its_file() -> None:
    rows = result("speed/results/lens-memory.json")["memory"]
    known = {(row["part"], row["clients"]): row for row in rows}
    ray = [known["look-ray", 10]["models"], *[row["second"] for row in (known["look-ray", 10],)]]
    values = [
        (known["look", 1000]["models"],),
        (known["look", 10]["models"], known["look", 10]["second"]),
        (known["gradients", 10]["models"], known["gradients", 10]["second"]),
        (known["look-returned", 10]["models"], known["look-returned", 10]["second"]),
        tuple(ray),
        (known["look-ray-returned", 10]["models"], known["look-ray-returned", 10]["second"]),
    ]
    for (_, *cells), value in zip(table("docs/guide/lens.md", "| | first measurement"), values, strict=True):
        assert same(" ".join(cells), value), (cells, value)


def test_the_examples_recovered_are_those_of_their_file() -> None:
    runs = result("studies/results/inversion.json")["runs"]
    known = [(run, row) for run, rows in runs.items() for row in rows][:5]
    for (name, seen, *cells), (run, row) in zip(table("docs/guide/privacy.md", "| run | what"), known, strict=True):
        assert re.findall(r"[\w.()-]+", run)[0] in name and seen.startswith(row["seen"]), (name, seen)
        assert same(" ".join(cells), (row["examples"], 100 * row["recovered"], row["median"])), name


def test_the_precisions_are_those_of_their_file() -> None:
    rows = result("studies/results/precision/summary.json")["methods"]
    printed = table("docs/guide/local-training.md", "| method | fp32")
    assert len(printed) == len(rows)
    names = {"FedAvg": "fedavg", "SCAFFOLD": "scaffold", "FedFFT-D": "fedfft-d", "SpecGradFilter": "specgrad"}
    known = {row["method"]: row for row in rows}
    for name, *cells in printed:
        row = known[names[name]]
        values = (100 * row["fp32"], 100 * row["bf16"], *row["differences"], row["step_time_ratio"])
        assert same(" ".join(cells), values), name


def test_the_tables_of_scale_are_those_of_their_file() -> None:
    runs = {(run["method"], run["where"]): run for run in scale()}
    page = "docs/guide/scale.md"
    for method, _, cell in table(page, "| method | a reply has"):
        assert same(cell, (runs[method.lower(), "here"]["bytes_per_parameter"]["reply"],)), method
    model = 4 * scale()[0]["parameters"]
    for name, server, worker, clients, step, *sent in table(page, "| | server | worker | clients"):
        method, where = name.split(", ")
        run = runs[method.lower(), "ray" if "Ray" in where else "here"]
        peaks = run["peak_in_models"]
        assert same(server, (peaks["server"], peaks["server"] * model / 1e9)), name
        assert "worker" not in peaks or same(worker, (peaks["worker"], peaks["worker"] * model / 1e9)), name
        assert same(f"{clients} {step}", (run["seconds"]["clients"], run["seconds"]["server step"])), name
        if any(sent):
            sizes = run["bytes_per_parameter"]
            assert same(" ".join(sent), tuple(sizes[x] * model / 4e6 for x in ("broadcast", "reply"))), name


@pytest.mark.parametrize("page", PAGES)
def test_every_table_of_a_guide_with_measured_decimals_is_bound(page: str) -> None:
    known = (
        *("| method | best %", "| | first measurement", "| method | a reply has", "| | server | worker | clients"),
        *("| run | what is seen", "| method | fp32", "| SuperNodes |"),  # the last in test_page_numbers
    )
    settings = r"`[^`]*`|\([^)]*\)|1\.3 times as many|0\.5 and 0\.5|sigma of 7\.5|1\.5 k|^0\.\d+$"
    for head, rows in tables(page).items():
        cells = [re.sub(settings, "", cell) for row in rows for cell in row]
        numbers = [cell for cell in cells if re.search(r"(?<![\w.])\d+\.\d", cell)]
        assert head.startswith(known) or not numbers, (head, numbers)
