"""What `undrift new` writes for operators: systemd units, a Compose file and the proxy's configuration."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.new_app import NEW_APP
from undrift.cli.results.health import health
from undrift.cli.results.prometheus import exposition

OPS = NEW_APP / "ops"
UNITS = sorted((OPS / "systemd").glob("*.service"))
KUBERNETES = [
    one for name in ("server", "node") for one in yaml.safe_load_all((OPS / "kubernetes" / f"{name}.yaml").read_text())
]
COMPOSE = yaml.safe_load((OPS / "compose.yaml").read_text())


def options(text: str) -> dict[str, set[str]]:
    """The options given to each command of Flower in a text."""
    found: dict[str, set[str]] = {}
    for command, rest in re.findall(r"(flower-[a-z]+)\b((?:[^#\n]|\\\n)*)", text):
        found.setdefault(command, set()).update(re.findall(r"(--[a-z-]+)", rest))
    return found


def given() -> dict[str, set[str]]:
    """The options given to each command of Flower in the units and in the Compose file."""
    found = options("\n".join(unit.read_text().replace("\\\n", " ") for unit in UNITS))
    for service in COMPOSE["services"].values():
        for command, more in options(" ".join(service.get("command", []))).items():
            found.setdefault(command, set()).update(more)
    for one in containers().values():
        for command, more in options(" ".join([*one.get("command", []), *one.get("args", [])])).items():
            found.setdefault(command, set()).update(more)
    return found


def containers() -> dict[str, Any]:
    """The containers of the Kubernetes manifests, by name."""
    pods = [one["spec"]["template"]["spec"] for one in KUBERNETES if one["kind"] == "StatefulSet"]
    return {one["name"]: one for pod in pods for one in pod["containers"]}


def test_there_is_a_unit_for_every_service() -> None:
    assert [unit.stem for unit in UNITS] == [f"undrift-{x}" for x in ("status", "superexec", "superlink", "supernode")]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("=/opt/undrift/bin/", f"={sys.executable} "))
    command = ["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.glob("*.service"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "undrift" in line]
    assert done.returncode == 0 and not ours, done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_restarts_without_rights_of_its_own(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    for line in ("User=undrift", "Restart=always", "StartLimitIntervalSec=0", "UMask=0077", "NoNewPrivileges=yes"):
        assert line in lines
    assert ("RestartSec=15" in lines) == (unit.stem == "undrift-supernode")


@pytest.mark.sweep(every=2)
def test_flower_knows_the_options() -> None:
    pytest.importorskip("flwr")
    found = given()
    assert set(found) == {"flower-superlink", "flower-superexec", "flower-supernode"}
    for command, wanted in found.items():
        done = subprocess.run(
            [Path(sys.executable).parent / command, "--help"], capture_output=True, text=True, timeout=120
        )
        assert not wanted - set(re.findall(r"(--[a-z-]+)", done.stdout)), command


def test_the_superlink_is_never_without_tls_and_authentication() -> None:
    needed = {
        "--ssl-certfile",
        "--ssl-keyfile",
        "--enable-supernode-auth",
        "--superexec-auth-secret-file",
        "--isolation",
    }
    assert needed <= given()["flower-superlink"]
    assert all("--insecure" not in words for words in given().values())
    for text in (OPS / "compose.yaml", *UNITS):
        assert "--isolation=process" in text.read_text() or "superlink " not in text.read_text()


def test_the_compose_file_is_consistent() -> None:
    services = COMPOSE["services"]
    assert {name for name, one in services.items() if "ports" in one} == {"proxy"}, "only the proxy is reachable"
    assert COMPOSE["networks"]["inside"]["internal"] is True
    for name, one in services.items():
        assert set(one["networks"]) <= set(COMPOSE["networks"]) and one["profiles"][0] in ("server", "node"), name
        assert one["restart"] == "always"
        for volume in one["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("./"):
                known = source.startswith(("./certificates", "./keys")) or (OPS / source).is_file()
                assert known and volume.endswith(":ro"), volume
            else:
                assert source in COMPOSE["volumes"], volume
    for name in set(services) - {"proxy"}:
        assert services[name]["read_only"] and services[name]["cap_drop"] == ["ALL"], name
        assert (OPS / services[name]["env_file"]).is_file()
    assert "superlink" not in services["supernode"]["networks"] and services["supernode"]["networks"] == ["outside"]


def test_every_variable_is_set() -> None:
    names = dict(
        line.split("=", 1) for line in (OPS / "undrift.env").read_text().splitlines() if not line.startswith("#")
    )
    texts = [path.read_text() for path in (*UNITS, OPS / "compose.yaml")]
    used = {name for text in texts for name in re.findall(r"\$\$?\{?([A-Z_]+)", text)}
    assert used and used <= set(names)
    assert names["FLWR_TELEMETRY_ENABLED"] == "0" and names["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


def test_paths_of_the_proxy_may_have_spaces() -> None:
    text = (NEW_APP / "nginx.conf.template").read_text()
    assert text.count("$work/") == len(re.findall(r'"\$work/[^"\s]+"( warn| operators)?;', text)) > 5


def test_the_proxy_has_the_rules_of_the_template() -> None:
    def rules(text: str) -> set[str]:
        keep = ("location", "client_", "limit_conn ", "ssl_protocols", "if (", "proxy_ssl_verify", "server_tokens")
        lines = (line.strip().replace("$$", "$").replace("$body_limit", "8m") for line in text.splitlines())
        return {line for line in lines if line.startswith(keep) and "temp_path" not in line}

    template, ours = ((NEW_APP / "nginx.conf.template").read_text(), (OPS / "nginx.conf").read_text())
    assert rules(template) == rules(ours) and len(rules(ours)) >= 10


def test_the_status_unit_watches_the_run_on_the_loopback_address() -> None:
    (line,) = [line for line in UNITS[0].read_text().splitlines() if line.startswith("ExecStart=")]
    assert line.endswith("undrift status ${UNDRIFT_RUNS}/${UNDRIFT_RUN} --serve 127.0.0.1:9400")


def test_the_manifests_are_consistent() -> None:
    kinds = [(one["kind"], one["metadata"]["name"]) for one in KUBERNETES]
    assert kinds == [
        ("StatefulSet", "undrift-server"), ("Service", "undrift-server"), ("NetworkPolicy", "undrift-server"),
        ("StatefulSet", "undrift-node"), ("NetworkPolicy", "undrift-node"),
    ]  # fmt: skip
    versions = {"StatefulSet": "apps/v1", "Service": "v1", "NetworkPolicy": "networking.k8s.io/v1"}
    for one in KUBERNETES:
        assert one["apiVersion"] == versions[one["kind"]]
    for one in (one for one in KUBERNETES if one["kind"] == "StatefulSet"):
        name, pod = one["metadata"]["name"], one["spec"]["template"]["spec"]
        assert one["spec"]["replicas"] == 1 and one["spec"]["selector"]["matchLabels"] == {"app": name}
        assert one["spec"]["template"]["metadata"]["labels"] == {"app": name}
        assert pod["securityContext"]["runAsNonRoot"] is True and not pod["automountServiceAccountToken"]
        claims = [claim["metadata"]["name"] for claim in one["spec"]["volumeClaimTemplates"]]
        known = {volume["name"] for volume in pod["volumes"]} | set(claims)
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= known
            secured = container["securityContext"]
            assert secured["readOnlyRootFilesystem"] and secured["capabilities"] == {"drop": ["ALL"]}
            assert not secured["allowPrivilegeEscalation"] and "limits" in container["resources"]
    policies = {one["metadata"]["name"]: one["spec"] for one in KUBERNETES if one["kind"] == "NetworkPolicy"}
    assert policies["undrift-server"]["ingress"] == [{"ports": [{"port": 443, "protocol": "TCP"}]}]
    assert policies["undrift-node"]["ingress"] == [] and policies["undrift-server"]["egress"] == []
    assert {name for name, one in containers().items() if "ports" in one} == {"proxy"}
    assert "undrift status" in containers()["superexec"]["readinessProbe"]["exec"]["command"][-1]


def test_rules_and_dashboard_name_metrics_that_there_are(tmp_path: Path) -> None:
    """Against the exposition of a run whose server has noted nodes."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text('method = "fedavg"\nrounds = 3\n')
    row = {"round": 1, "clients": 2, "rejected": 0, "absent": 0, "train_loss": 1.0, "seconds": 1.0, "accuracy": 0.5}
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    nodes = {"7": {"hosted": 2, "clients": [0, 1], "connected": True, "since": 0.0}}
    facts = {"phase": "training", "updated": 0.0, "round": 1, "rounds": 3, "population": 2, "closed": 0.0}
    facts |= {"nodes": nodes, "waiting": [], "absent": [], "error": None, "judged_by": "accuracy", "deadline": 9.0}
    (tmp_path / "run" / "status.json").write_text(json.dumps(facts))
    known = set(re.findall(r"^(undrift_\w+)\{", exposition([health(tmp_path / "run")]), re.M))
    rules = yaml.safe_load((OPS / "prometheus-rules.yaml").read_text())["groups"][0]["rules"]
    board = json.loads((OPS / "grafana.json").read_text())
    asked = [rule["expr"] for rule in rules] + [t["expr"] for panel in board["panels"] for t in panel["targets"]]
    used = {name for text in asked for name in re.findall(r"undrift_\w+", text)}
    assert len(used) > 15 and used <= known, used - known
    assert all({"alert", "expr", "labels", "annotations"} <= set(rule) for rule in rules) and len(rules) == 7
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) == 10


def test_the_runbook_names_tests_that_there_are() -> None:
    """Each incident with its rehearsal; at least twelve have one."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "guide" / "operations.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\[`(test_\w+)`", page))
    there = {
        name for path in (root / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) >= 12 and named <= there, named - there
    assert len(re.findall(r"^\| .*\[`test_", page, re.M)) >= 12
