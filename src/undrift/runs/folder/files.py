"""The folder of a run: everything about it, without absolute paths, so that it can be moved.

config.toml        the complete settings
environment.json   versions and machine, from its last start
engine.json        device, workers and the measured visit that their number is based on, from its last start
references.json    code, data and files from outside the package that the run uses, with hashes; if there are any
init.json          where the initial weights come from, with their hash, if init is set
partition.json     examples per client and class, and a hash of who has which examples
metrics.jsonl      one row per round (metrics.parquet has the same rows)
arrivals.jsonl     of a run with a clock: who began, arrived and was accepted up to each step: see undrift replay
audit.jsonl        the events, hash-chained
checkpoints/       the server's last states
clients/           the clients' states, for methods that keep some
best/              both as they were after the best round, if output.keep_best is set
model.safetensors  the final model, for load_state_dict
summary.json       the result, once the run has ended
deployment.json    of a deployment: the run's name on the nodes, and its options; log.txt, status.json: of its server
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from undrift.core.records.types import ServerState
from undrift.data.partitions.draw import Partition
from undrift.runs.folder.audit import RESTORE, Audit
from undrift.runs.folder.audit_checks import ARRIVALS, DESCRIBING, FOLDERS, check_open, described_files, noted_files
from undrift.runs.folder.checkpoint import Checkpoints
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.util.shell import DEPLOYMENT_RECORD, SERVER_LOG, resume_command
from undrift.util.storage.files import StorageError, delete_temporary, make_private, storing, write
from undrift.util.storage.metrics import Metrics
from undrift.util.storage.summary import why_no_run
from undrift.util.system import lock


class RunError(RuntimeError):
    """The run cannot be started or resumed; the message names the remedy."""


class RunLockedError(RunError):
    """Another process is running it."""


class RunFolder:
    """A run's folder, locked while this object is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        check_links(path)
        self.metrics, self.arrivals = Metrics(path / "metrics.jsonl"), Metrics(path / ARRIVALS)
        self._text = 0, sha256()  # how far the server's log is hashed
        with storing(path / "lock"):
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            lock(self._lock)
        except OSError:
            os.close(self._lock)
            text = f"{path}: another process is running it; wait for that process or stop it first"
            raise RunLockedError(text) from None
        try:
            self.audit = Audit(path / "audit.jsonl")
            check_open(path, self.audit.log)
            self.described = noted_files(self.audit.log)
            for place in (path, *(path / name for name in FOLDERS)):
                delete_temporary(place)
        except BaseException:
            os.close(self._lock)
            raise

    @classmethod
    def create(cls, path: Path, config: Config) -> "RunFolder":
        """Create the folder of a new run; the path must be new or empty."""
        check_free(path)
        make_private(path)
        folder = cls(path)
        try:
            folder.write("config.toml", config.toml())
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an existing run."""
        check_run(path)
        return cls(path)

    def close(self) -> None:
        """Unlock it."""
        os.close(self._lock)

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, StorageError):
            error.then = f"resume with: {resume_command(self.path)}"

    @property
    def config(self) -> Config:
        """The settings."""
        return Config.read(self.path)

    def note(self, name: str, content: Any) -> None:
        """Write a JSON file of the folder."""
        self.write(name, as_json(content))

    def write(self, name: str, data: bytes | str) -> None:
        """Write a file of the folder; the folder is never a symbolic link.

        A change of a file that describes the run is in the log before.
        """
        if name in DESCRIBING and self.described:
            found = sha256(data.encode() if isinstance(data, str) else data).hexdigest()
            if self.described.get(name) != found:
                self.audit.write("file", files={name: found})
                self.described[name] = found
        write(self.path / name, data, follow=False)

    def begin(self, event: str, **facts: Any) -> None:
        """Write the event of a start, with the hashes of the files that describe the run.

        Args:
            event: "begin" or "resume".
            facts: more for the log.
        """
        self.described = described_files(self.path)
        self.audit.write(event, **facts, files=self.described)

    def commit(self, kept: Checkpoints, state: ServerState, event: str = "commit", **facts: Any) -> None:
        """Store a checkpoint: its state, then the event, then its manifest, which contains the hash of the event.

        Args:
            kept: where checkpoints are stored.
            state: the server's.
            event: "commit" or "best".
            facts: more for the log.
        """
        seals = {"rows": self.metrics.seal(), **self._seal_arrivals(), **self.seal_text()} if event == "commit" else {}
        kept.save(state, lambda found: self.audit.write(event, round=state.round, **facts, sha256=found, **seals))

    def rewind(self, round: int) -> None:
        """Delete the rows after a round, because these rounds will be run again."""
        self.metrics.rewind(round)
        if self.arrivals.path.exists():
            self.arrivals.rewind(round)

    def _seal_arrivals(self) -> dict[str, Any]:
        """The length and hash of the trace of arrivals so far, if there is one."""
        return {"arrivals": self.arrivals.seal()} if self.arrivals.path.exists() else {}

    def seal_text(self) -> dict[str, Any]:
        """The length and hash of the server's log so far, if there is one."""
        path = self.path / SERVER_LOG
        if not path.is_file():
            return {}
        with open(path, "rb") as file:
            file.seek(self._text[0])
            self._text[1].update(new := file.read())
        self._text = self._text[0] + len(new), self._text[1]
        return {"text": {"bytes": self._text[0], "sha256": self._text[1].hexdigest()}}

    def end(self, files: Mapping[str, bytes], fingerprint: str) -> None:
        """Store the result: the event with the files' hashes, then the files in their order.

        Args:
            files: their contents; the last one is the summary.
            fingerprint: of the final state.
        """
        hashes = {name: sha256(data).hexdigest() for name, data in files.items()}
        self.audit.write("end", sha256=fingerprint, files=hashes)
        for name, data in files.items():
            self.write(name, data)

    def describe(self, split: Partition) -> None:
        """Write the partition; raise if the run was started with other data."""
        if not same_data(self.path, split):
            record = {**split.describe(), "sha256": split.sha256, "scheme": str(split.scheme)}
            self.note("partition.json", {**record, "histogram": split.histogram.tolist()})

    def begin_from(self, begun: Mapping[str, Any] | None) -> None:
        """Write where the initial weights come from; raise if the run was started from others."""
        if not same_init(self.path, begun):
            self.note("init.json", begun)


def as_json(content: Any) -> bytes:
    """The content of a JSON file."""
    return (json.dumps(content, indent=2) + "\n").encode()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A file of the folder that does not have the content it should have is a `RunError` that names it.

    Args:
        path: the file that the block reads.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise RunError(f"{path}: damaged; {RESTORE}") from None


def read_json(path: Path) -> Any:
    """The content of a JSON file of the folder, None if there is no such file; for the block of `reading`."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def check_links(path: Path) -> None:
    """Raise if a run's folder, or anything directly in it, is a symbolic link: links are not followed."""
    for item in (path, *path.iterdir()):
        if item.is_symlink():
            raise RunError(
                f"{item}: it is a symbolic link, which is not followed; put the {'run' if item == path else 'file'} "
                "itself there"
            )


def same_init(path: Path, begun: Mapping[str, Any] | None) -> bool:
    """Whether the folder has a record of these initial weights; raises if it is of others.

    Args:
        path: the run's folder.
        begun: what `describe_init` returns.
    """
    noted = read_init(path)
    if begun is None or noted is None:
        return begun is None
    before = str(noted["sha256"])
    if before != begun["sha256"]:
        raise RunError(
            f"{path / 'init.json'}: init = {begun['init']!r} has changed since the run was started "
            f"({begun['sha256'][:12]} instead of {before[:12]}); restore its weights, or start a new run"
        )
    return True


def read_init(path: Path) -> dict[str, Any] | None:
    """Where the initial weights of the run in a folder come from, as `describe_init` has it; None if from the seed."""
    with reading(path / "init.json"):
        noted = read_json(path / "init.json")
        return None if noted is None else {**noted, "sha256": str(noted["sha256"])}


def check_free(path: Path, python: bool = False) -> None:
    """Raise if a new run cannot have this folder.

    Args:
        path: the folder.
        python: whether the advice is for a caller in Python, not for the command line.
    """
    if path.is_symlink() or (path.exists() and (not path.is_dir() or not _empty(path))):
        run = (path / "config.toml").is_file()
        again = "continue its run with resume=True" if python else f"resume it with: {resume_command(path)}"
        other = ("" if python else " with --out") + (f", or {again}" if run else "")
        raise RunError(f"{path} exists{'' if run else ' and is not a run'}: name another folder{other}")


def check_run(path: Path) -> None:
    """Raise if a folder contains no run."""
    if reason := why_no_run(path):
        raise RunError(reason)


def same_data(path: Path, split: Partition) -> bool:
    """Whether the folder has a partition.json for this partition; raises if it is for other data."""
    noted = path / "partition.json"
    with reading(noted):
        record = read_json(noted)
        before = "" if record is None else str(record["sha256"])
    if record is None:
        return False
    if before != split.sha256:
        raise RunError(
            f"{noted}: the clients' data are not the run's: they differ from those the run was started with "
            f"({split.sha256[:12]} instead of {before[:12]}); point UNDRIFT_DATA to the same files"
        )
    return True


def _empty(path: Path) -> bool:
    """Whether a folder is empty, or contains only leftovers of a run that was killed before it wrote its first file."""
    return all(item.name == "lock" or item.name.endswith(".new") for item in path.iterdir())


def read_summary(path: Path) -> dict[str, Any] | None:
    """The result of the run in a folder, or None if it has not ended."""
    try:
        summary: dict[str, Any] = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise ConfigError(f"{path / 'summary.json'}: damaged; delete it and run: {resume_command(path)}") from None
    return summary


def refuse_deployed(folder: Path, instead: str) -> None:
    """Raise if a run is a deployment, whose clients' data and states are not on this machine.

    Args:
        folder: the run's folder.
        instead: what to do instead.
    """
    if (folder / DEPLOYMENT_RECORD).is_file():
        raise RunError(f"{folder} is a deployment: its clients' data and states are on its nodes; {instead}")
