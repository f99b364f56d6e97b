"""The wire of a real deployment: old TLS, wrong certificates, old and foreign signatures, and many bad requests."""

import datetime
import ipaddress
import re
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.deployment import TOOLS, Deployment, deploy, running, until

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("deployment"),
    *TOOLS,
]

HEARTBEAT = "/v1/fleet/send-node-heartbeat"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(Deployment(tmp_path_factory.mktemp("transport"), nodes=2), 20) as it:
        yield it


@pytest.mark.parametrize("server", ["superlink", "nginx"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"])
def test_old_tls_is_refused(deployment: Deployment, server: str, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(deployment.work / "certificates" / "ca.crt"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection((deploy.HOST, deployment.ports[server]), timeout=20) as plain,
        pytest.raises((ssl.SSLError, ConnectionError), match=r"(?i)protocol|reset|version|handshake"),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def issued(work: Path, folder: Path, days: int, host: str) -> Path:
    """A certificate of the deployment's own authority with its key, valid for so many days, which may be over."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    authority = x509.load_pem_x509_certificate((work / "certificates" / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((work / "certificates" / "ca.key").read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(host)]
    if host == "localhost":
        names.append(x509.IPAddress(ipaddress.ip_address(deploy.HOST)))
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=10))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        .sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{host}{days}.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form))
    return path


@pytest.mark.parametrize(
    ("days", "host", "why"),
    [(-1, "localhost", "certificate has expired"), (5, "elsewhere.example", "Hostname mismatch|not valid for")],
    ids=["expired", "wrong host"],
)
def test_a_node_refuses_the_certificate(deployment: Deployment, tmp_path: Path, days: int, host: str, why: str) -> None:
    """A server with a certificate that is over, or of another host, though the right authority issued it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued(deployment.work, tmp_path, days, host))
    served = socket.create_server((deploy.HOST, 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = served.accept()
                context.wrap_socket(plain, server_side=True).close()
            except ssl.SSLError:
                continue
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    node = deployment.stranger(
        tmp_path / "node",
        f"--superlink={deploy.HOST}:{served.getsockname()[1]}",
        f"--root-certificates={deployment.work}/certificates/ca.crt",
        f"--auth-supernode-private-key={deployment.work}/keys/node0",
    )
    try:
        until(lambda: bool(re.search(why, (tmp_path / "node").read_text())) or node.poll() is not None, 90)
        output = (tmp_path / "node").read_text()
        assert re.search(f"CERTIFICATE_VERIFY_FAILED.*({why})", output), output
        assert "SuperNode ID" not in output
    finally:
        served.close()


def node_id(deployment: Deployment, name: str) -> int:
    """The number that the SuperLink gave a node."""
    found = re.search(r"SuperNode ID: (\d+)", deploy.last_log(deployment.work, name))
    assert found, deploy.last_log(deployment.work, name)
    return int(found[1])


def heartbeat(deployment: Deployment, key: Path, node: int, age: float) -> int:
    """The status of a heartbeat that was signed so many seconds ago."""
    from cryptography.hazmat.primitives import serialization
    from flwr.common.constant import TIMESTAMP_HEADER
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.date import now
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

    private = serialization.load_ssh_private_key(key.read_bytes(), None)
    stamp = (now() - datetime.timedelta(seconds=age)).isoformat()
    body = SendNodeHeartbeatRequest(heartbeat_interval=30.0)
    body.node.node_id = node
    sent = body.SerializeToString()
    own = b64encode(public_key_to_bytes(private.public_key())).decode()  # type: ignore[arg-type]
    signature = b64encode(sign_message(private, stamp.encode())).decode()  # type: ignore[arg-type]
    headers = {
        "Content-Type": "application/protobuf",
        "Content-Length": len(sent),
        FLEET_HTTP_PUBLIC_KEY_HEADER: own,
        TIMESTAMP_HEADER: stamp,
        FLEET_HTTP_SIGNATURE_HEADER: signature,
    }
    return deployment.request("nginx", HEARTBEAT, sent, "".join(f"{k}: {v}\r\n" for k, v in headers.items()))


def test_signatures(deployment: Deployment, tmp_path: Path) -> None:
    """A signature is valid for five minutes, for its own node only; within that time it can be replayed."""
    keys, own, other = deployment.work / "keys", node_id(deployment, "node0"), node_id(deployment, "node1")
    deploy.keys(tmp_path, 1)
    stranger = tmp_path / "keys" / "node0"
    assert heartbeat(deployment, keys / "node0", own, 0) == 200
    assert heartbeat(deployment, keys / "node0", own, 240) == 200, "a replay within the window is accepted"
    for age in (310, 3600, 10**7, -60):
        assert heartbeat(deployment, keys / "node0", own, age) == 401, age
    assert heartbeat(deployment, keys / "node0", other, 0) == 401
    assert heartbeat(deployment, keys / "node1", own, 0) == 401
    assert heartbeat(deployment, stranger, own, 0) == 401
    assert heartbeat(deployment, stranger, 12345, 0) == 401


def resident(pid: int) -> float:
    """The memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def test_a_thousand_bad_requests(deployment: Deployment) -> None:
    """All are refused; what they cost the SuperLink is measured, and bounded generously."""
    pid = deploy.alive(deployment.work, "superlink")
    assert pid
    before = resident(pid)
    kinds = [b"", b"\xff" * 100, bytes(10_000), b"\x80\x04N."]
    typed = "Content-Type: application/protobuf\r\nContent-Length: {}\r\n"
    for number in range(1000):
        body = bytes(7 << 20) if number % 20 == 0 else kinds[number % len(kinds)]
        status = deployment.request("nginx", "/v1/fleet/push-object", body, typed.format(len(body)))
        assert status in (400, 401, 415, 422), status
    grown = resident(pid) - before
    print(f"the SuperLink grew by {grown:.0f} MB, from {before:.0f} MB")
    assert grown < 300
    assert deployment.request("nginx", "/v1/fleet/push-object", b"x", f"Content-Length: {9 << 20}\r\n") == 413
