"""What `undrift new` writes for operators: systemd units, a Compose file and the proxy's configuration."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.new_app import NEW_APP

OPS = NEW_APP / "ops"
UNITS = sorted((OPS / "systemd").glob("*.service"))
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
    return found


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
    assert text.count("$work/") == len(re.findall(r'"\$work/[^"\s]+"( warn)?;', text)) > 5


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
