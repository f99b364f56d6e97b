"""The site's pages: links that work in the repository and in the site, contents, the gallery and the reference."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from _site import commands, contents, curves, docstrings, gallery, links, moved, pages, reference
from undrift.algorithms import ALGORITHMS
from undrift.cli import app
from undrift.compose.stored import FAMILIES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("target", "page", "expected"),
    [
        ("runs.md#resume", "docs/guide/data.md", "runs.md#resume"),
        ("../../guide/lens.md", "docs/evidence/findings/low-frequencies.md", "../../guide/lens.md"),
        (
            "../../src/undrift/core/client/loop.py",
            "docs/concepts/round.md",
            f"{links.REPOSITORY}/blob/main/src/undrift/core/client/loop.py",
        ),
        ("../../examples", "docs/guide/tasks.md", f"{links.REPOSITORY}/tree/main/examples"),
        ("../../CONTRIBUTING.md#rules", "docs/guide/tasks.md", "../reference/contributing.md#rules"),
        ("../../README.md", "docs/guide/tasks.md", "../index.md"),
        ("https://example.org/a.md", "docs/guide/tasks.md", "https://example.org/a.md"),
        ("#rules", "docs/guide/tasks.md", "#rules"),
    ],
)
def test_links_resolve(target: str, page: str, expected: str) -> None:
    assert links.resolved(target, page) == expected


def test_an_included_file_keeps_its_links() -> None:
    changelog = links.rewritten(
        "[a](docs/guide/runs.md#who) [b](src/undrift)", "CHANGELOG.md", "docs/reference/changelog.md"
    )
    assert changelog == f"[a](../guide/runs.md#who) [b]({links.REPOSITORY}/tree/main/src/undrift)"


def test_code_is_left_alone_and_dead_links_are_named() -> None:
    code = "```\n[a](../../src)\n```\n[b](../../src)"
    assert (
        links.rewritten(code, "docs/guide/runs.md")
        == f"```\n[a](../../src)\n```\n[b]({links.REPOSITORY}/tree/main/src)"
    )
    with pytest.raises(FileNotFoundError, match=r"docs/guide/runs\.md: the link to \.\./nowhere\.py leads nowhere"):
        links.resolved("../nowhere.py", "docs/guide/runs.md")


def test_every_page_is_in_the_contents_once() -> None:
    names = contents.pages(ROOT / "docs")
    listed = [name for found in contents.chapters(names).values() for name in found]
    nested = {name for name in names if name.startswith(contents.NESTED)}
    assert len(listed) == len(set(listed)) and {*listed, *nested, "index"} == names
    assert contents.chapters({"guide/runs", "new"}) == {contents.GUIDES: ["guide/runs", "new"]}
    folder = "guide/tutorials"
    assert contents.chapters({f"{folder}/b", f"{folder}/a"}) == {"Tutorials": [f"{folder}/a", f"{folder}/b"]}


def test_old_addresses_lead_to_their_pages(tmp_path: Path) -> None:
    names = contents.pages(ROOT / "docs")
    for old, new in moved.OLD.items():
        assert any(name == new or (old.endswith("/") and name.startswith(new)) for name in names), f"{old}: no {new}"
    written = moved.forward(tmp_path, names)
    assert {"start", "concepts", "methods/fedavg", "tutorials/04-flower-app", "results/index"} <= set(written)
    assert not set(written) & names, "a page is never overwritten"
    for old in written:
        (target,) = re.findall(r'<a href="([^"]+)">', (tmp_path / f"{old}.html").read_text())
        page = (tmp_path / f"{old}.html").parent / target
        assert page.resolve().relative_to(tmp_path.resolve()).with_suffix("").as_posix() in names
    old_link = links.rewritten("[a](docs/methods/fedavg.md#code)", "CHANGELOG.md", "docs/reference/changelog.md")
    assert old_link == "[a](methods/fedavg.md#code)"


def test_marks_are_filled_in() -> None:
    modules = pages.prepared("reference/README", "<!-- site: modules -->\n[r](../../README.md)")
    assert "| [undrift.ray](undrift.ray.md) |" in modules and modules.endswith("[r](../index.md)")
    assert pages.prepared("reference/changelog", "<!-- site: file CHANGELOG.md -->").startswith("# Changelog")
    with pytest.raises(ValueError, match=r"docs/x\.md: the site knows no mark 'other'"):
        pages.prepared("x", "<!-- site: other -->")


def test_pictures_have_an_image_for_each_theme() -> None:
    picture = '<picture>\n  <source media="x" srcset="d.svg">\n  <img alt="a b" src="l.svg">\n</picture>'
    image = "```{{image}} {}\n:alt: a b\n:class: only-{}\n```"
    assert pages.prepared("x", picture) == f"{image.format('l.svg', 'light')}\n\n{image.format('d.svg', 'dark')}"


def test_links_of_notebooks_resolve() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["[a](../../src)"]},
        {"cell_type": "code", "source": ["[a](../../src)"]},
    ]
    made = json.loads(pages.prepared_notebook("tutorials/a", json.dumps({"cells": cells})))["cells"]
    assert made[0]["source"] == f"[a]({links.REPOSITORY}/tree/main/src)" and made[1] == cells[1]


def test_docstrings_become_markup() -> None:
    text = [
        "One |x| of `Layout` and `a b`.",
        "",
        "    w <- w_i * 2",
        "",
        "Limits:",
        "    r = 0 gives A.",
        "    B",
        "    b.",
    ]
    made = "\n".join(docstrings.to_rst(text))
    assert made.startswith("One \\|x\\| of :py:obj:`Layout` and ``a b``.\n\n::\n\n    w <- w_i * 2\n")
    assert made.rstrip().endswith("Limits:\n    - r = 0 gives A.\n    - B b.")
    assert docstrings.to_rst(["g <- ||g||"], equations=True) == ["::", "", "    g <- ||g||", ""]
    assert docstrings.to_rst(["Example:", "    >>> f_(*x)"])[:2] == ["Example:", "    >>> f_(*x)"]


@pytest.mark.skipif(not gallery.RESULTS.exists(), reason="without benchmarks/studies")
def test_the_gallery_has_every_method() -> None:
    page = gallery.index()
    for name in ALGORITHMS:
        assert f":link: {name}\n" in page and f"| [{name}]({name}.md) |" in page
    assert set(gallery.measured()) == {"what", *ALGORITHMS}, "run make curves"
    assert page.count("<svg") == len(ALGORITHMS)


@pytest.mark.skipif(not gallery.RESULTS.exists(), reason="without benchmarks/studies")
def test_a_methods_page_has_its_curve_and_its_code() -> None:
    page = pages.prepared("reference/methods/fedfft-d", (ROOT / "docs/reference/methods/fedfft-d.md").read_text())
    assert page.index("<svg") < page.index("## Arguments") < page.index("## Code")
    for name in ("algorithms.fedfft_d", "blocks.SAM", "blocks.Filters", "blocks.high_pass", "blocks.FedDyn"):
        assert f"{{py:obj}}`undrift.{name}`" in page
    for file, line in re.findall(r"/blob/main/(src/\S+?)#L(\d+)\)", page):
        assert re.match(r"@|class |def ", (ROOT / file).read_text().splitlines()[int(line) - 1])


def test_a_curve_is_drawn_beside_fedavg() -> None:
    large = curves.drawing("moon", [0.0, 1.0], [0.5, 0.5], "accuracy")
    assert 'd="M40.0 160.0L468.0 10.0"' in large and "FedAvg 50%" in large and 'class="other"' in large
    small = curves.drawing("fedavg", [0.0, 1.0], [0.0, 1.0], "accuracy", small=True)
    assert "<text" not in small and 'class="other"' not in small


def test_the_reference_has_every_public_name() -> None:
    for needed in ("ray", "flwr"):
        pytest.importorskip(needed)
    promised = set(re.findall(r"`(undrift[.\w]*)`", (ROOT / "docs/reference/stability.md").read_text().split("|")[0]))
    assert promised == set(reference.MODULES)
    for module, names in reference.public().items():
        stub = (ROOT / "docs" / "reference" / f"{module}.md").read_text()
        assert stub == f"# {module}\n\n<!-- site: names {module} -->\n"
        page = reference.page(module)
        for name in names:
            full = reference.homes(reference.public())[module, name]
            assert re.search(rf"^\.\. (auto\w+|py:data):: {full}$|`{full}`", page, re.MULTILINE), full
    assert "undrift.make" in reference.missing(set())


def test_values_have_the_text_below_them() -> None:
    for needed in ("ray", "flwr"):
        pytest.importorskip(needed)
    assert reference.value_doc("undrift.algorithms", "ALGORITHMS").startswith("Name -> the function that builds it")
    undocumented = [
        f"{module}.{name}"
        for module, names in reference.public().items()
        for name in names
        if reference._heading(module, name, getattr(sys.modules[module], name)) == reference.VALUES
        and not reference.value_doc(module, name)
    ]
    assert not undocumented


def test_every_command_and_option_is_in_the_reference() -> None:
    group: Any = typer.main.get_command(app)
    sections = commands.page().split("\n## undrift ")
    assert [text.split()[0] for text in sections[1:]] == list(group.commands)
    for text, (name, command) in zip(sections[1:], group.commands.items(), strict=True):
        assert f"| [undrift {name}](#undrift-{name}) |" in sections[0] and f"```bash\nundrift {name}" in text
        for option in command.params:
            assert all(f"`{x}`" in text for x in option.opts if x.startswith("--")), (name, option.name)
    run = sections[1]
    assert "| `METHOD` | A name from undrift list, a composition of blocks, or your own. |" in run
    assert "| `--clients` INTEGER | Number of clients. |" in run and "[fp32\\|bf16\\|fp16]" in run


def test_the_gallery_has_a_sentence_about_every_family() -> None:
    assert tuple(gallery.ABOUT) == FAMILIES
