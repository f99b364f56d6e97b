"""The certificates of a deployment's servers are events of the run, also those that replace them while it trains."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from support.deploy_runs import deployed
from undrift.deploying.certificates import Certificates
from undrift.runs import verify

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing")


def make_certificate(path: Path, name: str, days: int = 90) -> str:
    """A certificate, and its SHA-256."""
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", str(days)]
    command = ["openssl", *new, "-subj", f"/CN={name}", "-keyout", str(path.with_suffix(".key")), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    shown = ["openssl", "x509", "-in", str(path), "-noout", "-fingerprint", "-sha256"]
    text = subprocess.run(shown, check=True, capture_output=True, text=True, timeout=60).stdout
    return text.strip().rpartition("=")[2].replace(":", "").lower()


def test_a_replaced_certificate_is_an_event_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "proxy.pem"
    first, found = make_certificate(path, "first"), []

    def replace(state: Any, _: Any) -> None:
        if state.round == 2:
            found.append(make_certificate(path, "second", days=3))

    run = deployed("fedavg", tmp_path, rounds=4, certificates=[path], on_round=replace).folder
    events = [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]
    seen = [event for event in events if event["event"] == "certificate"]
    assert [event["sha256"] for event in seen] == [first, *found]
    assert [event["subject"] for event in seen] == ["CN=first", "CN=second"] and seen[0]["file"] == str(path)
    assert verify(run).intact
    warned = [line for line in (run / "log.txt").read_text().splitlines() if "replace it, and reload nginx" in line]
    assert len(warned) == 1


def test_a_certificate_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    noted: list[dict[str, Any]] = []
    path = tmp_path / "proxy.pem"
    watched = Certificates([path], lambda **facts: noted.append(facts))
    for _ in range(2):
        watched.check()
    path.write_text("damaged")
    for _ in range(2):
        watched.check()
    digest = make_certificate(path, "good")
    for _ in range(2):
        watched.check()
    assert ["error" in facts for facts in noted] == [True, True, False] and noted[2]["sha256"] == digest
