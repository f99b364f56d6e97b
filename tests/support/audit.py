"""A run's log and manifests rewritten, with hashes that fit: as a forger would, or as an earlier version did."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from undrift.runs.folder.checkpoint import read_manifest


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]


def chained(run: Path, found: list[dict[str, Any]]) -> None:
    """Write a log with hashes that fit."""
    previous, out = "0" * 64, []
    for event in found:
        entry = {name: x for name, x in event.items() if name not in ("hash", "mac")} | {"previous": previous}
        previous = sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
        out.append(json.dumps({**entry, "hash": previous}) + "\n")
    (run / "audit.jsonl").write_text("".join(out))


def sealed(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with a checksum that fits."""
    check = sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**manifest, "check": check}))


def earlier(run: Path) -> list[dict[str, Any]]:
    """Write the manifests of a run as an earlier version did, and return the events that it would have written."""
    for place in (*run.glob("checkpoints/*.json"), *run.glob("best/*.json")):
        sealed(place, {name: x for name, x in read_manifest(place).items() if name != "log"})
    new = ("rows", "every", "log", "files")
    return [{name: x for name, x in event.items() if name not in new} for event in events(run)]
