"""What is installed beside undrift, as CycloneDX: python .github/sbom.py EXTRA ... writes sbom/undrift.cdx.json.

With extras, what they need is listed too, and must be installed.
"""

import json
import re
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def needed(name: str, extras: frozenset[str], found: dict[str, Any]) -> None:
    """Collect a distribution and all that it needs, where it is installed."""
    from packaging.requirements import Requirement

    key, wanted = normal(name), extras | {""}
    try:
        held = distribution(name)
    except ImportError:
        if "undrift" in found and key in {normal(Requirement(x).name) for x in direct(found["undrift"])}:
            raise SystemExit(f"{name} is not installed: the list would lack it; pip install '.[all]' first") from None
        return
    known = found.setdefault(key, {"extras": frozenset(), "distribution": held, "needs": set()})
    if wanted <= known["extras"]:
        return
    known["extras"] |= wanted
    for requirement in map(Requirement, held.requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted):
            known["needs"].add(normal(requirement.name))
            needed(requirement.name, frozenset(requirement.extras), found)


def direct(own: dict[str, Any]) -> list[str]:
    """What undrift itself requires with its extras."""
    from packaging.requirements import Requirement

    markers = [(text, Requirement(text).marker) for text in own["distribution"].requires or ()]
    return [text for text, m in markers if m is None or any(m.evaluate({"extra": x}) for x in own["extras"])]


def normal(name: str) -> str:
    """A package's name as PyPI has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def component(key: str, held: Any) -> dict[str, Any]:
    """One package."""
    meta, purl = held.metadata, f"pkg:pypi/{key}@{held.version}"
    out: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": key, "version": held.version, "purl": purl}
    license = meta.get("License-Expression") or (meta.get("License") or "").partition("\n")[0][:80]
    if license:
        shape = {"expression": license} if meta.get("License-Expression") else {"license": {"name": license}}
        out["licenses"] = [shape]
    return out


def bom(extras: frozenset[str]) -> dict[str, Any]:
    """The whole document; equal environments give equal documents."""
    found: dict[str, Any] = {}
    needed("undrift", extras, found)
    parts = {key: component(key, entry["distribution"]) for key, entry in sorted(found.items())}
    own = {**parts.pop("undrift"), "type": "application"}
    refs = {key: part["bom-ref"] for key, part in [*parts.items(), ("undrift", own)]}
    depends = [
        {"ref": refs[key], "dependsOn": sorted(refs[need] for need in entry["needs"] if need in refs)}
        for key, entry in sorted(found.items())
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": list(parts.values()),
        "dependencies": depends,
    }


def main() -> None:
    """Write the document."""
    path = ROOT / "sbom" / "undrift.cdx.json"
    path.parent.mkdir(exist_ok=True)
    found = bom(frozenset(sys.argv[1:]))
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(found['components'])} packages")


if __name__ == "__main__":
    main()
