"""Addresses that pages had before: each still leads to its page.

`OLD` has the pages that once lay elsewhere. A link to an old path, such as one of the changelog, is resolved to the new
path, and the site has a page at every old address that forwards to the new one.
"""

from html import escape
from pathlib import Path, PurePosixPath

_FOLDERS = {
    "guide": "start coming-from faq runs comparing data partitions models tasks local-training plugins notebooks "
    "report lens lens-curvature seed-figures engines accelerators scale deployment operations adding-a-block "
    "tutorials/",
    "concepts": "round glossary",
    "reference": "stability cite methods/",
    "evidence": "papers performance reliability results/ findings/",
}

OLD = {old: f"{folder}/{old}" for folder, names in _FOLDERS.items() for old in names.split()} | {
    "concepts": "concepts/index"
}
"""Old page or folder (with "/" at its end) -> new one, relative to docs and without endings."""


def new_path(path: str) -> str:
    """Where a page or a file of docs is now.

    Args:
        path: relative to docs, with its ending; one that has not moved stays.
    """
    name, ending = PurePosixPath(path).with_suffix("").as_posix(), PurePosixPath(path).suffix
    if name in OLD and ending in (".md", ".html"):
        return OLD[name] + ending
    folder = path.partition("/")[0] + "/"
    return OLD[folder] + path.removeprefix(folder) if folder in OLD else path


def old_name(name: str) -> str | None:
    """The old name of a page; None if it has always had its name.

    Args:
        name: the page, without its ending.
    """
    for old, new in OLD.items():
        if name == new:
            return old
        if old.endswith("/") and name.startswith(new):
            return old + name.removeprefix(new)
    return None


def forward(out: Path, names: set[str]) -> list[str]:
    """Write a page that forwards to the new address at every old one; the old names.

    Args:
        out: the folder of the site.
        names: all pages, without their endings.
    """
    written = []
    for name in sorted(names):
        old = old_name(name)
        if old is None or old in names:
            continue
        target = escape("../" * old.count("/") + f"{name}.html")
        path = out / f"{old}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f'<!doctype html>\n<meta charset="utf-8">\n<title>Moved</title>\n<link rel="canonical" href="{target}">\n'
            f'<meta http-equiv="refresh" content="0; url={target}">\n'
            f'<script>location.replace("{target}" + location.hash)</script>\n'
            f'<p>This page is now <a href="{target}">here</a>.</p>\n',
            encoding="utf-8",
        )
        written.append(old)
    return written
