"""The deployment end to end: real SuperLink, SuperNodes and proxy, over TLS with authentication, and what is killed."""

import shutil
import socket
from collections.abc import Iterator

import pytest

from deployment_support import Deployment, cohorts, deploy, replay, seconds, told, until

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.xdist_group("deployment"),
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing"),
    pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is missing"),
    pytest.mark.skipif(not (shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")), reason="no nginx"),
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
    it = Deployment(tmp_path_factory.mktemp("deployment"))
    try:
        it.up()
        yield it
    finally:
        it.down()
        until(lambda: not it.processes(), 10)


@pytest.mark.parametrize("algorithm", ["fedfft-d", "scaffold"])
def test_the_app_gives_the_model_of_the_local_engine(deployment, algorithm):
    log = deployment.finish(deployment.submit(algorithm=algorithm, num_rounds=2), 150)
    assert told(log) == (cohorts(2), replay(algorithm, cohorts(2)))


def test_every_supernode_connects_through_the_proxy(deployment):
    access = (deployment.work / "logs" / "nginx-access.log").read_text()
    assert access.count('"POST /v1/fleet/activate-node HTTP/1.1" 200') >= deployment.nodes


@pytest.mark.parametrize("server", ["superlink", "nginx"])
def test_plain_text_is_refused(deployment, server):
    with socket.create_connection((deploy.HOST, deployment.ports[server]), timeout=20) as plain:
        plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        answer = plain.recv(100)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 "), answer


def test_strangers_are_refused(deployment, tmp_path):
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
def test_the_proxy_hides_all_other_paths(deployment, path):
    assert deployment.request("nginx", path) in (400, 404)


@pytest.mark.parametrize("path", FLEET)
def test_the_proxy_lets_the_fleet_through(deployment, path):
    assert deployment.request("nginx", f"/v1/fleet/{path}") == 415, "the SuperLink itself misses the media type"


def test_a_fleet_request_without_a_signature_is_refused(deployment):
    headers = "Content-Type: application/protobuf\r\nContent-Length: 0\r\n"
    assert deployment.request("nginx", "/v1/fleet/pull-messages", headers=headers) == 401


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (f"Content-Length: {9 << 20}\r\n", b"x"),
        ("Transfer-Encoding: chunked\r\n", b"%x\r\n" % (9 << 20) + bytes(9 << 20) + b"\r\n0\r\n\r\n"),
    ],
    ids=["announced", "chunked"],
)
def test_the_proxy_refuses_a_body_above_its_limit(deployment, headers, body):
    assert deployment.request("nginx", "/v1/fleet/push-object", body, headers) == 413


@pytest.mark.slow
def test_a_killed_supernode_costs_its_own_clients_only_and_rejoins(deployment):
    deadline, rounds = 40.0, 7
    run = deployment.submit(num_rounds=rounds, pause=4.0, deadline=deadline)
    deployment.reaches(run, "node1", 1)
    deployment.kill("node1")
    deployment.up()
    log = deployment.finish(run, 300)
    accepted, final = told(log)
    asked = cohorts(rounds)
    assert len(seconds(log)) == rounds and max(seconds(log)) <= deadline + 2, log
    assert accepted[0] == asked[0], log
    assert accepted[1] == [client for client in asked[1] if client % 3 != 1], log
    assert accepted[-1] == asked[-1], f"the node is not back:\n{log}"
    assert final == replay("fedfft-d", accepted)


@pytest.mark.slow
def test_a_killed_superlink_comes_back_and_the_run_completes(deployment):
    run = deployment.submit(num_rounds=3, pause=4.0)
    deployment.reaches(run, "node0", 1)
    deployment.kill("superlink")
    deployment.up()
    accepted, final = told(deployment.finish(run, 240))
    assert len(accepted) == 3 and all(accepted)
    assert final == replay("fedfft-d", accepted)
