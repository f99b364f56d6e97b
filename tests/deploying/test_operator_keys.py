"""The proxy of `undrift new`, a real nginx: who may do what, who no longer may, and certificates that are replaced."""

import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.deployment import TOOLS, deploy, until

pytestmark = TOOLS
READ, START, ADMIT = "/v1/control/list-runs", "/v1/control/start-run", "/v1/control/register-node"


class Echo(BaseHTTPRequestHandler):
    """Stands for the SuperLink: answers each request with its path."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.path)))
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_: Any) -> None: ...


class Proxy:
    """A real nginx with the configuration of the app, before a server that stands for the SuperLink."""

    def __init__(self, work: Path) -> None:
        self.work = work
        deploy.certificates(work)
        deploy.keys(work, 1)
        self.upstream = ThreadingHTTPServer((deploy.HOST, 0), Echo)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(work / "certificates" / "superlink.pem", work / "certificates" / "superlink.key")
        self.upstream.socket = context.wrap_socket(self.upstream.socket, server_side=True)
        threading.Thread(target=self.upstream.serve_forever, daemon=True).start()
        wanted = {"superlink": self.upstream.server_address[1], "nginx": 0, "control": 0}
        self.plan = deploy.configure(work, 1, wanted, "8m")
        self.command = [shutil.which("nginx") or "/usr/sbin/nginx", "-e", str(work / "logs" / "nginx.log")]
        self.command += ["-c", str(work / "nginx.conf"), "-g"]
        self.process = subprocess.Popen([*self.command, "daemon off;"])
        until(lambda: self.status(None, READ, "nginx") == 404, 20)

    def make_operator(self, name: str, rights: str, days: int = 30) -> Path:
        """A key and a certificate of an operator, whose rights are in the file from the next reload on."""
        path = self.work / "keys" / f"{name}.crt"
        new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", str(days)]
        deploy.call("openssl", *new, "-subj", f"/CN={name}", "-keyout", path.with_suffix(".key"), "-out", path)
        with (self.work / "operators.map").open("a") as file:
            file.write(f'{deploy.fingerprint(path)} "{name} {rights}";\n' if rights else "")
        return path

    def reload(self) -> None:
        """Make nginx read its configuration again, and wait until new processes serve it."""
        before = self.workers()
        subprocess.run([*self.command, "daemon off;", "-s", "reload"], check=True, timeout=20)
        until(lambda: bool(self.workers() - before), 20)
        time.sleep(0.3)  # the old processes stop listening once they are told

    def workers(self) -> set[str]:
        """The processes of nginx that serve requests."""
        return {*Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()}

    def open(self, certificate: Path | None, server: str = "control") -> HTTPSConnection:
        """A connection to nginx, with the certificate of an operator or without one."""
        context = ssl.create_default_context(cafile=self.work / "certificates" / "ca.crt")
        if certificate is not None:
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        return HTTPSConnection(deploy.HOST, self.plan[server], context=context, timeout=20)

    def status(self, certificate: Path | None, path: str, server: str = "control", method: str = "POST") -> int:
        """The status of a request; 0 without an answer."""
        with suppress(OSError), closing(self.open(certificate, server)) as connection:
            connection.request(method, path, b"")
            return connection.getresponse().status
        return 0

    def serial(self) -> str:
        """The certificate that nginx shows to nodes."""
        with closing(self.open(None, "nginx")) as connection:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            return ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(binary_form=True) or b"")

    def close(self) -> None:
        """End nginx and the server behind it."""
        self.process.terminate()
        self.process.wait(20)
        self.upstream.shutdown()
        self.upstream.server_close()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    it = Proxy(tmp_path_factory.mktemp("proxy").resolve())
    try:
        yield it
    finally:
        it.close()


def test_an_operator_may_do_what_the_file_says(proxy: Proxy) -> None:
    anna, ben = proxy.make_operator("anna", "read start"), proxy.make_operator("ben", "read")
    clara, stranger = proxy.make_operator("clara", "admit"), proxy.make_operator("stranger", "")
    proxy.reload()
    allowed = {
        name: [proxy.status(key, path) for path in (READ, START, ADMIT)]
        for name, key in {"anna": anna, "ben": ben, "clara": clara, "stranger": stranger, "nobody": None}.items()
    }
    assert allowed == {
        "anna": [200, 200, 403],
        "ben": [200, 403, 403],
        "clara": [200, 403, 200],
        "stranger": [403, 403, 403],
        "nobody": [403, 403, 403],
    }
    own = proxy.work / "keys" / "operator.crt"
    assert [proxy.status(own, path) for path in (READ, START, ADMIT)] == [200, 200, 200]
    assert proxy.status(own, START, method="GET") == 405
    for path in (
        "/v1/control/pull-artifacts",
        "/v1/fleet/pull-messages",
        "/v1/runtime/x",
        "/",
        "/x%20start%20" + START,
    ):
        assert proxy.status(own, path) in (403, 404) and proxy.status(ben, path) in (403, 404)


def test_each_request_of_an_operator_is_in_a_log(proxy: Proxy) -> None:
    """nginx writes a line after its answer, so the test waits for both of its own lines."""
    own, log = proxy.work / "keys" / "operator.crt", proxy.work / "logs" / "operators.jsonl"
    start = len(log.read_text()) if log.exists() else 0
    assert proxy.status(own, START) == 200 and proxy.status(None, START) == 403
    deadline, done, refused = time.monotonic() + 20, None, None
    while (done is None or refused is None) and time.monotonic() < deadline:
        time.sleep(0.05)
        lines = [json.loads(line) for line in log.read_text()[start:].splitlines(keepends=True) if line.endswith("\n")]
        lines = [line for line in lines if line["request"] == f"POST {START}"]
        done = next((line for line in lines if line["operator"] == "operator read start admit"), None)
        refused = next((line for line in lines if line["operator"] == ""), None)
    assert done is not None and refused is not None
    assert (done["status"], refused["status"]) == (200, 403)
    assert done["key"] == deploy.fingerprint(own)


def test_an_operator_is_revoked_by_a_reload(proxy: Proxy) -> None:
    """Also on a connection that was opened before, which nginx closes or refuses."""
    path = proxy.work / "operators.map"
    dora = proxy.make_operator("dora", "read start")
    proxy.reload()
    with closing(proxy.open(dora)) as connection:
        connection.request("POST", START, b"")
        assert connection.getresponse().read() == START.encode()
        lines = [line for line in path.read_text().splitlines(keepends=True) if "dora" not in line]
        path.write_text("".join(lines))
        proxy.reload()
        status = 0
        with suppress(OSError):
            connection.request("POST", START, b"")
            status = connection.getresponse().status
        assert status != 200
    assert proxy.status(dora, START) == 403


def test_a_certificate_of_the_server_is_replaced_without_a_stop(proxy: Proxy) -> None:
    """From the same authority: new connections see it, and nobody notices."""
    own, before = proxy.work / "keys" / "operator.crt", proxy.serial()
    for name in ("proxy.pem", "proxy.key"):
        (proxy.work / "certificates" / name).unlink()
    deploy.certificates(proxy.work)
    assert proxy.serial() == before
    proxy.reload()
    assert proxy.serial() != before
    assert proxy.status(own, READ) == 200 and proxy.status(None, "/v1/fleet/pull-messages", "nginx") == 200
    damaged = proxy.work / "certificates" / "proxy.pem"
    good = damaged.read_text()
    damaged.write_text("damaged")
    done = subprocess.run([*proxy.command, "daemon off;", "-s", "reload"], capture_output=True, timeout=20)
    damaged.write_text(good)
    assert done.returncode != 0 and proxy.status(own, READ) == 200
