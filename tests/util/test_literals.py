"""The one reader of names with arguments: brackets, the short form, and what is passed on."""

import math

import pytest

from undrift.util.literals import bracketed, called, check_scalars, scalars, short


def area(width: float, height: int = 2, flat: bool = False) -> object:
    return width, height, flat


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
