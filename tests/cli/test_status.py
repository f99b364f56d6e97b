"""`undrift status`: text, JSON, exit codes, Prometheus's format and the endpoint, from folders alone."""

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import AF_INET6, socket
from time import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from undrift.cli import app
from undrift.cli.results.health import health
from undrift.cli.results.prometheus import REASONS, exposition, listen
from undrift.cli.results.status import describe
from undrift.core.records.rejection import Reason, Rejection
from undrift.deploying.live_status import STATUS, LiveStatus
from undrift.engine.round.record import Record
from undrift.engine.worker.partial_sum import Visit
from undrift.runs.folder.audit import Audit
from undrift.runs.folder.files import RunFolder
from undrift.runs.loop.stall import record_stop
from undrift.runs.settings.config import Config

SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (-?[0-9.e+-]+|NaN|[+-]Inf)')


def status(*words: object) -> Any:
    return CliRunner().invoke(app, ["status", *map(str, words)])


def parsed(text: str) -> dict[str, float]:
    """The samples of a text in Prometheus's format, each family announced before its samples, which are together."""
    samples: dict[str, float] = {}
    kinds: dict[str, str] = {}
    current = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split()[2]
            assert current not in kinds, f"{current} is announced twice"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == current and kind in ("gauge", "counter")
            assert name.endswith("_total") == (kind == "counter")
            kinds[name] = kind
        else:
            found = SAMPLE.fullmatch(line)
            assert found and found[1] == current, line
            key = f"{found[1]}{{{found[2]}}}"
            assert key not in samples
            samples[key] = float(found[3])
    return samples


@contextmanager
def running(path: Path, rounds: int = 5, **facts: Any) -> Any:
    """A run in progress: two rounds are done, and a node is gone."""
    with RunFolder.create(path, Config(rounds=rounds, clients=6, task="mine")) as run:
        run.audit.write("begin", round=0)
        for round in (1, 2):
            run.metrics.append({"round": round, "clients": 3, "rejected": 1, "train_loss": 0.5, "accuracy": round / 4})
            run.audit.write("reject", round=round, client=4, reason="BOUND", detail="too far")
            run.audit.write("commit", round=round, clients=3)
        run.audit.write("abandoned", round=2, clients=1)
        run.audit.write("quarantine", client=4, round=2, until=7, reason="BOUND")
        run.audit.write("quarantine", client=5, round=1, until=3, reason="BOUND")
        live = LiveStatus(path, rounds, 6, 30.0)
        live.begin("mine-1", 2, "accuracy")
        live.set_connected([11, 12])
        live.set_hosted({11: [0, 2, 4], 12: [1, 3, 5]})
        live.set_connected([11])
        live.await_replies([11])
        live.facts |= {"absent": [[1, "node 12: no reply in time"]], "closed": time(), **facts}
        live.write()
        yield live


def test_clients_are_counted_by_node_and_over_restarts(tmp_path: Path) -> None:
    visits = (Visit(0, 5, 1.0, 0.1),)
    rejections = (Rejection(2, Reason.FAILED), Rejection(4, Reason.SIZE))
    nodes = {0: 11, 2: 11, 4: 11, 1: 12}
    record = Record(0, visits, rejections, absent=((1, "late"), (3, "no node hosts it")), nodes=nodes)
    with running(tmp_path / "run") as live:
        live.close_round(record)
        again = LiveStatus(tmp_path / "run", 5, 6, 30.0)
        again.close_round(record)
        result = status(tmp_path / "run")
    assert "node 11: GONE; 0 clients: not known yet; so far 4 rejected, 2 failed" in result.stdout
    assert "node 12: GONE; 0 clients: not known yet; so far 2 absent" in result.stdout


@pytest.mark.quick
def test_a_run_in_progress_in_words(tmp_path: Path) -> None:
    with running(tmp_path / "run"):
        result = status(tmp_path / "run")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "run: running"
    assert re.fullmatch(r"round 2 of 5, the last closed \d s ago, accuracy 0.5", lines[1])
    assert re.fullmatch(r"phase training, written \d s ago", lines[2])
    assert lines[3:] == [
        "node 11: connected, its reply is awaited; 3 clients: 0, 2, 4",
        "node 12: GONE; 3 clients: 1, 3, 5",
        "missing in the last round: client 1, node 12: no reply in time",
        "rejected so far: 2 for BOUND",
        "in quarantine: client 4, round 2, until 7, reason BOUND",
        "1 rounds without a server step",
    ]


@pytest.mark.parametrize("ahead", [60.0, 3600.0])
def test_no_age_is_below_0_s(ahead: float, tmp_path: Path) -> None:
    """As if a round were closed while the files are read, or on a machine whose clock is ahead."""
    with running(tmp_path / "run") as live:
        later = time() + ahead
        live.facts |= {"closed": later}
        live.write()
        (tmp_path / "run" / STATUS).write_text(json.dumps({**live.facts, "updated": later}))
        result, found = status(tmp_path / "run"), health(tmp_path / "run")
    assert "the last closed 0 s ago" in result.stdout and "written 0 s ago" in result.stdout
    assert str(found.age) == str(found.quiet) == "0.0"


def test_exit_codes_for_a_health_check(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(folder) as live:
        assert status(folder, "--within", 60).exit_code == 0
        live.facts |= {"closed": time() - 100, "started": time() - 200}
        live.write()
        stalled = status(folder, "--within", 60)
        assert stalled.exit_code == 1
        assert re.search(r"stalled: no round was closed for 1\d\d s \(limit 60 s\)", stalled.stdout)
        assert status(folder).exit_code == 0, "the default is 600 s"
    died = status(folder)
    assert died.exit_code == 2
    assert "failed: its process has died without a result; to resume: give the same flwr run again" in died.stdout
    with pytest.raises(OSError, match="no route"), LiveStatus(folder, 5, 6, 30.0).outcome():
        raise OSError("no route")
    failed = status(folder)
    assert failed.exit_code == 2 and "failed: OSError: no route; to resume: give the same" in failed.stdout
    (folder / "summary.json").write_text(json.dumps({"rounds": 5, "judged_by": "accuracy"}))
    assert status(folder).exit_code == 0


def test_a_run_that_is_no_deployment(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", Config(rounds=3)) as run:
        run.audit.write("begin", round=0)
        assert status(tmp_path / "run").stdout == "run: running\nround 0 of 3\n"
    assert f"to resume: undrift resume {tmp_path / 'run'}" in status(tmp_path / "run").stdout


@pytest.mark.parametrize(
    ("error", "said"), [(ValueError("red"), "ValueError: red"), (KeyboardInterrupt(), "it was int")]
)
def test_a_run_that_stopped_says_why(error: BaseException, said: str, tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", Config(rounds=3)) as run:
        run.audit.write("begin", round=0)
        with suppress(ValueError, KeyboardInterrupt), record_stop(run.audit.path):
            raise error
    assert said in status(tmp_path / "run").stdout and "died" not in status(tmp_path / "run").stdout
    with RunFolder.open(tmp_path / "run") as run:
        run.audit.write("resume", round=0)
    assert "its process has died without a result" in status(tmp_path / "run").stdout


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    result = status(tmp_path)
    assert result.exit_code == 2 and "is not a run: it has no config.toml" in result.stderr


def test_damaged_files_do_not_matter(tmp_path: Path) -> None:
    with running(tmp_path / "run"):
        (tmp_path / "run" / STATUS).write_text('{"phase": ')
        with open(tmp_path / "run" / "audit.jsonl", "a") as log:
            log.write('[1]\n{"event": "rej')
        found = health(tmp_path / "run")
    assert found.state == "running" and found.rejected == {"BOUND": 2} and found.nodes == {}


def test_json(tmp_path: Path) -> None:
    with running(tmp_path / "run"):
        facts = json.loads(status(tmp_path / "run", "--json").stdout)
        both = json.loads(status(tmp_path / "run", tmp_path / "run", "--json").stdout)
    assert facts["state"] == "running" and facts["nodes"]["12"]["connected"] is False
    assert facts["rejected"] == {"BOUND": 2} and facts["quarantine"] == {"4": "round 2, until 7, reason BOUND"}
    assert len(both) == 2


@pytest.mark.quick
def test_metrics_in_the_format_of_prometheus(tmp_path: Path) -> None:
    with running(tmp_path / 'a "run"'):
        samples = parsed(status(tmp_path / 'a "run"', "--prometheus").stdout)
        text = exposition([health(tmp_path / 'a "run"')])
    run = r'run="a \"run\""'
    assert samples[f"undrift_up{{{run}}}"] == samples[f"undrift_healthy{{{run}}}"] == 1
    assert samples[f"undrift_rounds_done{{{run}}}"] == 2 and samples[f"undrift_rounds_planned{{{run}}}"] == 5
    assert samples[f'undrift_score{{metric="accuracy",{run}}}'] == 0.5
    assert samples[f'undrift_rejections_total{{reason="BOUND",{run}}}'] == 2
    assert samples[f'undrift_rejections_total{{reason="SIZE",{run}}}'] == 0, "a counter begins at 0"
    assert samples[f'undrift_node_absent_total{{node="12",{run}}}'] == 0
    assert set(REASONS) == set(Reason.__members__)
    assert samples[f"undrift_nodes_connected{{{run}}}"] == 1
    assert samples[f'undrift_node_connected{{node="12",{run}}}'] == 0
    assert samples[f"undrift_clients_quarantined{{{run}}}"] == samples[f"undrift_abandoned_rounds_total{{{run}}}"] == 1
    assert abs(samples[f"undrift_last_round_timestamp_seconds{{{run}}}"] - time()) < 60
    parser = pytest.importorskip("prometheus_client.parser")
    families = list(parser.text_string_to_metric_families(text))
    assert sum(len(family.samples) for family in families) == len(samples)


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    with running(tmp_path / "run"):
        (tmp_path / "run" / "metrics.jsonl").write_text('{"round": 1, "train_loss": NaN, "seconds": Infinity}\n')
        text = exposition([health(tmp_path / "run")])
    assert 'undrift_train_loss{run="run"} NaN' in text and 'undrift_last_round_seconds{run="run"} +Inf' in text
    parsed(text)


def test_all_absent_clients_are_counted_although_a_hundred_are_named(tmp_path: Path) -> None:
    with running(tmp_path / "run", absent=[[client, "no reply"] for client in range(100)]):
        with (tmp_path / "run" / "metrics.jsonl").open("a") as rows:
            rows.write(json.dumps({"round": 3, "clients": 1, "absent": 250}) + "\n")
        found = health(tmp_path / "run")
    assert found.missing == 250 and 'undrift_clients_absent{run="run"} 250' in exposition([found])
    assert "\nand 230 more" in describe(found)


def test_an_address_of_ipv6(tmp_path: Path) -> None:
    try:
        with socket(AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listen([tmp_path], "[::1]:0") as server:
        assert server.server_address[0] == "::1"


def test_the_endpoint(tmp_path: Path) -> None:
    with running(tmp_path / "run"), listen([tmp_path / "run"], "127.0.0.1:0") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        base = f"http://127.0.0.1:{server.server_port}"
        try:
            with urlopen(f"{base}/metrics") as reply:
                assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                parsed(reply.read().decode())
            with urlopen(Request(f"{base}/metrics", headers={"Accept": "application/openmetrics-text"})) as reply:
                assert reply.headers["Content-Type"].startswith("application/openmetrics-text")
                assert reply.read().endswith(b"# EOF\n")
            with urlopen(f"{base}/healthz") as reply:
                assert reply.read() == b"run: running\n"
            with pytest.raises(HTTPError) as missing:
                urlopen(f"{base}/")
            (tmp_path / "run" / "config.toml").unlink()
            with pytest.raises(HTTPError) as ill:
                urlopen(f"{base}/healthz")
        finally:
            server.shutdown()
            thread.join()
        assert missing.value.code == 404 and ill.value.code == 503
        missing.value.close()
        ill.value.close()


@pytest.mark.parametrize("address", ["0.0.0.0:9400", "example.org:80", "9400", "127.0.0.1:", "10.0.0.1:9400"])
def test_only_the_loopback_address_is_served(address: str, tmp_path: Path) -> None:
    result = status(tmp_path, "--serve", address)
    assert result.exit_code == 2 and "127.0.0.1:9400" in result.stderr


def test_a_client_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path / "run", absent=[[1, "a\nundrift_up 1\x1b[2J"]]):
        text = describe(health(tmp_path / "run"))
    assert "\x1b" not in text and "\nundrift_up" not in text


def test_it_is_light(tmp_path: Path) -> None:
    Audit(tmp_path / "audit.jsonl")
    code = "import sys; from undrift.cli.results import health, prometheus, status; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


def test_a_personal_run_without_a_result_is_judged_by_its_personal_models(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", Config(rounds=3)) as run:
        run.metrics.append({"round": 1, "clients": 3, "train_loss": 0.5, "accuracy": 0.3, "personal_accuracy": 0.8})
    found = health(tmp_path / "run")
    assert (found.judged_by, found.score) == ("personal_accuracy", 0.8)
