"""The health of runs in Prometheus's text format, printed or served on the loopback address."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from math import isfinite
from pathlib import Path
from socket import AF_INET, AF_INET6
from time import time
from typing import Any

from undrift.cli.results.health import Health, health

CONTENT = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float | int | None]]


def exposition(found: Sequence[Health]) -> str:
    """The metrics of some runs, each with the label `run`.

    Args:
        found: the runs.
    """
    now = time()
    families: list[tuple[str, str, str, Callable[[Health], Samples]]] = [
        ("undrift_up", "gauge", "Whether a process is running the run.", lambda h: _one(h.state in _UP)),
        ("undrift_healthy", "gauge", "Whether the run is running, or has ended.", lambda h: _one(h.code == 0)),
        ("undrift_rounds_done", "gauge", "Rounds done.", lambda h: _one(h.round)),
        ("undrift_rounds_planned", "gauge", "Rounds in all.", lambda h: _one(h.rounds)),
        (
            "undrift_last_round_timestamp_seconds",
            "gauge",
            "When the last round was closed.",
            lambda h: _one(None if h.age is None else now - h.age),
        ),
        ("undrift_last_round_seconds", "gauge", "Duration of the last round.", lambda h: _one(h.last.get("seconds"))),
        ("undrift_score", "gauge", "Value of the judged metric.", lambda h: [({"metric": h.judged_by}, h.score)]),
        ("undrift_train_loss", "gauge", "Training loss of the last round.", lambda h: _one(h.last.get("train_loss"))),
        ("undrift_clients", "gauge", "Clients in all.", lambda h: _one(h.population)),
        ("undrift_clients_accepted", "gauge", "Uploads of the last round.", lambda h: _one(h.last.get("clients"))),
        ("undrift_clients_rejected", "gauge", "Rejected in the last round.", lambda h: _one(h.last.get("rejected"))),
        ("undrift_clients_absent", "gauge", "Without an upload in the last round.", lambda h: _one(h.missing)),
        ("undrift_clients_quarantined", "gauge", "Clients left out.", lambda h: _one(len(h.quarantine))),
        ("undrift_nodes_connected", "gauge", "Connected nodes.", lambda h: _one(_connected(h)) if h.nodes else []),
        ("undrift_node_connected", "gauge", "Whether a known node is connected.", _by_node),
        (
            "undrift_rejections_total",
            "counter",
            "Rejected uploads by reason.",
            lambda h: [({"reason": reason}, count) for reason, count in sorted(h.rejected.items())],
        ),
        ("undrift_abandoned_rounds_total", "counter", "Rounds without a server step.", lambda h: _one(h.abandoned)),
        ("undrift_disk_free_bytes", "gauge", "Free bytes on the disk of the run's folder.", lambda h: _one(h.free)),
        ("undrift_restarts_total", "counter", "How often the run was resumed.", lambda h: _one(h.restarts)),
    ]
    lines: list[str] = []
    for name, kind, help, samples in families:
        values = [(one, labels, x) for one in found for labels, x in samples(one) if x is not None]
        if values:
            lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels({'run': one.run, **labels})} {_number(x)}" for one, labels, x in values]
    return "\n".join(lines) + "\n" if lines else ""


_UP = ("running", "stalled")


def _one(value: float | int | bool | None) -> Samples:
    return [({}, None if value is None else float(value))]


def _connected(found: Health) -> int:
    return sum(bool(node.get("connected")) for node in found.nodes.values())


def _by_node(found: Health) -> Samples:
    return [({"node": node}, float(bool(facts.get("connected")))) for node, facts in found.nodes.items()]


def _labels(labels: Labels) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    if not isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def listen(folders: Sequence[Path], address: str, within: float | None = None) -> ThreadingHTTPServer:
    """A server with /metrics and /healthz, which answers 200 if all runs are well and otherwise 503; not started.

    Args:
        folders: of the runs.
        address: "127.0.0.1:9400" or "[::1]:9400"; only a loopback address is taken, because there is no authentication.
        within: see `health`.
    """
    host, _, port = address.rpartition(":")
    try:
        own = ip_address(host.strip("[]"))
        number = int(port)
    except ValueError:
        raise ValueError(f"--serve {address}: write an address and a port, 127.0.0.1:9400") from None
    if not own.is_loopback or not 0 <= number < 65536:
        raise ValueError(
            f"--serve {address}: only a loopback address is served, 127.0.0.1:9400, because there is no "
            "authentication; for other hosts put a proxy in front of it"
        )

    class Handler(BaseHTTPRequestHandler):
        """Answers from the folders as they are now."""

        server_version, sys_version = "undrift", ""
        timeout = 10

        def do_GET(self) -> None:
            """Answer a request."""
            try:
                found = [health(folder, within) for folder in folders]
            except (OSError, ValueError) as error:
                return self._answer(503, f"{error}\n")
            if self.path == "/metrics":
                return self._answer(200, exposition(found), CONTENT)
            if self.path == "/healthz":
                lines = [f"{one.run}: {one.state} {one.detail}".rstrip() for one in found]
                return self._answer(200 if all(one.code == 0 for one in found) else 503, "\n".join(lines) + "\n")
            return self._answer(404, "there are /metrics and /healthz\n")

        def _answer(self, code: int, text: str, content: str = "text/plain; charset=utf-8") -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: it is asked every few seconds."""

    class Server(ThreadingHTTPServer):
        """Of the address's family."""

        address_family = AF_INET6 if own.version == 6 else AF_INET
        daemon_threads = True

    return Server((str(own), number), Handler)
