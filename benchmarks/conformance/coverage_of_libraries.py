"""Which of our methods other libraries have: by the names of their classes and modules; writes JSON and the page.

Nothing is imported or run. Packages are read where they are installed, each in a folder or environment of its own, such
as benchmarks/peers/install.py makes them; `pip install --no-deps --target PEERS/fluke fluke-fl` is enough here. The
names of repositories that are not packages are committed in results/repositories.json.

    python benchmarks/conformance/coverage_of_libraries.py ~/peers    # read what is installed, write results and page
    python benchmarks/conformance/coverage_of_libraries.py            # the page alone
"""

import ast
import json
import re
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "src")]

from undrift.algorithms import ALGORITHMS  # noqa: E402

RESULTS, REPOSITORIES = HERE / "results" / "coverage.json", HERE / "results" / "repositories.json"
PAGE = ROOT / "docs" / "evidence" / "coverage.md"
PACKAGES = {"pfl-research": "pfl", "fluke": "fluke", "FedLab": "fedlab", "Flower": "flwr"}
"""Each with the folder of its modules; the environment of Flower is called flower."""

ALIASES = {
    "fedavg": ["federatedaveraging"],
    "uniform": ["fedavg", "federatedaveraging"],
    "fedavg-ft": ["fedavg", "federatedaveraging"],
    "scaffold-i": ["scaffold"],
    "scaffnew": ["proxskip"],
    "fedcm": ["fedavgmlocal"],
    "fedadam": ["fedopt"],
    "fedyogi": ["fedopt"],
    "fedadagrad": ["fedopt"],
    "median": ["fedmedian"],
    "trimmed-mean": ["fedtrimmedavg"],
    "geometric-median": ["rfa", "geomed"],
    "norm-clip": ["differentialprivacyserversidefixedclipping", "normclipping", "clipping"],
    "fedasync": ["async", "asyncserverhandler", "asyncfl"],
    "fedgamma": ["fedsams"],
    "fedspeed": ["fedsamd"],
    "feddyn": ["dyn"],
}
"""Other names, and more general classes that count as having the method."""

OWN = ("uniform", "whitened", "scaffold-i", "fedavg-ft")
"""Ours, or variants of another method: never counted as a method that others lack."""

INTRODUCTION = """\
Of each library the names of all classes and modules, compared with the names of our methods and other names that we
know for them. Packages were installed, each in an environment of its own, and their files parsed; nothing was run.
PFLlib, FL-bench and the baselines beside Flower are no packages: theirs are the names of files and folders in a public
index of their repositories, all stored versions together; of Flower's baselines the folders up to the letter f, and
those that were looked up by name. A method under a name that we do not know is missed, and a general class, such as
FedOpt for FedAdam, counts as having it. What a method of the same name computes is another question:
[conformance](conformance.md). Corrections are welcome."""

ABSENT = """\
Of the newest baselines: FedCOG (Ye et al., 2024), whose clients optimise synthetic images for hundreds of steps against
the batch normalisation statistics of the global model, which our group normalisation has not; the half of FedGPS that
trains on a surrogate data set; FedPAC with Sophia. Of the others' lists for example CCVR, FedNH, FedProto, FedAMP,
FedGen, FedFomo, Floco, GPFL, DBE and FedCAC."""

ENDS = (
    *("serialclienttrainer", "clienttrainer", "serverhandler", "serverhander", "frameworkbridge", "server", "client"),
    *("strategy", "algorithm", "optimizer", "trainer", "params", "bridge", "mod"),
)
BEGINS = ("server", "client", "pytorch", "tf")


def keys(name: str) -> set[str]:
    """What a class, a module or a folder may be called for: lower case, without words such as server and client.

    Args:
        name: as the library writes it.
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    found = {plain}
    for word in ENDS:
        found |= {x.removesuffix(word) for x in found}
    for word in BEGINS:
        found |= {x.removeprefix(word) for x in found}
    return found - {""}


def names(folder: Path) -> list[str]:
    """The names of all classes and modules below a folder, which is not imported.

    Args:
        folder: the package.
    """
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        found.add(path.parent.name if path.stem == "__init__" else path.stem)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return sorted(found)


def installed(package: str, folder: Path) -> dict[str, Any] | None:
    """The version and the names of a package that is installed in a folder of environments; None if it is not.

    Args:
        package: the folder of its modules.
        folder: where the environments are.
    """
    for path in sorted(folder.glob(f"**/{package}/__init__.py")):
        infos = list(path.parents[1].glob(f"{package}*.dist-info"))
        if infos:
            return {"version": infos[0].stem.split("-")[1], "names": names(path.parent)}
    return None


def table(libraries: dict[str, Any]) -> dict[str, list[str]]:
    """For each of our methods the libraries that have it.

    Args:
        libraries: title -> its names.
    """
    known = {title: set().union(*map(keys, library["names"])) for title, library in libraries.items()}
    found = {}
    for method in ALGORITHMS:
        ways = {re.sub(r"[^a-z0-9]", "", method), *ALIASES.get(method, ())}
        found[method] = [title for title, has in known.items() if ways & has]
    return found


def page(libraries: dict[str, Any]) -> str:
    """The page.

    Args:
        libraries: as they are stored.
    """
    found = table(libraries)
    alone = [method for method, having in found.items() if not having and method not in OWN]
    titles = [f"{title} {library['version']}".strip() for title, library in libraries.items()]
    lines = [
        "# Which methods other libraries have",
        "",
        fill(INTRODUCTION, 118),
        "",
        f"| | {' | '.join(titles)} |",
        "|---" * (len(libraries) + 1) + "|",
    ]
    for method, having in found.items():
        if having:
            cells = ["yes" if title in having else "" for title in libraries]
            lines.append(f"| {method} | {' | '.join(cells)} |")
    counts = [sum(title in having for having in found.values()) for title in libraries]
    lines.append(f"| of our {len(found)} | {' | '.join(map(str, counts))} |")
    lines += [
        "",
        f"## In none of them: {len(alone)}",
        "",
        "Without our own methods and variants of others.",
        "",
        fill(", ".join(f"`{method}`" for method in alone) + ".", 118, break_on_hyphens=False),
        "",
        "## Not here",
        "",
        fill(ABSENT, 118),
        "",
        "Made by `make conformance`, from `benchmarks/conformance/results/coverage.json` and",
        "`benchmarks/conformance/results/repositories.json`.",
        "",
    ]
    return "\n".join(lines)


def stored() -> dict[str, Any]:
    """What was read, packages first."""
    packages: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {**packages, **json.loads(REPOSITORIES.read_text())}


def main() -> None:
    """Read what is installed, and write the page."""
    if len(sys.argv) > 1:
        packages: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for title, package in PACKAGES.items():
            found = installed(package, Path(sys.argv[1]))
            if found is None:
                print(f"{title}: not installed; its last names stay", file=sys.stderr)
            else:
                packages[title] = found
        RESULTS.write_text(json.dumps(packages, indent=0) + "\n")
    PAGE.write_text(page(stored()))


if __name__ == "__main__":
    main()
