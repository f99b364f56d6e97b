"""A run's log and manifests rewritten, with hashes that fit: as a forger would, or as an earlier version did."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from undrift.runs.folder.checkpoint import read_manifest


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]


def chained(run: Path, found: list[dict[str, Any]]) -> None:
    """Write a log with hashes that fit."""
    previous, out = "0" * 64, []
    for event in found:
        entry = {name: x for name, x in event.items() if name not in ("hash", "signature")} | {"previous": previous}
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
    new = ("rows", "every", "keep", "log", "files")
    return [{name: x for name, x in event.items() if name not in new} for event in events(run)]


def write_keys(path: Path) -> Path:
    """Write a new key as ssh-keygen does, with its public half beside it; gives the latter's file."""
    key, public = Ed25519PrivateKey.generate(), path.with_suffix(".pub")
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b" operator@server\n")
    return public
