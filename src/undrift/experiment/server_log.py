"""The log of a deployment's server in its run folder: one line per message, with time and level."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER_LOG = "log.txt"


class LineFormatter(logging.Formatter):
    """One line per message, with the time in UTC and the level; control characters and tracebacks are left out."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; without a traceback, because the message says what happened."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        text = f"{moment} {record.levelname} {record.getMessage()}"
        return "".join(character if character.isprintable() else " " for character in text).rstrip()


@contextmanager
def server_log(path: Path, name: str = "flwr") -> Iterator[None]:
    """Also write what is logged under a name to a file, until the block ends; an error that ends it is logged too.

    Args:
        path: the file; lines are added to one that is there.
        name: the logger's name.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(LineFormatter())
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        try:
            yield
        except BaseException as error:
            handler.handle(logger.makeRecord(name, logging.ERROR, "", 0, "%s", (_reason(error),), None))
            raise
        finally:
            logger.removeHandler(handler)


def _reason(error: BaseException) -> str:
    """Why a run was ended, in one line."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "stopped by a signal"
    return f"failed with {type(error).__name__}: {error}"
