"""Every test runs on one thread, as a worker does; the marks of tests are resolved, see support/selection.py."""

import gc
import sys
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any

import pytest
import torch

from support import optional, pretend, selection  # noqa: F401  a device must be there before a process's first backward pass

torch.set_num_threads(1)
gc.disable()  # until the tests are collected: hardly anything goes away before, and looking for it takes a sixth
collect_ignore = ["support/operators", "support/light_fleet.py"]  # for processes of their own
USED: set[str] = set()
CALLS = 20_000
"""How many calls of a test are noted: a long one repeats itself, and noting each call doubles its time."""
TURN = pytest.StashKey[int]()
CHANGED = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--used", action="store_true", help="fail if a package of undrift has functions and none was called"
    )
    parser.addoption("--about", default="", help="take only cases of these methods and blocks, with commas")


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, Any] = getattr(config, "workerinput", {})
    config.stash[TURN] = given["turn"] if given else selection.turn()
    config.stash[CHANGED] = given["changed"] if given else selection.changed()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Every worker chooses as its controller does."""
    node.workerinput.update(turn=node.config.stash[TURN], changed=node.config.stash[CHANGED])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection.resolve(items, config.stash[TURN], set(config.stash[CHANGED]))  # type: ignore[index]
    names = [name for name in config.getoption("--about").split(",") if name]
    if names:
        left = [item for item in items if not selection.about(item, names)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if selection.about(item, names)]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays: the garbage collector need not look at it again during the tests."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file of tests that needs an optional library which is not installed."""
    report = yield
    if report.outcome == "failed" and (name := optional.missing_library(str(report.longrepr))):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {name} is not installed")
    return report


@pytest.fixture(scope="session")
def turn(pytestconfig: pytest.Config) -> int:
    """A number that changes with the commit, for tests that choose one case of many."""
    return pytestconfig.stash[TURN]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the files whose functions a test calls, in this process."""
    if not item.config.getoption("--used"):
        return (yield)

    calls, before = 0, sys.gettrace()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1
        if frame.f_code.co_flags & 1:  # a function, not the body of a module or a class
            USED.add(frame.f_code.co_filename)
        if calls == CALLS:
            sys.settrace(before)

    sys.settrace(note)
    try:
        return (yield)
    finally:
        sys.settrace(before)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the controller what it called; the controller fails if some package was left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["used"] = sorted(USED)
    elif session.config.getoption("--used") and selection.uncalled(USED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    USED.update(getattr(node, "workeroutput", {}).get("used", ()))


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """What repeats this choice of cases: a header would not be shown with -q."""
    terminalreporter.write_line(f"cases of sweeps: UNDRIFT_SWEEP={config.stash[TURN]}")
    changed = config.stash[CHANGED]
    if changed:
        terminalreporter.write_line(
            f"and all cases of {len(changed)} changed files, from {changed[0]} to {changed[-1]}"
        )
    if config.getoption("--used"):
        for folder in selection.uncalled(USED):
            terminalreporter.write_line(f"no function of undrift/{folder} was called", red=True)
