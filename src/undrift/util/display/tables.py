"""Tables in Markdown."""

from collections.abc import Sequence


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int | None = None) -> str:
    """A table in Markdown, without a newline at the end.

    Args:
        headings: of the columns.
        rows: the texts of each row; a vertical bar is escaped.
        left: how many columns, from the first, are aligned to the left and the others to the right; None aligns all to
            the left.

    Example:
        >>> print(markdown(["method", "best %"], [["fedavg", "62.8"]], left=1))
        | method | best % |
        | --- | ---: |
        | fedavg | 62.8 |
    """
    rules = ["---" if left is None or n < left else "---:" for n in range(len(headings))]
    cells = [[text.replace("|", "\\|") for text in row] for row in (headings, *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (cells[0], rules, *cells[1:]))
