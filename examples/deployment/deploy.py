"""Start, use and stop a Flower deployment on this machine: SuperLink, SuperExec, SuperNodes, and nginx as a proxy.

Everything is in one work folder: certificates, keys, logs, runs, states, process IDs. All servers listen on the
loopback address only. The SuperNodes connect through the proxy, as they would over the internet.

    python deploy.py up && python deploy.py run && python deploy.py down
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from shutil import which
from string import Template
from typing import Annotated

import typer

HOST = "127.0.0.1"
HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SERVER, ADMITTED, STOPPED = 60, 150, 20  # seconds until a server answers, all SuperNodes are admitted, a process ends
STARTED = "\n--- started by deploy.py ---\n"
Plan = dict[str, int]  # the port of each server: superlink, nginx, node0, node1, ...

cli = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
Work = Annotated[Path, typer.Option("--work", help="The work folder.")]
WORK = Path(".deployment")


@cli.command()
def certificates(work: Work = WORK) -> None:
    """Create a test authority, and certificates for the SuperLink and the proxy; existing ones are kept."""
    folder = private(work / "certificates")
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "30"]
    authority = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    server = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "keyUsage=critical,digitalSignature"]
    server += ["-addext", "extendedKeyUsage=serverAuth", "-addext", f"subjectAltName=DNS:localhost,IP:{HOST}"]
    server += ["-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key")]
    for name, ending, options in (("ca", "crt", authority), ("superlink", "pem", server), ("proxy", "pem", server)):
        if not (folder / f"{name}.{ending}").exists():
            files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.{ending}"]
            call("openssl", *new, "-subj", f"/CN=Undrift test {name}", *options, *files)


@cli.command()
def keys(work: Work = WORK, nodes: int = 3) -> None:
    """Create a key pair per SuperNode and the secret that SuperLink and SuperExec share; existing ones are kept."""
    folder = private(work / "keys")
    for name in (f"node{i}" for i in range(nodes)):
        if not (folder / name).exists():
            call("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", name, "-f", folder / name)
    if not (folder / "superexec").exists():
        (folder / "superexec").write_bytes(secrets.token_bytes(32))


@cli.command()
def up(work: Work = WORK, nodes: int = 3, port: int = 0, proxy_port: int = 0, body_limit: str = "8m") -> None:
    """Start what is not running, and wait until every SuperNode is admitted; port 0 takes a free one.

    A killed SuperNode is refused until about a minute after its last heartbeat: it is restarted until then.
    """
    work = private(work.resolve())
    certificates(work)
    keys(work, nodes)
    plan = configure(work, nodes, {"superlink": port, "nginx": proxy_port}, body_limit)
    start_superlink(work, plan)
    nginx = which("nginx") or which("nginx", path="/usr/sbin") or sys.exit("nginx is missing: apt install nginx-light")
    launch(work, "nginx", nginx, "-e", work / "logs" / "nginx.log", "-c", work / "nginx.conf", "-g", "daemon off;")
    await_port(work, "nginx", plan)
    members = [name for name in plan if name.startswith("node")]
    end = time.monotonic() + ADMITTED
    while time.monotonic() < end:
        for number, name in enumerate(members):
            start_supernode(work, plan, name, f"partition-id={number} num-partitions={nodes}")
        if all(alive(work, name) and "SuperNode ID" in last_log(work, name) for name in members):
            return
        time.sleep(2)
    raise SystemExit(f"not all SuperNodes were admitted within {ADMITTED} s: see {work / 'logs'}")


@cli.command()
def run(work: Work = WORK, config: Annotated[list[str] | None, typer.Option("--config", "-c")] = None) -> None:
    """Run the app in this folder and show its log; -c 'num-rounds=5' overrides its pyproject.toml."""
    settings = [word for line in config or [] for word in ("-c", line)]
    command = [BIN / "flwr", "run", HERE, "tls", "--stream", *settings]
    raise typer.Exit(subprocess.run(command, env=environment(work.resolve())).returncode)  # noqa: S603


@cli.command()
def status(work: Work = WORK) -> None:
    """Show each process, the SuperLink's list of SuperNodes, and how each run is doing."""
    for name in sorted(path.name for path in (work / "pids").glob("*")):
        typer.echo(f"{name}: {'runs' if alive(work, name) else 'is dead'}")
    if alive(work, "superlink"):
        typer.echo(call(BIN / "flwr", "supernode", "list", "tls", work=work.resolve()))
    runs = sorted(path.parent for path in (work / "runs").glob("*/config.toml"))
    if runs:
        subprocess.run([BIN / "undrift", "status", *runs])  # noqa: S603


@cli.command()
def down(work: Work = WORK) -> None:
    """Stop every process by its ID, SuperNodes first and the SuperLink last, and wait until all have ended."""
    order = {"superexec": 1, "nginx": 2, "superlink": 3}
    for path in sorted((work / "pids").glob("*"), key=lambda path: order.get(path.name, 0)):
        stop(work, path.name)


def configure(work: Path, nodes: int, wanted: Plan, body_limit: str) -> Plan:
    """Choose the ports, once, and write the configurations of nginx and of the `flwr` command."""
    path = work / "deployment.json"
    known = json.loads(path.read_text()) if path.exists() else wanted
    plan = {name: known.get(name) or free_port() for name in (*wanted, *(f"node{i}" for i in range(nodes)))}
    path.write_text(json.dumps(plan))
    for folder in ("logs", "pids", "nginx", "state", "flwr", "runs"):
        private(work / folder)
    user = "user root;" if os.geteuid() == 0 else ""  # otherwise nginx's workers could not read the work folder
    values = {"work": work, "host": HOST, "user": user, "body_limit": body_limit, **plan}
    (work / "nginx.conf").write_text(Template((HERE / "nginx.conf.template").read_text()).substitute(values))
    link = {"address": f"{HOST}:{plan['superlink']}", "root-certificates": f"{work}/certificates/ca.crt"}
    lines = ["[superlink.tls]", *(f"{name} = {json.dumps(value)}" for name, value in link.items())]
    (work / "flwr" / "config.toml").write_text("\n".join(lines))
    return plan


def start_superlink(work: Path, plan: Plan) -> None:
    """Start the SuperLink and, in a process that outlives it, the SuperExec that runs the ServerApp."""
    folder, port = work / "certificates", plan["superlink"]
    tls = [f"--ssl-ca-certfile={folder}/ca.crt", f"--ssl-certfile={folder}/superlink.pem"]
    tls += [f"--ssl-keyfile={folder}/superlink.key", f"--host={HOST}", f"--port={port}"]
    safe = ["--enable-supernode-auth", "--isolation=process", "--disable-runtime-dependency-installation"]
    secret = f"--superexec-auth-secret-file={work}/keys/superexec"
    launch(work, "superlink", BIN / "flower-superlink", *tls, *safe, secret, f"--database={work}/state/superlink.db")
    await_port(work, "superlink", plan)
    where = [f"--runtime-api-address={HOST}:{port}", f"--root-certificates={folder}/ca.crt"]
    launch(work, "superexec", BIN / "flower-superexec", *where, secret)


def start_supernode(work: Path, plan: Plan, name: str, hosted: str) -> None:
    """Start a SuperNode that connects through the proxy, with a state folder; its key is registered once."""
    if not (known := work / "state" / f"{name}.registered").exists():
        call(BIN / "flwr", "supernode", "register", work / "keys" / f"{name}.pub", "tls", work=work)
        known.touch()
    where = [f"--superlink={HOST}:{plan['nginx']}", f"--root-certificates={work}/certificates/ca.crt"]
    where += [f"--host={HOST}", f"--port={plan[name]}"]
    own = f'--node-config={hosted} state-dir="{private(work / "nodes" / name)}"'
    launch(work, name, BIN / "flower-supernode", *where, f"--auth-supernode-private-key={work}/keys/{name}", own)


def launch(work: Path, name: str, *command: str | Path) -> None:
    """Start a process in its own session unless it is running, with its ID in a file and its output in a log."""
    if alive(work, name):
        return
    stop(work, name)
    words = list(map(str, command))
    with open(work / "logs" / f"{name}.log", "ab", buffering=0) as log:
        log.write(STARTED.encode())
        files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        files += [(os.POSIX_SPAWN_DUP2, log.fileno(), stream) for stream in (1, 2)]
        pid = os.posix_spawn(words[0], words, environment(work), file_actions=files, setsid=True)
    (work / "pids" / name).write_text(f"{pid} {birth(pid) or 0}")


def birth(pid: int) -> int | None:
    """When a process was started, in ticks since boot; None if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    return None


def alive(work: Path, name: str) -> int | None:
    """The ID of a running process, if it is the one that was started here."""
    path = work / "pids" / name
    pid, born = map(int, path.read_text().split()) if path.exists() else (0, 0)
    return pid if birth(pid) == born else None


def stop(work: Path, name: str) -> None:
    """End a process, by force if it does not end in time, and everything left in its session."""
    path, end = work / "pids" / name, time.monotonic() + STOPPED
    if not path.exists():
        return
    pid, born = (int(text) for text in path.read_text().split())
    if alive(work, name):
        os.kill(pid, signal.SIGTERM)
    while alive(work, name) and time.monotonic() < end:
        time.sleep(0.1)
    if birth(pid) in (None, born):  # otherwise the ID belongs to another process by now
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    path.unlink()


def last_log(work: Path, name: str) -> str:
    """The log of a process since its last start."""
    return (work / "logs" / f"{name}.log").read_text(errors="replace").rpartition(STARTED)[2]


def await_port(work: Path, name: str, plan: Plan) -> None:
    """Wait until a server answers."""
    end = time.monotonic() + SERVER
    while alive(work, name) and time.monotonic() < end:
        with socket.socket() as connection:
            connection.settimeout(1)
            if connection.connect_ex((HOST, plan[name])) == 0:
                return
        time.sleep(0.2)
    raise SystemExit(f"{name} did not start:\n{last_log(work, name)}")


def environment(work: Path) -> dict[str, str]:
    """The environment of every process: no telemetry, update checks or installs; Flower's files in the work folder."""
    off = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    own = {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "FLWR_HOME": f"{work}/flwr", "PATH": path}
    return {**os.environ, **off, **own, "UNDRIFT_RUNS": f"{work}/runs"}


def call(*command: str | Path, work: Path = WORK) -> str:
    """The output of a command; raises with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(work))  # noqa: S603
    if done.returncode:
        raise SystemExit(f"{command[0]} {command[1]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def private(folder: Path) -> Path:
    """A folder for this user only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def free_port() -> int:
    """A free port."""
    with socket.socket() as connection:
        connection.bind((HOST, 0))
        return int(connection.getsockname()[1])


if __name__ == "__main__":
    cli()
