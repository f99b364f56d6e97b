"""What happens to a page before Sphinx reads it: its marks are filled in and its links resolved.

A mark is a comment that a forge does not show: `<!-- site: contents -->`, `<!-- site: names undrift.core -->`,
`<!-- site: modules -->`, `<!-- site: commands -->`, `<!-- site: file CHANGELOG.md -->`.
"""

import json
import re

from _site import commands, contents, gallery, links, reference

_MARK = re.compile(r"<!-- site: (\w+)(?: ([\w.]+))? -->")

_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img alt="([^"]*)" src="([^"]+)"[^>]*>\s*</picture>'
)


def prepared(name: str, text: str) -> str:
    """A page as the site shows it.

    Args:
        name: the page, without its ending.
        text: its text in the repository.
    """
    if name == "reference/methods/README":
        return gallery.index()
    if name.startswith("reference/methods/"):
        text = gallery.method(name.removeprefix("reference/methods/"), text)
    page = f"docs/{name}.md"
    text = _PICTURE.sub(lambda match: _themed(match[3], match[1], match[2]), text)
    return _MARK.sub(lambda match: _filled(match[1], match[2] or "", page), links.rewritten(text, page))


def _themed(light: str, dark: str, words: str) -> str:
    """An image for each theme."""
    pairs = ((light, "only-light"), (dark, "only-dark"))
    return "\n\n".join(f"```{{image}} {file}\n:alt: {words}\n:class: {kind}\n```" for file, kind in pairs)


def prepared_notebook(name: str, text: str) -> str:
    """A notebook whose links are resolved.

    Args:
        name: the page, without its ending.
        text: the notebook, as JSON.
    """
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = links.rewritten("".join(cell["source"]), f"docs/{name}.ipynb")
    return json.dumps(notebook)


def _filled(kind: str, argument: str, page: str) -> str:
    """What a mark stands for."""
    if kind == "contents":
        return contents.toctrees(links.DOCS)
    if kind == "names":
        return reference.page(argument)
    if kind == "modules":
        rows = [f"| [{module}]({module}.md) | {about} |" for module, about in reference.MODULES.items()]
        listed = contents.toctree(list(reference.MODULES))
        return "\n".join(["| module | what it is for |", "|---|---|", *rows, "", listed])
    if kind == "commands":
        return commands.page()
    if kind == "file":
        text = (links.ROOT / argument).read_text(encoding="utf-8")
        return links.rewritten(text, argument, page)
    raise ValueError(f"{page}: the site knows no mark {kind!r}; contents, names, modules, commands and file exist")
