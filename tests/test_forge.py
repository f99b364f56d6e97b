"""What a forge and a release read: workflows, forms, metadata, Dockerfile, recipe."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import undrift

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
HOME = "https://github.com/undrift/undrift"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def requirement(text: str) -> tuple[str, str]:
    """Name and lower bound of a requirement such as `numpy>=1.26`."""
    name, bound = re.fullmatch(r"([\w-]+)(?:\[\w+\])?(?:>=([\d.]+))?.*", text).groups()  # type: ignore[union-attr]
    return name.lower().replace("_", "-"), bound or ""


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("forge_release", GITHUB / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_its_actions_and_calls_make(path: Path) -> None:
    found = read(path)
    assert found["permissions"] == {"contents": "read"} and "group" in found["concurrency"]
    for job in found["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step
                assert not step["uses"].startswith("actions/checkout@") or not step["with"]["persist-credentials"]
            else:
                (target,) = re.findall(r"^make ([a-z-]+)(?: [A-Z]+=\S+)?$", step["run"])
                if target == "docs" and not (ROOT / "docs" / "conf.py").exists():
                    pytest.skip("there is no site yet")
                assert target in TARGETS, f"{path.name}: the Makefile has no target {target}"
    for line in path.read_text(encoding="utf-8").splitlines():
        assert "uses:" not in line or re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_an_action_has_one_version() -> None:
    used = set(re.findall(r"uses: (\S+)@(\S+)", "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)))
    assert len(used) == len({name for name, _ in used})


def test_every_target_is_phony() -> None:
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)).split())
    assert phony == TARGETS


@pytest.mark.parametrize("path", sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_an_issue_form_is_one(path: Path) -> None:
    found = read(path)
    if path.stem == "config":
        assert all(link["url"].startswith(HOME) and link["about"] for link in found["contact_links"])
        return
    assert found["name"] and found["description"] and found["labels"]
    names = [field["id"] for field in found["body"]]
    assert len(names) == len(set(names))
    for field in found["body"]:
        assert field["type"] in {"textarea", "input", "checkboxes", "dropdown"} and field["attributes"]["label"]


def test_one_address_and_one_version(release: ModuleType) -> None:
    assert all(url.startswith(HOME) for url in PROJECT["urls"].values())
    assert read(ROOT / "CITATION.cff")["repository-code"] == HOME
    assert release.problems(f"v{undrift.__version__}") == []
    assert len(release.problems("v9.9.9")) == 1
    for tag, code in ((f"v{undrift.__version__}", 0), ("v9.9.9", 1)):
        done = subprocess.run([sys.executable, release.__file__ or "", "check", tag], capture_output=True, check=False)
        assert done.returncode == code and bool(done.stderr) == bool(code)


def test_the_oldest_versions_are_the_lower_bounds(release: ModuleType) -> None:
    lines = (GITHUB / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    oldest = dict(line.lower().replace("_", "-").split("==") for line in lines if not line.startswith("#"))
    bounds = dict(requirement(text) for text in release.lower_bounds())
    for text in PROJECT["dependencies"]:
        assert requirement(text)[0] in oldest
    for name, version in oldest.items():
        given = version.split(".")
        assert given[: bounds[name].count(".") + 1] == bounds[name].split("."), (name, version, bounds[name])


def test_the_recipe_needs_what_the_package_needs() -> None:
    found = read(ROOT / "packaging" / "recipe.yaml")
    run = {text.replace(" ", "").lower() for text in found["requirements"]["run"]}
    wanted = {text.lower().replace("torch>", "pytorch>") for text in PROJECT["dependencies"]}
    assert run == wanted | {f"python{PROJECT['requires-python']}"}
    (entry,) = found["build"]["python"]["entry_points"]
    assert entry == f"undrift = {PROJECT['scripts']['undrift']}"


def test_the_image_is_built_from_the_wheel_and_runs_as_a_user() -> None:
    text = (ROOT / "packaging" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    words = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "USER", "ENTRYPOINT", "CMD"}
    assert {line[0] for line in lines} == words
    last = len(lines) - 1 - [line[0] for line in lines][::-1].index("USER")
    assert lines[last][1] == "undrift" and all(line[0] != "RUN" for line in lines[last:])
    sent = (ROOT / "packaging" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()[1:]
    copied = next(rest for word, rest in lines if word == "COPY").split()[:-1]
    assert sent == ["*", *(f"!{name}" for name in copied)]
    assert '"${wheel}[${EXTRAS}]"' in text and ["ARG", "EXTRAS=all"] in lines


def test_archives_are_checked(release: ModuleType) -> None:
    wheel = [path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "undrift").rglob("*")]
    wheel = [name for name in wheel if (ROOT / "src" / name).is_file() and "__pycache__" not in name]
    tops = ("src", "tests", "docs", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml")
    source = [f"undrift-1/{name}" for name in tops]
    assert "undrift/py.typed" in wheel
    release.check_contents(wheel, source)
    with pytest.raises(SystemExit, match="differs from src"):
        release.check_contents(wheel[1:], source)
    with pytest.raises(SystemExit, match="lacks"):
        release.check_contents(wheel, source[1:])
    with pytest.raises(SystemExit, match="do not belong"):
        release.check_contents(wheel, [*source, "undrift-1/src/__pycache__/a.pyc"])
