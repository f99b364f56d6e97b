"""Cards say what the code says, pages are what the cards say, and the worked example of CONTRIBUTING.md works."""

import doctest
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from undrift import Algorithm, Local, Simulation, blocks, cost, make
from undrift.algorithms import ALGORITHMS
from undrift.blocks import Average, FedDyn, Private, Proximal, Scaffold
from undrift.cli import app
from undrift.compose.cards import card, facts, family, markdown, pages, stored_text, write
from undrift.compose.grammar import parse
from undrift.compose.stored import FAMILIES, PATH
from undrift.compose.symbols import explain_symbols
from undrift.testing import Clinic, check_algorithm, check_block

ROOT = Path(__file__).parents[2]
WIDE = CliRunner(env={"COLUMNS": "80"})


def test_a_card_says_what_the_code_says() -> None:
    found = card("fedfft-d")
    assert found.title == "FedFFT-D: FedFFT with the duals of FedDyn."
    assert found.idea.startswith("The strongest of the three in the paper")
    assert found.equations.splitlines()[1] == "server:  FedDyn"
    assert [(a.name, a.default) for a in found.defaults] == [("r", "0.01"), ("rho", "0.1"), ("mu", "0.1")]
    assert found.defaults[2].meaning == "strength of the proximal term, 1/beta in the paper."
    assert found.slots["drift"] == "FedDyn(mu=0.1)" and found.cost == cost(make("fedfft-d"))
    assert found.limits == ("r = 0 gives FedSpeed.", "rho = 0 gives FedDyn.")
    assert found.differences.startswith(
        "The published algorithm is wrong in four places: the signs of the dual in step"
    )
    assert found.references == ("FedFFT, spectral filtering of sharpness-aware perturbations, Algorithm 2, corrected.",)
    assert len(card("fedsam").references) == 2


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_card_is_complete(name: str) -> None:
    found = card(name)
    assert found.title.endswith(".") and found.idea and found.equations and found.limits and found.references
    assert all(argument.meaning for argument in found.defaults)
    assert parse(found.composition) == make(name)
    assert found.equations.startswith(("client", "server"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_card_says_when_to_use_the_method_and_when_not(name: str) -> None:
    found = card(name)
    assert len(found.title) <= 125
    use, *rest = re.split(r"(?<=\.) (?=[A-Z])", found.use)
    assert use.startswith("Use it ") and len(rest) == 1 and rest[0].startswith("Not ") and rest[0].endswith("."), (
        "two sentences, the first paragraph after the title: 'Use it ...' and 'Not ...'"
    )
    assert max(len(use), len(rest[0])) <= 180 and "Use it " not in found.idea
    assert markdown(found).startswith(f"# {name}\n\n{found.title}\n\n**When to use:** {found.use}\n\n")


def test_a_docstring_without_advice_has_a_card_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> Algorithm:
        """A method of my own.

        Why it works.
        """
        return Algorithm()

    monkeypatch.setitem(ALGORITHMS, "silent", silent)
    assert card("silent").use == "" and card("silent").idea == "Why it works."
    assert "When to use" not in markdown(card("silent"))


def test_stored_methods_are_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == stored_text(), "run make cards"


def test_pages_are_up_to_date() -> None:
    folder, made = ROOT / "docs" / "reference" / "methods", pages()
    assert {path.name for path in folder.iterdir()} == set(made), "run make cards"
    stale = [name for name, page in made.items() if (folder / name).read_text() != page]
    assert not stale, f"run make cards: {', '.join(stale)}"


def test_writing_removes_only_pages_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / "gone.md").write_text(pages()["fedavg.md"])
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*pages(), "notes.md"}


def test_families_follow_from_the_slots() -> None:
    families = {name: family(make(name)) for name in ALGORITHMS}
    assert set(families.values()) == set(FAMILIES)
    expected = {"fedavg": "weights", "uniform": "weights", "scaffold": "drift", "fedprox": "drift", "fedavgm": "server"}
    expected |= {"fedsam": "sharpness", "fedgamma": "sharpness", "fedfft-d": "spectral", "specgrad": "spectral"}
    assert expected.items() <= families.items()
    assert family(Algorithm(personalization=Private(("head.*",)), drift=Scaffold())) == "personal"
    assert family(Algorithm(server_optimizer=Average(0.5), drift=FedDyn())) == "drift"
    assert family(parse("median + scaffold")) == "robust"


@pytest.mark.quick
def test_show_prints_a_card() -> None:
    shown = WIDE.invoke(app, ["show", "scaffold"])
    assert shown.exit_code == 0 and all(len(line) <= 80 for line in shown.stdout.splitlines())
    for part in ("c_i <- c_i - c - delta_i", "Limiting cases", "Karimireddy", "Scaffold()"):
        assert part in shown.stdout
    assert WIDE.invoke(app, ["show", "scaffold", "--markdown"]).stdout == markdown(card("scaffold"))
    report = json.loads(WIDE.invoke(app, ["show", "scaffold", "--json"]).stdout)
    assert (report["name"], report["family"], report["cost"]["down"]) == ("scaffold", "drift", 2)


def test_list_is_grouped_and_filtered() -> None:
    lines = WIDE.invoke(app, ["list"]).stdout.splitlines()
    heads = [line.strip() for line in lines if line.strip() in FAMILIES]
    assert heads == list(FAMILIES)
    rows = json.loads(WIDE.invoke(app, ["list", "--family", "server", "--json"]).stdout)
    assert rows and all(family(make(row["name"])) == "server" for row in rows)
    shown = WIDE.invoke(app, ["list", "--family", "server"]).stdout
    assert "fedavgm" in shown and "fedsam" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "fedsamm"], "undrift show: no algorithm is named 'fedsamm'; did you mean 'fedsam'?"),
        (["list", "--family", "sharp"], "undrift list: no family is named 'sharp'; did you mean 'sharpness'?"),
    ],
)
def test_unknown_names_suggest_the_nearest(arguments: list[str], message: str) -> None:
    result = WIDE.invoke(app, arguments)
    assert result.exit_code == 2 and message in result.stderr


def test_the_commands_of_a_card_work_and_its_state_is_that_of_the_list() -> None:
    shown = '```bash\nundrift run fedlaw --set proxy=200\nundrift run "aggregation:by-proxy" --set proxy=200\n```'
    assert shown in markdown(card("fedlaw")) and markdown(card("aggregation:by-proxy")).count("--set proxy=200") == 1
    assert "proxy" not in markdown(card("scaffold"))
    rows = {
        "fedavg": "| 1 | 1 | 0 | 1 |",
        "scaffold": "| 2 | 1 | 1 | 2 |",
        "fedper": "| 1 | 1 | <1 | 1 | 1 | stateful |",
    }
    for name, row in rows.items():
        assert row in markdown(card(name))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The method of CONTRIBUTING.md, registered for the length of a test."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    files = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exported, registered = re.findall(r'```diff\n\+    "(\w+)"(?:: (\w+))?,\n```', page)
    assert len(files) == 2 and all(len(file.splitlines()) <= 60 for file in files)
    names: dict[str, Any] = {"__name__": "undrift.blocks.objective.memory"}
    exec(compile(files[0], "CONTRIBUTING.md", "exec"), names)
    monkeypatch.setattr(blocks, exported[0], names[exported[0]], raising=False)
    monkeypatch.setattr(blocks, "__all__", [*blocks.__all__, exported[0]])
    exec(compile(files[1], "CONTRIBUTING.md", "exec"), names)
    monkeypatch.setitem(ALGORITHMS, registered[0], names[registered[1]])
    return {"block": names[exported[0]], "name": registered[0], "names": names}


@pytest.mark.sweep(every=0)
def test_the_worked_example_keeps_the_contract(example: dict[str, Any]) -> None:
    block, name = example["block"], example["name"]
    check_block(block(0.1))
    check_algorithm(make(name))
    with pytest.raises(ValueError, match="Memory: mu must be 0 or more and finite, got -1"):
        block(-1)
    assert parse("scaffold + memory(0.1)") == Algorithm(
        drift=Scaffold(), objective=block(0.1), aggregation=make("uniform").aggregation
    )
    assert card(name).limits == ("mu = 0 gives FedAvg.", "A client's first round is that of FedProx.")
    assert facts(name)["family"] == "drift"
    tests = doctest.DocTestFinder().find(ALGORITHMS[name], name, globs=example["names"])
    assert [doctest.DocTestRunner().run(test).failed for test in tests] == [0] and tests[0].examples


def test_the_worked_example_has_its_limits(example: dict[str, Any]) -> None:
    def model(algorithm: Algorithm, rounds: int) -> torch.Tensor:
        return Simulation(algorithm, Clinic(), Local(lr=0.05, epochs=2, batch_size=4)).run(rounds).params

    block = example["block"]
    assert torch.equal(model(Algorithm(objective=block(0.0)), 3), model(make("fedavg"), 3))
    assert torch.equal(model(Algorithm(objective=block(0.5)), 1), model(Algorithm(objective=Proximal(0.5)), 1))
    assert not torch.equal(model(Algorithm(objective=block(0.5)), 2), model(Algorithm(objective=Proximal(0.5)), 2))


def test_the_card_of_a_composition_has_the_equations_of_its_blocks() -> None:
    found = card("scaffold + sam(rho=0.05) + highpass(0.01)")
    assert found.composition.startswith("perturbation:sam(rho=0.05) + perturbation:high-pass(r=0.01) + drift:scaffold")
    terms = [line for line in found.equations.splitlines() if not line.startswith(" ")]
    assert terms == found.composition.split(" + ")
    assert "    server:  c <- c + 1/N sum_i (slope_i - c)" in found.equations.splitlines()
    assert found.cost == cost(make("scaffold + sam(rho=0.05) + highpass(0.01)")) and found.family == "spectral"
    page = markdown(found)
    assert 'undrift run "scaffold + sam(rho=0.05) + highpass(0.01)"' in page and "## Presets" not in page
    assert markdown(card("drift:scaffold")).count("undrift run") == 1, "already the canonical text"
    assert card("server-optimizer:server-sam").composition == card("server_optimizer:ServerSAM").composition
    assert card("fedavg + fedavg").equations == ""
    with pytest.raises(ValueError, match="did you mean 'sam'"):
        card("scaffold + smm(0.1)")


def test_every_card_explains_its_symbols() -> None:
    """Whatever the equations share with other methods is explained; arguments have their own table."""
    for name in ALGORITHMS:
        assert "\nSymbols: `" in markdown(card(name)), name
    equations = "client:  g <- g - c_i + c;   offset = rho U(g(w))\nserver:  m <- 1/m sum_i delta_i"
    words = explain_symbols(equations, ["rho"])
    assert all(f"`{symbol}`" in words for symbol in ("g", "c, c_i", "U(x)", "offset", "m", "delta_i"))
    assert all("`A, B`" not in markdown(card(name)) for name in ("fedlin", "fedrep")) and "`A, B`" in markdown(
        card("rolora")
    )
    assert "`rho`" not in words and words.count("`m`") == 2 and explain_symbols("x <- y") == ""


def test_references_on_pages_link_to_their_titles() -> None:
    page = pages()["fedspeed.md"]
    assert "Sun et al., [FedSpeed: larger local interval, less communication round, and higher" in page
    assert "](https://scholar.google.com/scholar?q=FedSpeed" in page and "scholar" not in markdown(card("fedspeed"))
