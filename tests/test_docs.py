"""What the README and the docs show runs as shown."""

import pkgutil
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click import Context
from typer.main import get_command

from undrift.cli import app
from undrift.runs.settings.config import Config

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if code(page)], ids=lambda page: page.name)
def test_examples_run(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for block in code(page):
        exec(compile(block, str(page), "exec"), names)


def test_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    example = code(ROOT / "README.md")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    exec(compile(example, "README.md", "exec"), {"__name__": "example"})
    shown = re.search(r"It prints\n\n```\n(.*?)```", readme, flags=re.DOTALL)
    assert shown is not None

    def accuracies(text: str) -> dict[str, float]:
        return {name: float(value) for name, value in re.findall(r"^([a-z-]+) +([\d.]+)%$", text, flags=re.MULTILINE)}

    expected = accuracies(shown[1])
    printed = accuracies(capsys.readouterr().out)
    assert list(printed) == list(expected)
    for name, value in expected.items():  # another processor may round another way
        assert printed[name] == pytest.approx(value, abs=2.0)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_algorithm_is_documented() -> None:
    from undrift.algorithms import ALGORITHMS

    for name, make in ALGORITHMS.items():
        text = make.__doc__ or ""
        for part in ("Example:", "References:"):
            assert part in text, f"{name} lacks {part}"
        assert ("Args:" in text) == bool(make.__code__.co_argcount), name


def test_the_page_of_run_files_has_every_setting() -> None:
    page = (ROOT / "docs" / "guide" / "runs.md").read_text()
    (file,) = [block for block in re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL) if "[engine]" in block]
    tables = dict(
        zip(("", "local", "engine", "output"), re.split(r"^\[\w+\].*$", file, flags=re.MULTILINE), strict=True)
    )
    settings = Config().model_dump()
    settings = {**settings, "": settings}
    missing = [
        f"{table} {name}"
        for table, text in tables.items()
        for name in settings[table]
        if not re.search(rf"^(# )?(\w+, )*{name}\b", text, flags=re.MULTILINE)
    ]
    assert set(missing) == {" arguments", " local", " engine", " output"}, (
        "the tables themselves; arguments in a comment"
    )


def test_the_page_of_packages_has_all_of_them() -> None:
    package = ROOT / "src" / "undrift"
    page = (ROOT / "docs" / "concepts" / "packages.md").read_text()
    rows = {row[1]: row[0] for row in re.finditer(r"^\| `(\w+)` \|.*$", page, flags=re.MULTILINE)}
    tops = {path.parent.name for path in package.glob("*/__init__.py")}
    assert set(rows) == tops
    for path in package.glob("*/**/__init__.py"):
        top, *inner = path.parent.relative_to(package).parts
        assert all(f"`{name}`" in rows[top] for name in inner), path.parent


SHOWN = [
    *PAGES,
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("examples/**/*.md")),
    *sorted(ROOT.glob("benchmarks/*/*.md")),
]


def shown_commands(page: Path) -> list[list[str]]:
    """The commands of a page's shell blocks, each as words, without comments."""
    text = "\n".join(re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL)).replace("\\\n", " ")
    parts = [part for line in text.splitlines() for part in re.split(r" && |; | \| ", re.sub(r"(^|\s)#.*", "", line))]
    return [shlex.split(part) for part in parts if part.strip()]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_options_scripts_and_names_of_a_page_exist(page: Path) -> None:
    group: Any = get_command(app)
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for words in shown_commands(page):
        if words[0] == "undrift" and not words[1].startswith("-"):
            command = group.commands[words[1]]
            command.make_parser(Context(command, info_name=words[1])).parse_args(words[2:])
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, words
        if words[0] == "python" and re.match(r"(benchmarks|docs|examples|tests)/", words[1]):
            assert (ROOT / words[1]).exists(), words
    for name, call in re.findall(
        r"`(undrift\.(?:core|data|runs|studies|engine|lens|models|report)[\w.]*)(\(?)", page.read_text()
    ):
        if name in {"undrift.data", "undrift.models"}:  # also groups of entry points
            continue
        found = pkgutil.resolve_name(name)
        assert not call or callable(found), f"{page.name}: {name} is no function"
