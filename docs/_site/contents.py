"""The contents of the site: which pages exist, in which order, under which captions."""

from pathlib import Path

CONTENTS: dict[str, tuple[str, ...]] = {
    "Start": ("guide/start", "guide/coming-from", "guide/faq"),
    "Tutorials": ("guide/tutorials/index", "guide/tutorials/*"),
    "Guide: runs and methods": (
        "guide/runs",
        "guide/comparing",
        "guide/data",
        "guide/partitions",
        "guide/models",
        "guide/tasks",
        "guide/local-training",
        "guide/adapters",
        "guide/adding-a-block",
        "guide/plugins",
        "guide/oracles",
        "guide/notebooks",
    ),
    "Guide: look at results": ("guide/report", "guide/lens", "guide/lens-curvature", "guide/seed-figures"),
    "Guide: engines and deployment": (
        "guide/engines",
        "guide/accelerators",
        "guide/asynchronous",
        "guide/scale",
        "guide/deployment",
        "guide/operations",
        "guide/privacy",
        "guide/security",
    ),
    "Concepts": ("concepts/index", "concepts/round", "concepts/*"),
    "Evidence": (
        "evidence/results/index",
        "evidence/results/*",
        "evidence/findings/*",
        "evidence/papers",
        "evidence/conformance",
        "evidence/coverage",
        "evidence/performance",
        "evidence/reliability",
    ),
    "Reference": (
        "reference/methods/README",
        "reference/README",
        "reference/commands",
        "reference/stability",
        "reference/changelog",
        "reference/contributing",
        "reference/cite",
    ),
}
"""Captions with their pages; a page that does not exist yet is left out, "*" stands for all that are left."""

GUIDES = "Guide: runs and methods"
"""Where pages appear that `CONTENTS` lacks."""

NESTED = ("reference/",)
"""Folders whose pages their own index lists."""


def pages(docs: Path) -> set[str]:
    """The names of all pages, without their endings."""
    found = [path for ending in ("md", "ipynb") for path in docs.rglob(f"*.{ending}")]
    names = {path.relative_to(docs).with_suffix("").as_posix() for path in found}
    return {name for name in names if not name.startswith("_") and "/_" not in name and "/." not in name}


def chapters(names: set[str]) -> dict[str, list[str]]:
    """The pages by caption, in order; captions without pages are left out.

    Args:
        names: all pages of the site.
    """
    left = {name for name in names if name != "index" and not name.startswith(NESTED)}
    left |= {entry for entries in CONTENTS.values() for entry in entries} & names
    out: dict[str, list[str]] = {}
    for caption, entries in CONTENTS.items():
        out[caption] = []
        for entry in entries:
            folder = entry.removesuffix("*")
            found = sorted(n for n in left if n == entry or (folder != entry and n.startswith(folder)))
            out[caption] += found
            left -= set(found)
    out[GUIDES] += sorted(left)
    return {caption: found for caption, found in out.items() if found}


def toctrees(docs: Path) -> str:
    """The contents as MyST, for the landing page."""
    return "\n\n".join(toctree(found, caption) for caption, found in chapters(pages(docs)).items())


def toctree(names: list[str], caption: str = "", hidden: bool = True) -> str:
    """One list of pages as MyST.

    Args:
        names: pages, relative to the page that lists them.
        caption: its caption; empty for none.
        hidden: only in the sidebar.
    """
    options = [":hidden:"] * hidden + [f":caption: {caption}"] * bool(caption) + [":maxdepth: 1"]
    return "\n".join(["```{toctree}", *options, "", *names, "```"])
