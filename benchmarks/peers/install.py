"""An environment of its own for every peer, beside one version of torch.

BlazeFL declares Python 3.12 and, from version 3, a Python without a global lock. Version 2.0.3 also runs on Python
3.11, which the option below allows.

    python benchmarks/peers/install.py ~/peers
"""

import argparse
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[2] / "packaging" / "constraints.txt"
PACKAGES = {
    "pfl": ["pfl"],
    "flower": ["flwr[simulation]"],
    "blazefl": ["blazefl[contrib,reproducibility]==2.0.3", "--ignore-requires-python"],
    "fedlab": ["fedlab"],
    "fluke": ["fluke-fl"],
}


def python_of(folder: Path, peer: str) -> Path:
    """The interpreter of a peer's environment.

    Args:
        folder: the folder of all environments.
        peer: one of `PACKAGES`.
    """
    return folder / peer / "bin" / "python"


def install(folder: Path, peer: str) -> None:
    """Create one environment: torch first, so that the peer does not upgrade it.

    Args:
        folder: the folder of all environments.
        peer: one of `PACKAGES`.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder / peer)], check=True)
    pip = [str(python_of(folder, peer)), "-m", "pip", "install", "--quiet", "-c", str(CONSTRAINTS)]
    for packages in (["torch==2.13.0", "numpy"], PACKAGES[peer]):
        subprocess.run([*pip, *packages], check=True)


def main() -> None:
    """Create the environments that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the environments go; about 1 GB each")
    parser.add_argument("peers", nargs="*", help=f"of {', '.join(PACKAGES)}; default all")
    options = parser.parse_args()
    if unknown := set(options.peers) - set(PACKAGES):
        parser.error(f"no peers: {', '.join(sorted(unknown))}; choose from {', '.join(PACKAGES)}")
    for peer in options.peers or PACKAGES:
        if not python_of(options.folder, peer).exists():
            install(options.folder, peer)
        print(peer, python_of(options.folder, peer), flush=True)


if __name__ == "__main__":
    main()
