"""Every test runs on one thread, as a worker does; the quick selection, and a check of what it touches."""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import torch

import quick

torch.set_num_threads(1)
USED: dict[str, set[str]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--used", action="store_true", help="fail if a module of undrift has functions and none was called"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what belongs to `make quick`."""
    for item in quick.chosen(items):
        item.add_marker(pytest.mark.quick)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the files whose functions a test calls, in this process."""
    if not item.config.getoption("--used"):
        return (yield)
    called: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_flags & 1:  # a function, not the body of a module or a class
            called.add(frame.f_code.co_filename)

    before = sys.gettrace()
    sys.settrace(note)
    try:
        return (yield)
    finally:
        sys.settrace(before)
        USED[item.nodeid] = {found for name in called if (found := quick.module(name))}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the controller what it called; the controller fails if some module was left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["used"] = {test: sorted(found) for test, found in USED.items()}
    elif session.config.getoption("--used") and quick.untouched(set().union(*USED.values())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    USED.update({test: set(found) for test, found in getattr(node, "workeroutput", {}).get("used", {}).items()})


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    if config.getoption("--used"):
        for name in quick.untouched(set().union(*USED.values())):
            terminalreporter.write_line(f"no function of undrift/{name} was called", red=True)
