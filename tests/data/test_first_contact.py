"""What a newcomer's first data function, table and command meet."""

import signal
import subprocess
import sys
import warnings
from time import sleep

import numpy as np
import pytest

from undrift.data.own.resolve import convert
from undrift.data.partitions.draw import partition
from undrift.runs.settings.engine import EngineConfig, resolve_engine
from undrift.runs.settings.schema import ConfigError


@pytest.mark.quick
def test_a_function_may_return_inputs_targets_and_owners() -> None:
    inputs, targets, owners = np.ones((40, 3)), np.arange(40) % 2, np.array([f"site{i % 4}" for i in range(40)])
    made = convert((inputs, targets, owners), "mine")
    assert made.train.owners is not None and len(np.unique(made.train.owners)) == 4


@pytest.mark.quick
def test_arrays_that_may_not_be_written_to_are_copied() -> None:
    """pandas gives such views, and torch warns about each of them."""
    inputs, targets = np.ones((40, 3), dtype=np.float32), np.arange(40) % 2
    inputs.flags.writeable = targets.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(convert((inputs, targets), "mine").train) == 36


@pytest.mark.quick
def test_natural_names_what_works_on_a_table() -> None:
    with pytest.raises(ValueError, match=r"--partition column:NAME; or return \(inputs, targets, owners\)"):
        partition("natural", np.zeros(8, dtype=np.int64), clients=2, seed=0)


@pytest.mark.quick
def test_an_engine_that_is_not_installed_is_noticed_before_data_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.runs.settings.engine.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"engine: ray is not installed: pip install 'undrift\[ray\]'"):
        resolve_engine(EngineConfig(name="ray"))
    assert resolve_engine(EngineConfig()).name == "local"


def test_an_interrupt_while_the_command_starts_is_quiet() -> None:
    """The import of the command line is replaced by a long one, which an interrupt ends."""
    code = (
        "import signal, sys, types, time; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "m = types.ModuleType('undrift.cli'); "
        "m.__getattr__ = lambda name: (print('importing', flush=True), time.sleep(30)); "
        "sys.modules['undrift.cli'] = m; import undrift.__main__ as start; start.main()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"importing\n"
    sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and not errors
