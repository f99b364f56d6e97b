"""All text is plain technical English: the words to avoid, with what to write instead, are listed here."""

import ast
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, generate_tokens

import pytest
from click import Command, Context, Group
from typer.main import get_command
from typer.testing import CliRunner

from undrift.cli import app

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "undrift"

AVOID = {
    r"asked|asks": "selected, requested: a program does not ask",
    r"aside": "rejected, reserved",
    r"ended by": "stopped by, killed by",
    r"(go|goes|went) on": "continue, resume",
    r"held by a test": "checked by a test",
    r"house": "an idiom that only its authors know",
    r"law": "distribution, schedule or formula",
    r"looks?(?!:)": "evaluation, measurement; a function may be named look",
    r"nobody|somebody|whoever": "no client, a client",
    r"nouns?": "record, message or state",
    r"rooms?": "package, or memory",
    r"says?|said": "state, report, determine: files and settings do not speak",
    r"speaks?": "has text",
    r"to the bit": "bit for bit, bit-identical",
    r"told": "informed, configured",
    r"verbs?": "hook, function",
}
"""What to avoid, as a pattern of whole words -> what to write instead, or why."""

PATTERN = re.compile(rf"\b({'|'.join(AVOID)})\b", re.IGNORECASE)


CODE = re.compile(r"`[^`]*`|^ +\w+: ")
"""What is not prose: names in code, and the name of an argument before its description."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that are text, with their lines; docstrings are not among them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
        if isinstance(text, str) and " " in text.strip():
            yield node.lineno, text  # type: ignore[attr-defined]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module with their lines, without code in them."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number, line in enumerate(node.value.value.splitlines()):
                if not line.lstrip().startswith((">>>", "...")):
                    yield node.lineno + number, CODE.sub("", line)
    for token in generate_tokens(StringIO(source).readline):
        if token.type == COMMENT:
            yield token.start[0], CODE.sub("", token.string)


def suspects() -> list[Path]:
    """The modules that have a word to avoid anywhere, in a name perhaps: only these are parsed."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if PATTERN.search(path.read_text(encoding="utf-8"))]


def commands(group: Command, name: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The command line's commands, each as its words."""
    if isinstance(group, Group) or hasattr(group, "list_commands"):
        for child in group.list_commands(Context(group)):
            yield from commands(group.get_command(Context(group), child), (*name, child))  # type: ignore[attr-defined]
    else:
        yield name


COMMANDS = list(commands(get_command(app)))


def test_messages_have_no_words_to_avoid() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word[0]!r} in {text.strip()[:80]!r}"
        for path in suspects()
        for line, text in texts(path)
        for word in PATTERN.finditer(text)
    ]
    assert not found, "see AVOID for what to write instead:\n" + "\n".join(found)


def test_docstrings_and_comments_have_no_words_to_avoid() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word[0]!r} in {text.strip()[:80]!r}"
        for path in suspects()
        for line, text in prose(path)
        for word in PATTERN.finditer(text)
    ]
    assert not found, "see AVOID for what to write instead:\n" + "\n".join(found)


def test_cards_have_no_words_to_avoid() -> None:
    found = [
        f"{path.name}: {word[0]!r}"
        for path in sorted((ROOT / "docs" / "reference" / "methods").glob("*.md"))
        for word in PATTERN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, "see AVOID for what to write instead, in the method's docstring:\n" + "\n".join(found)


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_have_plain_words(page: Path) -> None:
    """Prose only: code, names in it, addresses and quotations may have any word."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\"[^\"\n]*\"", "", text)
    found = [match[0] for match in PATTERN.finditer(text)]
    assert not found, f"{page.name}: {found}; see AVOID for what to write instead"


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_help_reads_well_at_80_columns(words: tuple[str, ...]) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*words, "--help"])
    assert shown.exit_code == 0 and not PATTERN.findall(shown.stdout), "see AVOID for what to write instead"
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    if words:
        assert f"Example: undrift {' '.join(words)}" in shown.stdout, "show one command that works"
    else:
        summaries = [line for line in shown.stdout.partition("Start:")[2].splitlines() if line.startswith("  ")]
        assert len(summaries) == len(COMMANDS) and not [line for line in summaries if line.endswith("...")], (
            "the first line of a command's docstring has at most 65 characters"
        )
