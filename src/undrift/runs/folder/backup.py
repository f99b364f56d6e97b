"""A run's folder in one file, also of a run in progress, and back.

Files that are replaced as a whole are linked into a temporary folder, those that grow are copied, the log first; the
result is verified like any run's folder. If a round was stored meanwhile and the parts do not fit, it is done again.
"""

import os
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from time import sleep
from typing import Any
from uuid import uuid4

from undrift.runs.folder.audit_checks import ARRIVALS
from undrift.runs.folder.files import RunError, RunFolder, check_free, check_run
from undrift.runs.folder.verify import LOG, Verified, verify
from undrift.util.shell import SERVER_LOG
from undrift.util.storage.files import is_temporary, make_private, read, replacing, write

_GROWING = ("metrics.jsonl", ARRIVALS, "lens.jsonl", SERVER_LOG)
_ATTEMPTS = 20


def backup(folder: Path | str, out: Path | str) -> Verified:
    """Write a run's folder, in progress or not, into a file; what cannot be verified is not stored.

    Args:
        folder: the run's folder.
        out: the file to write, a tar; it must not exist.
    """
    folder, out = Path(folder), Path(out)
    check_run(folder)
    if out.exists():
        raise RunError(f"{out} exists: name another file")
    for attempt in range(_ATTEMPTS):
        stage = folder / f".backup.{uuid4().hex[:12]}.new"
        try:
            _stage(folder, stage)
            found = verify(stage)
            if found.intact:
                with replacing(out) as temporary:
                    _pack(stage, temporary)
                return found
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        sleep(0.05 * attempt)
    raise RunError(f"{folder}: not stored, it cannot be verified: {found.problems[0]}")


def restore(file: Path | str, folder: Path | str) -> Verified:
    """Write the folder of a run from a backup, and note it in its audit log.

    Args:
        file: what `backup` has written.
        folder: the folder to make; new or empty.
    """
    file, folder = Path(file), Path(folder)
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as temporary:
        temporary.mkdir(mode=0o700)
        try:
            with tarfile.open(file) as packed:
                unpack(packed, temporary)
        except (OSError, tarfile.TarError) as error:
            raise RunError(f"{file}: not a backup of a run, or damaged: {error}") from None
        check_run(temporary)
        found = verify(temporary)
        if not found.intact:
            raise RunError(f"{file}: not what a run wrote: {found.problems[0]}")
    with RunFolder.open(folder) as run:
        run.audit.write("restore", head=found.head)
    return found


def _stage(folder: Path, stage: Path) -> None:
    """Collect the files of a run in a folder beside them."""
    make_private(stage)
    for name in (LOG, *_GROWING):  # the log first: it has whatever the others have
        if (folder / name).is_file():
            data = read(folder / name)
            write(stage / name, data[: data.rfind(b"\n") + 1], sync=False)
    for place, folders, names in os.walk(folder):
        inside = Path(place).relative_to(folder)
        folders[:] = [name for name in folders if not is_temporary(Path(name))]
        make_private(stage / inside)
        for name in names:
            if is_temporary(Path(name)) or (stage / inside / name).exists() or name == "lock":
                continue
            with suppress(FileNotFoundError):  # a run in progress deletes old ones
                _link(Path(place) / name, stage / inside / name)


def _link(path: Path, to: Path) -> None:
    """A file under a second name, or a copy where there are no hard links."""
    try:
        os.link(path, to, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(path, to, follow_symlinks=False)


def unpack(packed: tarfile.TarFile, folder: Path) -> None:
    """Extract an archive of files and folders; symbolic links and places outside are refused.

    Args:
        packed: the archive.
        folder: where its files go.
    """
    for member in packed.getmembers():
        inside = all(not x.is_absolute() and ".." not in x.parts for x in map(PurePosixPath, _paths(member)))
        if not inside or not (member.isfile() or member.isdir() or member.islnk()):
            raise tarfile.ReadError(f"{member.name} is not a file or folder inside it")
    # Python before 3.11.4 has no filters, and later versions warn without one.
    filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    packed.extractall(folder, **filters)  # noqa: S202 - checked above


def _paths(member: tarfile.TarInfo) -> list[str]:
    """Where a member of an archive is, and the file that it is a second name of."""
    return [member.name, member.linkname] if member.islnk() else [member.name]


def _pack(stage: Path, out: Path) -> None:
    """Write a folder into a file, on disk before it returns."""
    with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with tarfile.open(fileobj=file, mode="w") as packed:
            packed.add(stage, arcname=".")
        file.flush()
        os.fsync(file.fileno())
