"""The deployment end to end: real SuperLink, SuperNodes and proxy, over TLS with authentication, and what is killed."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.deployment import TOOLS, Deployment, cohorts, deploy, outcome, replay, running, seconds, until

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.xdist_group("deployment"),
    *TOOLS,
]

FLEET = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(Deployment(tmp_path_factory.mktemp("deployment"))) as it:
        yield it


@pytest.mark.slow
def test_the_app_gives_the_model_of_the_local_engine(deployment: Any) -> None:
    log = deployment.finish(deployment.submit(num_rounds=2), 150)
    assert outcome(log) == (cohorts(2), replay("fedfft-d", cohorts(2)))


@pytest.mark.sweep(every=0)
def test_a_killed_server_app_goes_on_with_the_same_command_to_the_bit(deployment: Any) -> None:
    config = {"run": "killed", "algorithm": "scaffold", "num_rounds": 2}
    deployment.submit(**config)
    until(lambda: deployment.rounds("killed") == 1, 240)
    assert deployment.status("killed")["state"] == "running"
    deployment.kill_server_app("killed")
    until(lambda: deployment.status("killed")["state"] == "failed", 20)
    died = deployment.status("killed")
    assert died["code"] == 2 and "has died without a result; to resume: give the same flwr run" in died["detail"]
    deployment.finish(deployment.submit(**config), 240)
    done = deployment.status("killed")
    assert done["state"] == "ended" and done["restarts"] == 1 and done["round"] == 2 and done["score"] is not None
    hosted = [node["clients"] for node in done["nodes"].values()]
    assert sorted(client for clients in hosted for client in clients) == list(range(12))
    assert deployment.summary("killed")["sha256"] == replay("scaffold", cohorts(2))


@pytest.mark.slow
def test_a_killed_superexec_says_what_happened_and_the_run_goes_on(deployment: Any) -> None:
    config = {"run": "orphan", "algorithm": "scaffold", "num_rounds": 2}
    run = deployment.submit(**config)
    until(lambda: deployment.rounds("orphan") == 1, 240)
    deployment.kill("superexec")
    until(lambda: deployment.status("orphan")["state"] == "failed", 60)
    assert "SuperExec, process" in deployment.status("orphan")["detail"]
    assert "stopped by user" not in deployment.log(run)
    deployment.up()
    deployment.finish(deployment.submit(**config), 240)
    assert deployment.summary("orphan")["sha256"] == replay("scaffold", cohorts(2))


@pytest.mark.sweep(every=4)
def test_every_supernode_connects_through_the_proxy(deployment: Any) -> None:
    access = (deployment.work / "logs" / "nginx-access.log").read_text()
    assert access.count('"POST /v1/fleet/activate-node HTTP/1.1" 200') >= deployment.nodes


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("server", ["superlink", "nginx"])
def test_plain_text_is_refused(deployment: Any, server: Any) -> None:
    with socket.create_connection((deploy.HOST, deployment.ports[server]), timeout=20) as plain:
        plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        answer = plain.recv(100)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 "), answer


@pytest.mark.sweep(every=3)
def test_strangers_are_refused(deployment: Any, tmp_path: Path) -> None:
    work, other = deployment.work, tmp_path
    deploy.certificates(other)
    deploy.keys(other)
    right, wrong = f"--root-certificates={work}/certificates/ca.crt", f"--root-certificates={other}/certificates/ca.crt"
    known, unknown = (f"--auth-supernode-private-key={folder}/keys/node0" for folder in (work, other))
    direct, through = (f"--superlink={deploy.HOST}:{deployment.ports[name]}" for name in ("superlink", "nginx"))
    cases = {
        "unknown": ((direct, right, unknown), "Failed to activate SuperNode"),
        "through": ((through, right, unknown), "Failed to activate SuperNode"),
        "wrong": ((through, wrong, known), "CERTIFICATE_VERIFY_FAILED"),
        "keyless": ((direct, right), "All SuperNodes must be registered"),
    }
    processes = {name: deployment.stranger(tmp_path / name, *options) for name, (options, _) in cases.items()}
    for name, process in processes.items():
        assert process.wait(timeout=90) != 0
        output = (tmp_path / name).read_text()
        assert cases[name][1] in output and "SuperNode ID" not in output, output


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/docs",
        "/openapi.json",
        "/health",
        "/v1/control/list-runs",
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/runtime/responses",
        "/v1/fleet",
        "/v1/fleet/",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
        "/v1/fleet/pull-messages/../../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/..%2fcontrol%2flist-runs",
        "/v1/fleet/pull-messages%00/../../control/list-runs",
        "/V1/fleet/pull-messages/x",
    ],
)
@pytest.mark.sweep(every=4)
def test_the_proxy_hides_all_other_paths(deployment: Any, path: Any) -> None:
    assert deployment.request("nginx", path) in (400, 404)


@pytest.mark.parametrize("path", FLEET)
def test_the_proxy_lets_the_fleet_through(deployment: Any, path: Any) -> None:
    assert deployment.request("nginx", f"/v1/fleet/{path}") == 415, "the SuperLink itself misses the media type"


def test_a_fleet_request_without_a_signature_is_refused(deployment: Any) -> None:
    headers = "Content-Type: application/protobuf\r\nContent-Length: 0\r\n"
    assert deployment.request("nginx", "/v1/fleet/pull-messages", headers=headers) == 401


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (f"Content-Length: {9 << 20}\r\n", b"x"),
        ("Transfer-Encoding: chunked\r\n", b"%x\r\n" % (9 << 20) + bytes(9 << 20) + b"\r\n0\r\n\r\n"),
    ],
    ids=["announced", "chunked"],
)
def test_the_proxy_refuses_a_body_above_its_limit(deployment: Any, headers: Any, body: Any) -> None:
    assert deployment.request("nginx", "/v1/fleet/push-object", body, headers) == 413


def test_the_proxy_refuses_to_announce_a_reply_of_many_objects(deployment: Any) -> None:
    """The SuperLink locks its database while it enters them, and everybody else waits."""
    assert deployment.request("nginx", "/v1/fleet/push-messages", bytes(30_000)) == 415
    assert deployment.request("nginx", "/v1/fleet/push-messages", bytes(35_000)) == 413


@pytest.mark.slow
def test_a_killed_supernode_costs_its_own_clients_only_and_rejoins(deployment: Any) -> None:
    deadline, rounds = 40.0, 7
    run = deployment.submit(num_rounds=rounds, pause=4.0, deadline=deadline)
    deployment.reaches(run, "node1", 1)
    deployment.kill("node1")
    deployment.up()
    log = deployment.finish(run, 300)
    accepted, final = outcome(log)
    asked = cohorts(rounds)
    assert len(seconds(log)) == rounds and max(seconds(log)) <= deadline + 2, log
    assert accepted[0] == asked[0], log
    assert accepted[1] == [client for client in asked[1] if client % 3 != 1], log
    assert accepted[-1] == asked[-1], f"the node is not back:\n{log}"
    assert final == replay("fedfft-d", accepted)


@pytest.mark.slow
def test_a_killed_superlink_comes_back_and_the_run_completes(deployment: Any) -> None:
    run = deployment.submit(num_rounds=3, pause=4.0)
    deployment.reaches(run, "node0", 1)
    deployment.kill("superlink")
    deployment.up()
    accepted, final = outcome(deployment.finish(run, 240))
    assert len(accepted) == 3 and all(accepted)
    assert final == replay("fedfft-d", accepted)
