"""The site: `make docs` builds it offline from the pages of this folder. What it adds to them is in `_site`."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from docutils import nodes  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.util import logging  # noqa: E402

from _site import docstrings, links, moved, pages, reference  # noqa: E402
from undrift import __version__  # noqa: E402

project = "Undrift"
author = "the Undrift contributors"
copyright = "the Undrift contributors"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
    "sphinx_copybutton",
    "sphinx_design",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["_build", "_site", "_static", "figures", "**/.ipynb_checkpoints"]
nb_execution_mode = "off"  # notebooks are committed with their outputs
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
highlight_language = "text"  # blocks without a language are equations and output
suppress_warnings = ["mystnb.unknown_mime_type"]

autosummary_generate = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_custom_sections = ["Limits"]
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Undrift {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "source_repository": links.REPOSITORY,
    "source_branch": links.BRANCH,
    "source_directory": "docs/",
    "light_css_variables": {"color-brand-primary": "#0b6e75", "color-brand-content": "#0b6e75"},
    "dark_css_variables": {"color-brand-primary": "#5cc8cf", "color-brand-content": "#5cc8cf"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """The address of an object's source."""
    value: Any = import_module(info["module"]) if domain == "py" and info["module"] else None
    for part in info["fullname"].split("."):
        value = getattr(value, part, None)
    place = reference.source_of(value.fget if isinstance(value, property) else value)
    return links.source(*place) if place else None


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """Fill in the marks of a page and resolve its links."""
    if (HERE / f"{name}.md").exists():
        source[0] = pages.prepared(name, source[0])
    elif source[0].lstrip().startswith("{"):
        source[0] = pages.prepared_notebook(name, source[0])


def _outdated(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages that depend on more than their own text are always read again."""
    return sorted(name for name in env.found_docs if name == "index" or name.startswith("reference/methods/"))


def _docstring(app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """A docstring as reStructuredText."""
    first = lines[0] if lines else ""
    block = kind == "class" and name.startswith("undrift.blocks.") and not first.endswith(".")
    lines[:] = docstrings.to_rst(lines, equations=block or first.startswith(("client:", "server:")))


def _skip(app: Sphinx, kind: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Fields of named tuples are described by their class, functions of other libraries by these."""
    theirs = inspect.isroutine(value) and not str(getattr(value, "__module__", "undrift")).startswith("undrift")
    return True if theirs or type(value).__name__ == "_tuplegetter" else None


def _covered(app: Sphinx, env: Any) -> None:
    """Warn of every public name that the reference lacks."""
    log = logging.getLogger(__name__)
    for name in reference.missing(set(env.domaindata["py"]["objects"])):
        log.warning("the reference lacks the public name %s", name)


def _collect(app: Sphinx, tree: nodes.document) -> None:
    """Remember the links of a page that lead elsewhere."""
    found = {str(node["refuri"]) for node in tree.findall(nodes.reference) if "refuri" in node}
    outside = {link for link in found if "://" in link and not link.startswith(links.REPOSITORY)}
    app.env.undrift_links = {**getattr(app.env, "undrift_links", {}), app.env.docname: outside}


def _list(app: Sphinx, error: Exception | None) -> None:
    """Write the links that lead elsewhere, which are not fetched, into a file beside the site."""
    found = {(link, page) for page, outside in getattr(app.env, "undrift_links", {}).items() for link in outside}
    text = "".join(f"{link}  {page}\n" for link, page in sorted(found))
    Path(app.outdir).with_name("external-links.txt").write_text(text, encoding="utf-8")


def _forward(app: Sphinx, error: Exception | None) -> None:
    """Let the addresses that pages had before lead to them."""
    if error is None and app.builder.format == "html":
        moved.forward(Path(app.outdir), set(app.env.found_docs))


def setup(app: Sphinx) -> None:
    """Connect what the site adds."""
    app.connect("env-get-outdated", _outdated)
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("autodoc-skip-member", _skip)
    app.connect("env-check-consistency", _covered)
    app.connect("doctree-read", _collect)
    app.connect("build-finished", _list)
    app.connect("build-finished", _forward)
