"""Tables in Markdown."""

import pytest

from undrift.util.display.tables import markdown


@pytest.mark.quick
def test_bars_are_escaped_and_numbers_aligned() -> None:
    assert markdown(["a", "b"], [["x|y", "1"]], left=1).splitlines() == [
        "| a | b |",
        "| --- | ---: |",
        "| x\\|y | 1 |",
    ]
