"""Settings that a second call leaves out: a run of other settings is refused and stays as it is."""

from pathlib import Path
from typing import Any

import pytest

from experiment_support import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.experiment import resume, start
from undrift.experiment.folder import RunError
from undrift.experiment.verify import verify

pytestmark = pytest.mark.usefixtures("tiny")

SETTINGS: dict[str, Any] = {**RUN, "output": {"lens_every": 0}}


def without(*names: str) -> dict[str, Any]:
    """The settings without some keys."""
    return {key: value for key, value in SETTINGS.items() if key not in names}


def stop(row: dict[str, Any]) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("given", "difference"),
    [
        ({"cohort": 3}, "cohort: 3 there, 8 given"),
        ({"model": "mlp"}, "model: 'mlp' there, 'small-cnn' given"),
        ({"clients": 5}, "clients: 5 there, 6 given"),
    ],
)
def test_a_run_is_not_resumed_with_a_setting_left_out(given: dict[str, Any], difference: str, tmp_path: Path) -> None:
    folder, left = tmp_path / "run", without(*given)
    with pytest.raises(KeyboardInterrupt):
        start(folder=folder, watch=stop, **left | given)
    before = (folder / "config.toml").read_bytes()
    with pytest.raises(RunError, match=rf"contains a run with other settings \({difference}\); name another folder"):
        start(folder=folder, resume=True, **left)
    assert (folder / "config.toml").read_bytes() == before and not verify(folder).problems
    whole = start(folder=tmp_path / "whole", **left | given)
    assert resume(folder).sha256 == whole.sha256
