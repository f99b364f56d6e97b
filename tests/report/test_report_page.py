"""The page of a report: nothing leaves it, nothing from files runs in it, and a browser has nothing to complain of."""
# ruff: noqa: F811  pytest finds fixtures by the names of arguments

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from support.report import folder, material  # noqa: F401  fixtures
from undrift.cli import app
from undrift.report import Material, collect, page, render, write_page
from undrift.report.draw.description import PALETTE
from undrift.report.page import methods, page_mode
from undrift.runs.settings.config import Config

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

VISIT = """
setTimeout(() => {
  const wide = () => { if (root_width() > innerWidth) console.error("wider than the page", root_width(), innerWidth); };
  const root_width = () => document.documentElement.scrollWidth;
  for (const tab of document.querySelectorAll("[role=tab]")) if (tab.textContent !== "as a surface") tab.click();
  document.getElementById("theme").click();
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  setTimeout(() => { wide(); document.querySelector("[role=tab]").click(); }, 1500);
}, 1500);
"""  # what a visitor does


@pytest.fixture(scope="module")
def html(material: Material) -> str:
    return render(material)


def test_the_page_stays_with_itself(html: str, material: Material) -> None:
    assert html == render(material)
    scripts = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    assert len(scripts) == 2 and html.count("<script") == 2 + html.count('<script type="application/json">')
    own = html.replace(scripts[0], "")
    assert not re.search(r"""(src|href|action)\s*=\s*["']?(https?:)?//""", own) and "@import" not in own
    assert "default-src 'none'" in own and "url(" not in own and len(own) < 1_000_000
    assert 'class="tabs"' in own and "prefers-color-scheme: dark" in own and "toImage" in own


def test_nothing_from_files_runs(html: str, material: Material) -> None:
    assert "<i>too few" not in html and "&lt;i&gt;too few" in html
    assert "<b>Fashion" not in html and "&lt;b&gt;Fashion" in html
    assert "&lt;script&gt;alert(" in html and "<script>alert" not in html
    group = replace(
        material.groups[0], label="</script><script>alert(1)</script>", setting="<img src=x onerror=alert(2)>"
    )
    other = render(replace(material, groups=(group,), baseline=group.label))
    assert "<script>alert" not in other and "<img" not in other and "onerror=alert(2)&gt;" in other


def test_methods_and_how_to_make_it_again(material: Material, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    material = collect([folder])
    html = render(material)
    found = methods(material)
    assert [(method.label, method.card.name, method.arguments) for method in found] == [
        ("fedavg", "fedavg", {}),
        ("sam-0.1", "fedsam", {"rho": 0.1}),
    ]
    assert "undrift compare compare.toml --out toys" in html and "abababababababab" in html
    assert str(folder.parent) not in html
    run = material.runs[0]
    for method, name in (("scaffold + sam(rho=0.05)", "scaffold + sam(rho=0.05)"), ("FedSAM", "fedsam")):
        config = Config.build({**run.config.model_dump(), "method": method})
        group = replace(material.groups[0], runs=(replace(run, config=config),))
        card = methods(replace(material, groups=(group,)))[0].card
        assert card.name == name and (card.title == "A composition of blocks.") == ("+" in method)


@pytest.mark.quick
def test_command(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "there" / "report.html"
    result = CliRunner().invoke(app, ["report", str(folder), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "MB" in result.output and out.read_text().startswith("<!doctype html>")
    result = CliRunner().invoke(app, ["report", str(tmp_path / "nothing")])
    assert result.exit_code == 2 and "holds no run" in result.output


@pytest.mark.parametrize("option", ["--no-index", "--index"])
def test_a_page_outside_runs_follows_the_umask(folder: Path, tmp_path: Path, option: str) -> None:
    out = tmp_path / "there" / "report.html"
    before = os.umask(0o027)
    try:
        result = CliRunner().invoke(app, ["report", str(folder), "--out", str(out), option])
    finally:
        os.umask(before)
    assert result.exit_code == 0, result.output
    assert out.stat().st_mode & 0o777 == 0o640 and out.parent.stat().st_mode & 0o777 == 0o750


def test_a_page_in_a_run_or_a_comparison_is_private(folder: Path, tmp_path: Path) -> None:
    run = next(folder.rglob("summary.json")).parent
    (run / "audit.jsonl").touch()
    assert page_mode(run / "report.html") == page_mode(folder / "report.html") == 0o600
    (tmp_path / "compare.toml").touch()
    (tmp_path / "config.toml").touch()
    assert page_mode(tmp_path / "report.html") == 0o666


@pytest.mark.sweep(every=2)
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1400])
def test_in_a_browser(material: Material, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tabs and both themes draw without a word on the console, and nothing is wider than the page.

    A frame gives a phone's width, which a window cannot have. Surfaces stay hidden: they want a GPU.
    """
    read = page.asset
    monkeypatch.setattr(page, "asset", lambda name: read(name) + (VISIT if name == "page.js" else ""))
    path = write_page(material, tmp_path / "report.html")
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<body style="margin:0"><iframe src="report.html" style="width:{width}px;height:3000px;border:0">'
    )
    flags = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking --v=0 "
    flags += "--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=8000 "
    flags += (
        f"--hide-scrollbars --window-size=1400,3000 --user-data-dir={tmp_path}/user --screenshot={tmp_path}/page.png"
    )
    done = subprocess.run(["chromium", *flags.split(), frame.as_uri()], capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    assert path.stat().st_size < 7e6
    with Image.open(tmp_path / "page.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    blue = np.array([int(PALETTE[0][n : n + 2], 16) for n in (1, 3, 5)])
    assert (np.abs(pixels.astype(int) - blue).max(axis=1) < 3).sum() > 50  # a curve was drawn in its colour
