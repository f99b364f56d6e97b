"""The folder of a run: everything about it, without absolute paths, so that it can be moved.

config.toml        the complete settings
environment.json   versions and machine, from its last start
engine.json        device, workers and the measured visit that their number is based on, from its last start
references.json    code, data and files from outside the package that the run uses, with hashes; if there are any
init.json          where the initial weights come from, with their hash, if init is set
partition.json     examples per client and class, and a hash of who has which examples
metrics.jsonl      one row per round (metrics.parquet has the same rows)
audit.jsonl        the events, hash-chained
checkpoints/       the server's last states
clients/           the clients' states, for methods that keep some
best/              both as they were after the best round, if output.keep_best asks for it
model.safetensors  the final model, for load_state_dict
summary.json       the result, once the run has ended
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undrift.data.partition import Partition
from undrift.experiment.audit import Audit
from undrift.experiment.config import Config
from undrift.experiment.strict import ConfigError
from undrift.util.files import write
from undrift.util.metrics import Metrics


class RunError(RuntimeError):
    """The run cannot be started or resumed; the message says what to do."""


class RunFolder:
    """A run's folder, locked while this object is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = Metrics(path / "metrics.jsonl")
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise RunError(f"{path}: another process is running it; wait for that process or end it first") from None
        self.audit = Audit(path / "audit.jsonl")

    @classmethod
    def create(cls, path: Path, config: Config) -> "RunFolder":
        """Create the folder of a new run; the path must be new or empty."""
        check_free(path)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = cls(path)
        write(path / "config.toml", config.toml())
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

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config(self) -> Config:
        """The settings."""
        return Config.read(self.path / "config.toml")

    def note(self, name: str, content: Any) -> None:
        """Write a JSON file of the folder."""
        write(self.path / name, json.dumps(content, indent=2) + "\n")

    def summary(self) -> dict[str, Any] | None:
        """The result, or None if the run has not ended."""
        return read_summary(self.path)

    def describe(self, split: Partition) -> None:
        """Write the partition; raise if the run was started with other data."""
        if not same_data(self.path, split):
            record = {**split.describe(), "sha256": split.sha256, "scheme": str(split.scheme)}
            self.note("partition.json", {**record, "histogram": split.histogram.tolist()})

    def begin_from(self, begun: Mapping[str, Any] | None) -> None:
        """Write where the initial weights come from; raise if the run was started from others."""
        if not same_init(self.path, begun):
            self.note("init.json", begun)


def same_init(path: Path, begun: Mapping[str, Any] | None) -> bool:
    """Whether the folder has a record of these initial weights; raises if it is of others.

    Args:
        path: the run's folder.
        begun: what `describe_init` returns.
    """
    noted = read_init(path)
    if begun is None or noted is None:
        return begun is None
    before = noted["sha256"]
    if before != begun["sha256"]:
        raise RunError(
            f"{path / 'init.json'}: init = {begun['init']!r} has changed since the run was started "
            f"({begun['sha256'][:12]} instead of {before[:12]}); restore its weights, or start a new run"
        )
    return True


def read_init(path: Path) -> dict[str, Any] | None:
    """Where the initial weights of the run in a folder come from, as `describe_init` says; None if from the seed."""
    noted = path / "init.json"
    found: dict[str, Any] | None = json.loads(noted.read_text()) if noted.exists() else None
    return found


def check_free(path: Path) -> None:
    """Raise if a new run cannot have this folder."""
    if path.is_symlink() or (path.exists() and (not path.is_dir() or not _empty(path))):
        run = (path / "config.toml").is_file()
        other = f", or resume it with: undrift resume {path}" if run else ""
        raise RunError(f"{path} exists{'' if run else ' and is no run'}: name another folder with --out{other}")


def check_run(path: Path) -> None:
    """Raise if a folder contains no run."""
    if not (path / "config.toml").is_file():
        raise RunError(f"{path} is not a run: it has no config.toml; give a folder that undrift run has written")


def same_data(path: Path, split: Partition) -> bool:
    """Whether the folder has a partition.json for this partition; raises if it is for other data."""
    noted = path / "partition.json"
    if not noted.exists():
        return False
    before = json.loads(noted.read_text())["sha256"]
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
        summary: dict[str, Any] = json.loads((path / "summary.json").read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ConfigError(f"{path / 'summary.json'}: damaged; delete it and run: undrift resume {path}") from None
    return summary
