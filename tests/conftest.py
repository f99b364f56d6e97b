"""Every test runs on one thread, as a worker does; the quick selection, and a check of what it touches."""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import torch

import quick
import thin
from support import pretend  # noqa: F401  a device, which must be there before the first backward pass of a process

torch.set_num_threads(1)
collect_ignore = ["support/operators"]  # for other processes: see examples/test_own.py
USED: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--used", action="store_true", help="fail if a module of undrift has functions and none was called"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what belongs to `make quick`, and what is left to `make sweeps`."""
    chosen = quick.chosen(items)
    for item in chosen.values():
        item.add_marker(pytest.mark.quick)
    left, unknown = thin.left(items)
    for item in left:
        item.add_marker(pytest.mark.sweep)
    missing = sorted((set(quick.TESTS) - set(chosen)) | unknown)
    if config.getoption("--used") and missing:
        raise pytest.UsageError(f"tests/quick.py or thin.py names tests that are not there: {', '.join(missing)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the files whose functions a test calls, in this process."""
    if not item.config.getoption("--used"):
        return (yield)

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_flags & 1:  # a function, not the body of a module or a class
            USED.add(frame.f_code.co_filename)

    before = sys.gettrace()
    sys.settrace(note)
    try:
        return (yield)
    finally:
        sys.settrace(before)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the controller what it called; the controller fails if some module was left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["used"] = sorted(USED)
    elif session.config.getoption("--used") and quick.untouched(USED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    USED.update(getattr(node, "workeroutput", {}).get("used", ()))


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    if config.getoption("--used"):
        for path in quick.untouched(USED):
            terminalreporter.write_line(f"no function of {path} was called", red=True)
