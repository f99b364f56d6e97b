"""The page docs/evidence/papers.md: every table and figure of the papers with its command, from the files of src.

python docs/make_papers.py docs/evidence/papers.md
"""

import sys
from pathlib import Path

from undrift.papers.catalogue import Item, Paper, paper, papers
from undrift.util.display.tables import markdown

_HEAD = """# The tables and figures of the papers

One command runs the experiment behind a table or figure, resumes it if it was stopped, draws its figures and prints our
numbers beside the published ones, with the difference and its interval:

```bash
undrift paper list                            # what there is, what it costs, which data it needs
undrift paper fedfft table1 --dry-run         # build every run on stand-in data and train one round
undrift paper fedfft table1 --scale small     # the reduction described in the item's file, for two cores
undrift paper fedfft table1 --engine ray      # at the paper's scale
```

The files are in `src/undrift/papers/`: `paper.toml` has what all experiments of a paper share, `published.toml` the
published numbers, `table1.toml` the comparison behind Table 1, what `--scale small` changes (`[small]`) and figures.
`undrift paper` writes below `runs/papers`; `PAPER-ITEM.md` and `.json` are the numbers, `figures-ITEM` the figures.
Intervals are Student's, 95 %, for the mean of our seeds; a published number is taken as exact.

This page is made by `make papers`; a test runs the dry run of every item and compares this page with the files.
"""


def page() -> str:
    """The page, in Markdown."""
    return "\n".join([_HEAD, *(_section(paper(name)) for name in papers())])


def _section(paper: Paper) -> str:
    """The table of one paper, with the numbers that need no experiment at its end."""
    rows = [_row(paper, key, item) for key, item in paper.items.items()]
    rows += [[number, "", "none needed", f"no experiment: {why}"] for number, why in paper.without.items()]
    return f"## {paper.title}\n\n" + markdown(["item", "command", "dry run", "differs from the paper"], rows) + "\n"


def _row(paper: Paper, key: str, item: Item) -> list[str]:
    """The line of an item."""
    shared = f"Runs of {paper.items[item.runs].number}. " if item.runs else ""
    return [
        f"{item.number}: {item.about}",
        f"`undrift paper {paper.name} {key}`",
        "passes",
        (shared + item.differs).strip(),
    ]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
