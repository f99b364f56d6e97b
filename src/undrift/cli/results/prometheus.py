"""The health of runs as metrics for Prometheus, printed or served on the loopback address."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from socket import AF_INET, AF_INET6
from time import time
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from undrift.cli.results.health import Health, health

REASONS = (
    *("SENDER", "DUPLICATE", "ROUND", "EMPTY", "IDLE", "COUNT", "TREE", "SHAPE", "DTYPE", "FINITE", "SIZE", "WEIGHT"),
    *("FAILED", "MASKED", "SHARE", "STALE", "VERSION"),
)
"""The names of all reasons, as in `undrift.core`, which would load torch: a counter that begins at 0 can be watched."""

_NONE = dict.fromkeys(REASONS, 0.0)

_PER_RUN: Mapping[str, tuple[str, Callable[[Health], float | None]]] = {
    "up": ("Whether a process is running the run.", lambda run: run.state in ("running", "stalled")),
    "healthy": ("Whether the run is running, or has ended.", lambda run: run.code == 0),
    "rounds_done": ("Rounds done.", lambda run: run.round),
    "rounds_planned": ("Rounds in all.", lambda run: run.rounds),
    "last_round_timestamp_seconds": (
        "When the last round was closed.",
        lambda run: None if run.age is None else time() - run.age,
    ),
    "last_round_seconds": ("Duration of the last round.", lambda run: run.last.get("seconds")),
    "train_loss": ("Training loss of the last round.", lambda run: run.last.get("train_loss")),
    "clients": ("Clients in all.", lambda run: run.population),
    "clients_accepted": ("Uploads of the last round.", lambda run: run.last.get("clients")),
    "clients_rejected": ("Rejected in the last round.", lambda run: run.last.get("rejected")),
    "clients_absent": ("Without an upload in the last round.", lambda run: run.missing),
    "clients_quarantined": ("Clients left out.", lambda run: len(run.quarantine)),
    "nodes_connected": ("Connected nodes.", lambda run: sum(_connections(run).values()) if run.nodes else None),
    "disk_free_bytes": ("Free bytes on the disk of the run's folder.", lambda run: run.free),
    "abandoned_rounds_total": ("Rounds without a server step.", lambda run: run.abandoned),
    "restarts_total": ("How often the run was resumed.", lambda run: run.restarts),
}
"""Metrics with one value per run: name -> what it is, and its value; None leaves the run out."""

_LABELLED: Mapping[str, tuple[str, str, Callable[[Health], Mapping[str, float | None]]]] = {
    "score": ("Value of the judged metric.", "metric", lambda run: {run.judged_by: run.score}),
    "node_connected": ("Whether a known node is connected.", "node", lambda run: _connections(run)),
    "rejections_total": ("Rejected uploads by reason.", "reason", lambda run: {**_NONE, **run.rejected}),
    "node_accepted_total": ("Accepted uploads by node.", "node", lambda run: _counts(run, "accepted")),
    "node_rejected_total": ("Rejected clients by node.", "node", lambda run: _counts(run, "rejected")),
    "node_failed_total": ("Failed trainings by node.", "node", lambda run: _counts(run, "failed")),
    "node_absent_total": ("Missing replies by node.", "node", lambda run: _counts(run, "absent")),
}
"""Metrics with several values per run: name -> what it is, a label, and the value for each value of the label."""


def _counts(run: Health, name: str) -> dict[str, float]:
    return {node: float(facts.get(name, 0)) for node, facts in run.nodes.items()}


def _connections(run: Health) -> dict[str, float]:
    return {node: float(bool(facts.get("connected"))) for node, facts in run.nodes.items()}


class RunMetrics(Collector):
    """The metrics of some runs, each with the label `run`.

    Args:
        runs: the health of each.
    """

    def __init__(self, runs: Sequence[Health]) -> None:
        self.runs = runs

    def collect(self) -> Iterable[Metric]:
        """The metrics that have a value."""
        for name, (text, value) in _PER_RUN.items():
            yield from _family(name, text, ("run",), [((run.run,), value(run)) for run in self.runs])
        for name, (text, label, values) in _LABELLED.items():
            samples = [((run.run, key), x) for run in self.runs for key, x in sorted(values(run).items())]
            yield from _family(name, text, ("run", label), samples)


def _family(
    name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float | None]]
) -> Iterator[Metric]:
    """A metric of some runs, if any of them has a value."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(f"undrift_{name}", text, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, float(number))
    if family.samples:
        yield family


def exposition(runs: Sequence[Health]) -> str:
    """The metrics of some runs in Prometheus's text format.

    Args:
        runs: the health of each.
    """
    return generate_latest(RunMetrics(runs)).decode()


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
                runs = [health(folder, within) for folder in folders]
            except (OSError, ValueError) as error:
                return self._answer(503, f"{error}\n".encode())
            if self.path == "/metrics":
                encode, content = choose_encoder(self.headers.get("Accept", ""))
                return self._answer(200, encode(RunMetrics(runs)), content)
            if self.path == "/healthz":
                lines = [f"{run.run}: {run.state} {run.detail}".rstrip() + "\n" for run in runs]
                return self._answer(200 if all(run.code == 0 for run in runs) else 503, "".join(lines).encode())
            return self._answer(404, b"there are /metrics and /healthz\n")

        def _answer(self, code: int, body: bytes, content: str = "text/plain; charset=utf-8") -> None:
            self.send_response(code)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: there is a request every few seconds."""

    class Server(ThreadingHTTPServer):
        """Of the address's family."""

        address_family = AF_INET6 if own.version == 6 else AF_INET
        daemon_threads = True

    return Server((str(own), number), Handler)
