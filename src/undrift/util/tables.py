"""Tables in Markdown."""

from collections.abc import Sequence


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> str:
    """A table in Markdown, without a newline at the end.

    Args:
        headings: of the columns.
        rows: the texts of each row; a vertical bar is escaped.
        numbers: align all columns but the first to the right.

    Example:
        >>> print(markdown(["method", "best %"], [["fedavg", "62.8"]], numbers=True))
        | method | best % |
        | --- | ---: |
        | fedavg | 62.8 |
    """
    rules = ["---"] + ["---:" if numbers else "---"] * (len(headings) - 1)
    cells = [[text.replace("|", "\\|") for text in row] for row in (headings, *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (cells[0], rules, *cells[1:]))
