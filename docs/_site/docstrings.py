"""Docstrings as reStructuredText: ours are plain text with equations, which Sphinx would read as markup."""

import re

_SECTION = re.compile(r"[A-Z][a-z]+( [a-z]+)?:")
_CODE = re.compile(r"(`[^`]+`)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_LISTED = ("Limits:", "References:")
"""Sections of a method with one entry to a line; a line without a final full stop or semicolon continues."""


def to_rst(lines: list[str], equations: bool = False) -> list[str]:
    """A docstring whose equations are literal, whose code is code, and whose lists are lists.

    Args:
        lines: the docstring, without its indentation.
        equations: the first paragraph is mathematics, as in a block.
    """
    out: list[str] = []
    section = ""
    for number, paragraph in enumerate(_paragraphs(lines)):
        first = paragraph[0]
        if _SECTION.fullmatch(first):
            section = first
        if first.lstrip().startswith(">>>"):
            out += paragraph
        elif section in _LISTED:
            out += [section] * (first == section)
            out += [f"    - {_prose(entry)}" for entry in _entries(paragraph[first == section :])]
        elif not section and first.startswith(" "):
            out += ["::", "", *paragraph]
        elif not section and equations and number == 0:
            out += ["::", "", *(f"    {line}" for line in paragraph)]
        else:
            out += _lines(paragraph)
        out.append("")
    return out


def _paragraphs(lines: list[str]) -> list[list[str]]:
    """The paragraphs of a text; sections and changes of indentation at the start of a line begin a new one."""
    out: list[list[str]] = [[]]
    for line in lines:
        if not line.strip():
            out.append([])
        else:
            out[-1].append(line)
    return [paragraph for paragraph in out if paragraph]


def _entries(lines: list[str]) -> list[str]:
    """The entries of a list."""
    joined = " ".join(line.strip() + ("\n" if line.rstrip().endswith((".", ";")) else "") for line in lines)
    return [entry.strip().removesuffix(";") for entry in joined.split("\n") if entry.strip()]


def _lines(paragraph: list[str]) -> list[str]:
    """A paragraph of prose, up to the first line of a doctest."""
    found = next((i for i, line in enumerate(paragraph) if line.lstrip().startswith(">>>")), len(paragraph))
    text = _prose("\n".join(paragraph[:found]))
    return [*(text.split("\n") if text else []), *paragraph[found:]]


def _prose(text: str) -> str:
    """Text without accidental markup; `names` in backticks become references, other code literals."""
    return "".join(_code(part) if part.startswith("`") else _plain(part) for part in _CODE.split(text))


def _code(part: str) -> str:
    """Code in backticks: one line, as a reference if it is a name."""
    inside = " ".join(part.strip("`").split())
    return f":py:obj:`{inside}`" if _NAME.fullmatch(inside) else f"``{inside}``"


def _plain(part: str) -> str:
    """Text in which stars, bars, backslashes and final underscores mean themselves."""
    escaped = re.sub(r"([\\*|`])", r"\\\1", part)
    return re.sub(r"(?<=\w)_(?!\w)", r"\\_", escaped)
