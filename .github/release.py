"""What a release needs: python .github/release.py check TAG, dist, or installed."""

import os
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
FIRST = """
seeds = [0, 1]
base = { data = "digits", partition = "dirichlet(0.1)", clients = 10, cohort = 5, rounds = 5 }
methods = [{ method = "fedavg" }, { method = "scaffold" }]
"""
TORCH = "torch==2.13.0"
"""The only version that is given where the archives are tried: the others are the newest, as for a new user."""
JUNK = ("__pycache__", ".pyc", ".DS_Store", "~", ".ipynb_checkpoints", ".orig")


def version() -> str:
    """The version of the package, without importing it."""
    names: dict[str, str] = {}
    exec((ROOT / "src/undrift/util/version.py").read_text(encoding="utf-8"), names)
    return names["__version__"]


def problems(tag: str) -> list[str]:
    """What does not agree with a tag such as v0.2.0."""
    now, found = version(), []
    if tag != f"v{now}":
        found.append(f"the tag is {tag}, but src/undrift/util/version.py has {now}")
    if f"\n## {now}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        found.append(f"CHANGELOG.md has no section {now}")
    if f"\nversion: {now}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        found.append(f"CITATION.cff is not of version {now}")
    if f'version: "{now}"' not in (ROOT / "packaging/recipe.yaml").read_text(encoding="utf-8"):
        found.append(f"packaging/recipe.yaml is not of version {now}")
    return found


def build(folder: Path, epoch: str) -> dict[str, str]:
    """Build the sdist, and the wheel from it; their names and hashes."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(words, env={**os.environ, "SOURCE_DATE_EPOCH": epoch}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def names(path: Path) -> list[str]:
    """The files of a wheel or an sdist."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return wheel.namelist()
    with tarfile.open(path) as archive:
        return [member.name for member in archive if member.isfile()]


def check_contents(wheel: list[str], source: list[str]) -> None:
    """Exit if a file is missing in an archive, or does not belong there."""
    package = ROOT / "src" / "undrift"
    wanted = {path.relative_to(ROOT / "src").as_posix() for path in package.rglob("*") if path.is_file()}
    wanted = {name for name in wanted if not any(part in name for part in JUNK)}
    inside = {name for name in wheel if ".dist-info/" not in name}
    if inside != wanted:
        sys.exit(f"the wheel differs from src: {sorted(inside ^ wanted)}")
    if junk := [name for name in (*wheel, *source) if any(part in name for part in JUNK)]:
        sys.exit(f"these files do not belong into a release: {junk}")
    top = {name.split("/")[1] for name in source}
    if missing := {"src", "tests", "docs", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} - top:
        sys.exit(f"the sdist lacks {sorted(missing)}")


def dist() -> None:
    """Build twice, compare the hashes, check the contents and the metadata."""
    words = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    epoch = subprocess.run(words, capture_output=True, text=True).stdout.strip() or "1700000000"
    for old in DIST.glob("undrift-*"):
        old.unlink()
    hashes = build(DIST, epoch)
    with tempfile.TemporaryDirectory() as folder:
        again = build(Path(folder), epoch)
    if hashes != again:
        sys.exit(f"two builds differ:\n{hashes}\n{again}")
    (wheel,), (source,) = DIST.glob("undrift-*.whl"), DIST.glob("undrift-*.tar.gz")
    check_contents(names(wheel), names(source))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source)], check=True)
    for name, found in hashes.items():
        print(f"{found}  {name}  {(DIST / name).stat().st_size / 1e6:.2f} MB")


def installed() -> None:
    """Install the wheel, then the sdist, each alone in an empty environment, and use them as a new user does."""
    for archive in (*DIST.glob("undrift-*.whl"), *DIST.glob("undrift-*.tar.gz")):
        use(archive)


def use(archive: Path) -> None:
    """Install an archive alone in an empty environment and use it; print each step's seconds."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "venv")
        venv.create(place, with_pip=True)
        scripts = place / ("Scripts" if os.name == "nt" else "bin")
        python, undrift = scripts / "python", scripts / "undrift"
        Path(folder, "first.toml").write_text(FIRST, encoding="utf-8")
        Path(folder, "torch.txt").write_text(TORCH, encoding="utf-8")
        for words in (
            [python, "-m", "pip", "install", "-q", f"{archive}[report]", "-c", "torch.txt"],
            [python, "-W", "error", "-c", "import undrift; print(undrift.__version__)"],
            [undrift, "doctor"],
            [undrift, "demo", "--out", "demo"],
            [undrift, "run", "scaffold", "--data", "digits", "--out", "runs/scaffold"],
            [undrift, "compare", "first.toml", "--out", "runs/digits"],
            [undrift, "report", "runs/digits", "--out", "report.html"],
        ):
            start, shown = time.monotonic(), " ".join(word.name if isinstance(word, Path) else word for word in words)
            clean = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
            subprocess.run([str(word) for word in words], cwd=folder, env=clean, check=True)
            print(f"{time.monotonic() - start:6.1f} s  {shown}", flush=True)


def lower_bounds() -> list[str]:
    """The lower bounds of pyproject.toml, of the package and of its extras: `numpy>=1.26`, ..."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [
        *project["dependencies"],
        *(need for name in extras if name not in ("all", "dev", "test") for need in extras[name]),
    ]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check", tag]:
            sys.exit("\n".join(problems(tag)) or None)
        case ["dist"]:
            dist()
        case ["installed"]:
            installed()
        case _:
            sys.exit(__doc__)
