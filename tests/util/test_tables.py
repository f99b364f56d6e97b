"""Tables in Markdown."""

from undrift.util.display.tables import markdown


def test_bars_are_escaped_and_numbers_aligned() -> None:
    assert markdown(["a", "b"], [["x|y", "1"]], left=1).splitlines() == [
        "| a | b |",
        "| --- | ---: |",
        "| x\\|y | 1 |",
    ]
