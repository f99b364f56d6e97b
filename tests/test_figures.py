"""The pictures of the docs are those that their scripts draw, small, and sufficient for themselves."""

import json
from pathlib import Path
from xml.etree import ElementTree

import make_badges
import make_curves
import make_nodes
import make_references
import make_round
import pytest
from canvas import DARK, LIGHT, Theme

HERE = Path(__file__).parent.parent / "docs" / "figures"


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_drawn_pictures_are_up_to_date(theme: Theme) -> None:
    curves = json.loads((HERE / "curves.json").read_text())
    assert (HERE / f"round-{theme.name}.svg").read_text() == make_round.draw(theme), "run make figures"
    assert (HERE / f"curves-{theme.name}.svg").read_text() == make_curves.draw(theme, curves), "run make figures"
    rows = json.loads(make_nodes.NUMBERS.read_text())["rows"]
    assert (HERE / f"nodes-{theme.name}.svg").read_text() == make_nodes.draw(theme, rows), "run make figures"


def test_badges_say_what_the_project_says() -> None:
    for name, value in make_badges.badges().items():
        assert (HERE / f"badge-{name}.svg").read_text() == make_badges.draw(name, value), "run make figures"


def test_the_readme_is_short() -> None:
    assert len((HERE.parents[1] / "README.md").read_text().splitlines()) <= 120


def test_the_papers_are_up_to_date() -> None:
    page = (HERE.parent / "reference" / "cite.md").read_text()
    assert make_references.filled(page) == page, "run make figures"


@pytest.mark.parametrize("path", sorted([*HERE.glob("*.svg"), *HERE.glob("*.png")]), ids=lambda path: path.name)
def test_a_picture_is_small_and_needs_no_network(path: Path) -> None:
    assert path.stat().st_size < 200_000
    if path.suffix == ".svg":
        text = path.read_text()
        ElementTree.fromstring(text)
        assert "url(http" not in text
        assert "href=" not in text


def test_curves_are_the_accuracies_of_the_comparison() -> None:
    curves = json.loads((HERE / "curves.json").read_text())
    assert set(curves["accuracy"]) == set(make_curves.NAMES)
    assert {len(seed) for seeds in curves["accuracy"].values() for seed in seeds} == {len(curves["rounds"])}
