"""Small HTML tables for notebooks: no colours of their own, so that they are readable on light and dark backgrounds."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", note: str = "") -> str:
    """A table; texts are escaped, numbers are rounded to four digits and aligned.

    Args:
        head: the names of the columns; () has none.
        rows: the cells; None is an empty cell.
        title: a line above the table.
        note: a line below it.
    """
    top = "".join(_cell(name, "th") for name in head)
    body = "".join(f"<tr>{''.join(_cell(value, 'td') for value in row)}</tr>" for row in rows)
    return (
        '<div style="overflow-x:auto">'
        + (f"<div><b>{escape(title)}</b></div>" if title else "")
        + '<table style="border-collapse:collapse;background:none;color:inherit">'
        + (f"<thead><tr>{top}</tr></thead>" if top else "")
        + f"<tbody>{body}</tbody></table>"
        + (f'<div style="opacity:.7">{escape(note)}</div>' if note else "")
        + "</div>"
    )


def short_text(value: object) -> str:
    """A value as a short text: floats with four digits, None as nothing.

    Example:
        >>> short_text(0.123456), short_text(31), short_text(None)
        ('0.1235', '31', '')
    """
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(value: object, tag: str) -> str:
    """One cell; a line under the names of columns, numbers to the right."""
    side = "right" if isinstance(value, int | float) else "left"
    line = "border-bottom:1px solid currentColor;" if tag == "th" else ""
    return f'<{tag} style="{line}text-align:{side};padding:2px 8px;background:none">{escape(short_text(value))}</{tag}>'
