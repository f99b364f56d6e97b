"""Curves as text."""

from typing import Any

import pytest

from undrift.util.display.curves import MARKS, draw_curves


def lines(*arguments: Any, **more: Any) -> list[str]:
    return ["".join(character for character, _ in line) for line in draw_curves(*arguments, **more)]


def test_every_curve_has_its_mark_and_its_number() -> None:
    curves = {"up": [(1, 0.1), (10, 0.9)], "down": [(1, 0.9), (10, 0.1)]}
    drawn = draw_curves(curves, 20, 8, plain=True, x_label="round")
    marks = {(character, number) for line in drawn for character, number in line if number is not None}
    assert marks == {(MARKS[0], 0), (MARKS[1], 1)}
    texts = lines(curves, 20, 8, plain=True, x_label="round")
    assert texts[0].startswith(" 90% |") and texts[7].startswith(" 10% |")
    assert texts[0][6] == MARKS[1] and texts[0][25] == MARKS[0]  # where the curves begin and end
    assert texts[-1].split() == ["1", "10", "round"] and all(text.isascii() for text in texts)


def test_dots_are_braille_and_a_line_has_no_gap() -> None:
    drawn = lines({"a": [(0, 0.0), (1, 1.0)]}, 10, 5)[:5]
    dots = [character for text in drawn for character in text[6:] if character != " "]
    assert all(0x2800 < ord(character) < 0x2900 for character in dots) and len(dots) >= 10
    assert all(any(character != " " for character in text[6:]) for text in drawn)


def test_one_point_and_equal_values() -> None:
    assert MARKS[0] in "".join(lines({"a": [(1, 0.5)]}, 10, 4, plain=True))
    assert lines({"a": [(1, 0.5), (2, 0.5)]}, 10, 4, plain=True)[-3].count(MARKS[0]) == 10


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="there are no points yet"):
        draw_curves({"a": []})
