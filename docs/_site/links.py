"""Links of the pages that work in the repository, made to work in the site.

Pages link to each other and to files of the repository by relative paths, as a forge wants them. A link to a page of
the site stays; one to any other file becomes a link to the repository.
"""

import re
import tomllib
from pathlib import Path, PurePosixPath

from _site import moved

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

REPOSITORY: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Homepage"]
"""The address of the repository: pyproject.toml is the only place where it is written."""

BRANCH = "main"

HOMES = {
    "README.md": "docs/index.md",
    "CHANGELOG.md": "docs/reference/changelog.md",
    "CONTRIBUTING.md": "docs/reference/contributing.md",
}
"""Files outside docs that have a page in the site."""

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^()\s]+)(\))")


def source(path: str, line: int = 0) -> str:
    """The address of a file or folder of the repository.

    Args:
        path: relative to the repository's root.
        line: the line to show; 0 shows the whole file.
    """
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/{BRANCH}/{path}" + (f"#L{line}" if line else "")


def resolved(target: str, page: str, home: str = "") -> str:
    """What a link becomes in the site.

    Args:
        target: as it is written.
        page: the file in which it is written, relative to the repository's root.
        home: the page of the site that shows this file; empty if it is the file itself.
    """
    if "://" in target or target.startswith(("#", "mailto:")):
        return target
    path, mark, anchor = target.partition("#")
    place = _normal(PurePosixPath(page).parent / path)
    place = HOMES.get(place, place)
    if place.startswith("docs/") and not (ROOT / place).exists():
        place = f"docs/{moved.new_path(place.removeprefix('docs/'))}"
    if place.startswith("docs/") and place.endswith((".md", ".ipynb", ".png", ".svg")):
        if not home:
            home = page
        return _relative(place, PurePosixPath(home).parent) + mark + anchor
    if not (ROOT / place).exists():
        raise FileNotFoundError(f"{page}: the link to {target} leads nowhere; there is no {place}")
    return source(place) + mark + anchor


def rewritten(text: str, page: str, home: str = "") -> str:
    """A page with its links as the site needs them; code is left alone.

    Args:
        text: the page.
        page: its file, relative to the repository's root.
        home: as `resolved` takes it.
    """
    out, last = [], 0
    for fence in _FENCE.finditer(text):
        out += [_prose(text[last : fence.start()], page, home), fence[0]]
        last = fence.end()
    return "".join([*out, _prose(text[last:], page, home)])


def _prose(text: str, page: str, home: str) -> str:
    """A part without fences: links are resolved."""
    return _LINK.sub(lambda match: match[1] + resolved(match[2], page, home) + match[3], text)


def _normal(path: PurePosixPath) -> str:
    """A path without "..", as text."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _relative(path: str, folder: PurePosixPath) -> str:
    """A path as seen from a folder."""
    ours, theirs = list(folder.parts), list(PurePosixPath(path).parts)
    while ours and theirs and ours[0] == theirs[0]:
        del ours[0], theirs[0]
    return "/".join([*[".."] * len(ours), *theirs])
