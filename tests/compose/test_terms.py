"""Terms of one's own: blocks and methods by reference and of plug-ins, in compositions, as text and on cards."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from support.own import own_code_fixture, plugged_fixture  # noqa: F401
from undrift import Algorithm, make, parse
from undrift.blocks import FSA, SAM, Filters, Scaffold, Uniform, high_pass
from undrift.compose.build import resolve
from undrift.compose.cards import card, markdown, pages, write
from undrift.compose.grammar import is_composition, text, with_arguments
from undrift.core import Objective
from undrift.runs import Config, ConfigError
from undrift.studies.tune import Tuning
from undrift.testing import check_block


@dataclass(frozen=True)
class Own(SAM):
    """A block of this module."""


def test_a_block_by_reference_fills_its_slot_or_the_one_named(own_code: Path) -> None:
    built = parse("fedavg + their_parts:Shrink(0.3)")
    assert built.drift.a == 0.3 and built == parse("their_parts:Shrink(a=0.3)")  # type: ignore[attr-defined]
    assert parse("scaffold + momentum:their_parts:Shrink").momentum.a == 0.5  # type: ignore[attr-defined]
    assert parse("scaffold + momentum : their_parts : Shrink").drift == Scaffold()
    check_block(built.drift)


def test_an_algorithm_by_reference_stands_alone_or_in_a_composition(own_code: Path) -> None:
    alone = parse("their_parts:fedpull(mu=0.2)")
    assert alone.objective.mu == 0.2 and make("their_parts:fedpull", mu=0.2) == alone  # type: ignore[attr-defined]
    assert parse("scaffold + their_parts:fedpull(0.2)") == Algorithm(
        drift=Scaffold(), objective=alone.objective, aggregation=Uniform()
    )


def test_filters_by_reference_act_as_ours_do() -> None:
    reference = "undrift.blocks:high_pass(0.01)"
    assert parse(f"fedsam + {reference}").spectral == Filters(perturbation=high_pass(0.01))
    assert parse(f"gradient:{reference}").spectral == Filters(gradient=high_pass(0.01))


@pytest.mark.quick
def test_text_and_parse_are_inverses(own_code: Path) -> None:
    built = parse("scaffold + momentum:their_parts:Shrink(0.3) + their_parts:fedpull")
    line = "drift:scaffold + momentum:their_parts:Shrink(a=0.3) + objective:their_parts:Pull + aggregation:uniform"
    assert text(built) == line and parse(line) == built
    here = Algorithm(perturbation=Own(0.2))
    assert text(here) == f"perturbation:{__name__}:Own(rho=0.2)" and parse(text(here)) == here


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("their_parts:Shrnk", r"module 'their_parts' has no 'Shrnk'; did you mean 'Shrink'\?"),
        ("their_other.blocks:Shrink", "no module is named 'their_other'; install it, or start in the folder"),
        ("dirft:Shrink", r"'dirft:Shrink': no slot is named 'dirft'; did you mean 'drift'\?"),
        ("a:b:c", "no slot is named 'a'; known are perturbation"),
        ("their-parts:Shrink", "no slot is named 'their-parts'; known are"),
        ("their_parts:Shrink(b=1)", "unexpected keyword argument 'b'; it takes a: float = 0.5"),
        ("their_parts:Shrink('x')", "a must be a number, got 'x'"),
        ("their_parts:THING", "'their_parts:THING': it must be a block or a function that returns an Algorithm, got 3"),
        ("their_parts:nothing", "'their_parts:nothing': it must be a block .* got 'no module'"),
        ("drift:their_parts:fedpull", "their_parts:fedpull is an algorithm; write it without drift:"),
        ("scaffold + their_parts:Shrink", r"both fill the drift slot; .* write momentum:their_parts:Shrink"),
    ],
)
def test_a_bad_reference_says_what_is_wrong(own_code: Path, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(line)


def test_the_wrong_slot_is_refused_as_for_our_blocks(own_code: Path) -> None:
    with pytest.raises(TypeError, match="perturbation takes a Perturbation, got Shrink"):
        parse("perturbation:their_parts:Shrink")


def test_plug_ins_are_terms(plugged: Path) -> None:
    assert make("fedpull", mu=0.3) == parse("fedpull(0.3)") == parse("Fed_Pull(mu=0.3)")
    assert parse("fedprox + momentum:shrink(0.1)").momentum.a == 0.1  # type: ignore[attr-defined]
    assert parse("fedavg") == Algorithm()  # the plug-in of the same name is refused, ours works
    for line, message in [
        ("fedpul", "did you mean 'fedpull'"),
        ("drift:gone", "plug-in 'gone' of theirs: their_missing:Block: no module is named 'their_missing'"),
        ("shrink(b=1)", "unexpected keyword argument 'b'"),
    ]:
        with pytest.raises(ValueError, match=message):
            parse(line)
    with pytest.raises(TypeError, match="fedpull got an unexpected keyword argument 'nu'; it takes mu: float"):
        make("fedpull", nu=1)


def test_arguments_beside_a_term(own_code: Path) -> None:
    config = Config.build({"method": "their_parts:fedpull", "arguments": {"mu": 0.3}})
    assert config.algorithm().objective.mu == 0.3 and is_composition(config.method)  # type: ignore[attr-defined]
    assert with_arguments("fedavg", {}) == "fedavg"
    twice = (
        r"arguments: 'their_parts:fedpull\(0.1\)' has arguments in its brackets; write all of them there, or all of "
        r"them as arguments of 'their_parts:fedpull'$"
    )
    with pytest.raises(ConfigError, match=twice):
        Config.build({"method": "their_parts:fedpull(0.1)", "arguments": {"mu": 0.3}})
    with pytest.raises(ConfigError, match=r"'sam\(0.1\)' has arguments in its brackets; write all of them there$"):
        Config.build({"method": "sam(0.1)", "arguments": {"blend": 0.3}})
    with pytest.raises(ConfigError, match="unexpected keyword argument 'nu'; it takes mu"):
        Config.build({"method": "their_parts:fedpull", "arguments": {"nu": 0.3}})
    assert resolve("fedfft", "fedsam + their_parts:Shrink").method == "fedsam(rho=0.1) + their_parts:Shrink"


def test_arguments_to_tune(own_code: Path) -> None:
    """Those of a term alone; several terms are refused with what works."""
    for method in ("their_parts:fedpull", "objective:proximal"):
        tuning = Tuning.build({"method": method, "grid": {"mu": [0.1, 0.2]}})
        assert tuning.config((0.2,)).algorithm().objective.mu == 0.2  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError,
        match=r'arguments: a composition includes them; write method = "scaffold \+ sam\(rho=0.05\)"; to tune mu, '
        r'write one term alone, "objective:proximal", or a function with this argument that returns the Algorithm, '
        r'"package.module:function"$',
    ):
        Tuning.build({"method": "fedavg + their_parts:Shrink", "grid": {"mu": [0.1, 0.2]}})


def test_cards_of_ones_own_methods(plugged: Path, tmp_path: Path) -> None:
    found = card("fedpull")
    assert found.package == "theirs" and found.title == "FedPull: FedProx by another name."
    assert found.composition == "objective:their_parts:Pull" and card("their_parts:fedpull").family == "drift"
    page = markdown(found)
    assert "From the package `theirs`." in page and "## References" not in page and "Presets" not in page
    write(tmp_path / "cards", "theirs")
    assert {path.name for path in (tmp_path / "cards").iterdir()} == {"README.md", "fedpull.md"}
    with pytest.raises(ValueError, match=r"no package 'thiers' adds methods; did you mean 'theirs'\?"):
        pages("thiers")


def own_fsa(larger: float = 0.9) -> FSA:
    """A function that sets a radius itself."""
    return FSA(rho=0.3, larger=larger)


def test_a_composition_keeps_what_a_function_of_ones_own_sets() -> None:
    built = parse(f"fedspeed(blend=0.5) + {__name__}:own_fsa(0.8)").perturbation
    assert isinstance(built, FSA) and (built.rho, built.larger, built.blend) == (0.3, 0.8, 0.5)


def test_no_filters_and_numbers_of_numpy_are_written() -> None:
    for built in (Algorithm(spectral=Filters()), make("fedsam", rho=np.float32(0.05))):
        assert parse(text(built)) == built


@dataclass(frozen=True)
class Mode(Objective):
    """A block with annotations of its own."""

    mode: Literal["a", "b"] = "a"
    widths: tuple[float, ...] = ()
    pair: tuple[int, str] = (1, "a")


def test_blocks_with_other_annotations_are_written_and_read() -> None:
    built = Algorithm(objective=Mode("b", (0.5, 1.0), (2, "c")))
    assert parse(text(built)) == built == parse(f"fedavg + {__name__}:Mode('b', [0.5, 1.0], (2, 'c'))")
    with pytest.raises(ValueError, match="mode must be Literal"):
        parse(f"{__name__}:Mode('c')")
