"""Write the papers into docs/reference/cite.md, from the pages of docs/reference/methods.

python docs/figures/make_references.py
"""

import re

from canvas import HERE

PAGE = HERE.parent / "reference" / "cite.md"
BEGIN, END = "<!-- papers: made by `make figures` -->\n", "<!-- end of papers -->\n"


def table() -> str:
    """The papers, each with the methods that cite it."""
    papers: dict[str, list[str]] = {}
    for page in sorted((HERE.parent / "reference" / "methods").glob("*.md")):
        for paper in re.findall(r"^- (.*)$", page.read_text().partition("## References\n")[2], flags=re.MULTILINE):
            papers.setdefault(paper, []).append(f"[{page.stem}](methods/{page.name})")
    rows = sorted(papers.items(), key=lambda entry: entry[0].lower())
    return "\n| paper | methods |\n|---|---|\n" + "".join(
        f"| {paper} | {', '.join(names)} |\n" for paper, names in rows
    )


def filled(text: str) -> str:
    """The page with the present table."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
