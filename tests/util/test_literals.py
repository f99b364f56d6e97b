"""The one reader of names with arguments: brackets, the short form, and what is passed on."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import torch

from undrift.util.naming.literals import bracketed, called, check_scalars, fitted, scalars, short, split, written


def area(width: float, height: int = 2, flat: bool = False) -> object:
    return width, height, flat


@pytest.mark.quick
def test_both_forms_say_the_same() -> None:
    for text, brackets in [
        ("area:0.5", "(0.5)"),
        ("area:0.5,height=3", "(0.5, height=3)"),
        ("area: 1e3, flat = TRUE", "(1e3, flat=True)"),
        ("area", ""),
    ]:
        assert short(text, text) == ("area", bracketed(brackets, text))


def test_the_short_form_reads_numbers_as_python_converts_them() -> None:
    for text, value in [("007", 7), ("+0.3", 0.3), ("1_000", 1000), ("inf", math.inf), ("red", "red"), ("", "")]:
        assert short(f"x:{text}", "x") == ("x", ([value], {}))
    assert short("x:1,over=y:2,a=3", "x", rest="over") == ("x", ([1], {"over": "y:2,a=3"}))


def test_arguments_are_checked_against_annotations() -> None:
    assert called(area, short("area:1,height=4", "area")[1], "area") == (1, 4, False)
    for text, message in [
        ("area:wide", "'area:wide': width takes float, got 'wide'"),
        ("area:1,height=2.5", "height takes int, got 2.5"),
        ("area:1,depth=2", "unexpected keyword argument 'depth'; it takes width: float, height: int = 2"),
        ("area:1,height", "'height' is not a setting; write key=value"),
        ("area:1,height=1,height=2", "height is named twice; name it once"),
    ]:
        with pytest.raises(ValueError, match=message):
            called(area, short(text, text)[1], text)


def test_scalars_are_what_a_file_can_set() -> None:
    def model(classes: int, patch: int = 4, rate: float | None = None, widths: tuple[int, ...] = ()) -> None: ...

    known = scalars(model, "classes")
    assert list(known) == ["patch", "rate"]
    check_scalars({"patch": 16, "rate": 1}, known, "model 'm'")
    for given, message in (
        ({"path": 16}, "model 'm' has no argument 'path'; it takes patch, rate"),
        ({"patch": True}, "model 'm': patch takes int, got True"),
        ({"rate": "a"}, r"model 'm': rate takes float \| None, got 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            check_scalars(given, known, "model 'm'")


def many(
    mode: Literal["a", 1] = "a",
    row: Sequence[float] = (),
    column: list[float] | None = None,
    pair: tuple[int, str] = (1, "a"),
    thing: object = None,
    *others: float,
    **named: int,
) -> object:
    return mode, row, column, pair, thing, others, named


def test_annotations_of_ones_own_functions() -> None:
    assert called(many, bracketed("(1, (1, 2.5), (1,), (2, 'b'), 'x', 0.5, 2)", "many"), "many") == (
        1,
        (1, 2.5),
        [1],
        (2, "b"),
        "x",
        (0.5, 2),
        {},
    )
    assert called(many, bracketed("(k=3)", "many"), "many")[-1] == {"k": 3}
    for text, message in [
        ("('b')", r"mode takes Literal\['a', 1\], got 'b'"),
        ("(True)", "mode takes Literal"),
        ("(row=('x',))", r"row takes Sequence\[float\]"),
        ("(column=5)", r"column takes list\[float\] \| None, got 5"),
        ("(pair=(1,))", r"pair takes tuple\[int, str\]"),
        ("(pair=(1, 2))", "pair takes tuple"),
        ("('a', (), None, (1, 'a'), None, 'x')", "others takes float, got 'x'"),
        ("(k=0.5)", "named takes int, got 0.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            called(many, bracketed(text, "many"), "many")


def test_numbers_of_numpy_and_torch_become_python_s() -> None:
    for given, value in ((np.float32(0.5), 0.5), (torch.tensor(0.5), 0.5), (np.int64(2), 2)):
        found = fitted(area, "width", given)
        assert found == value and type(found) is type(value)
    assert fitted(area, "height", np.int64(2)) == 2
    with pytest.raises(TypeError, match="height takes int"):
        fitted(area, "height", np.float32(2.5))


def test_infinities_and_backslashes_come_back() -> None:
    assert bracketed(f"({written(-math.inf)}, {written((math.inf, 'a'))})", "x") == ([-math.inf, (math.inf, "a")], {})
    line = f"a + b({written(chr(92))}) + c"
    assert split(line) == ["a", f"b({written(chr(92))})", "c"]
    with pytest.raises(ValueError, match="'a \\+' has an empty term; write names joined by \\+, for example b"):
        split("a +", "for example b")
