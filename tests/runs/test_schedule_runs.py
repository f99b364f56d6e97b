"""Runs with a schedule: settings, resume in the middle of a buffer, columns."""

from pathlib import Path
from typing import Any

import pytest

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.engine.worker.worker import Worker
from undrift.runs import Config, resume, start
from undrift.runs.settings.schema import ConfigError

SETTINGS: dict[str, Any] = {**RUN, "method": "scaffold", "rounds": 5, "durations": "log-normal(1, sd=1.5)"}


def test_settings_of_a_schedule() -> None:
    plain = Config.build(RUN)
    one = Config.build({**RUN, "schedule": "buffered(3)"})
    other = Config.build({**RUN, "schedule": {"name": "buffered", "size": 3}})
    assert one.schedule == other.schedule == "buffered(size=3)" and one.identity() == other.identity()
    assert one.identity() != plain.identity() != Config.build({**RUN, "durations": 2}).identity()
    assert one.algorithm().schedule.enough(1) == 3
    assert Config.build({**RUN, "durations": [1, 2.5]}).durations == (1.0, 2.5)
    for bad, message in (
        ({"schedule": "buffered(0)"}, "schedule: .*size"),
        ({"schedule": {"size": 3}}, 'schedule: write name = "buffered"'),
        ({"schedule": "sam"}, "schedule"),
        ({"durations": "gamma(2)"}, "durations: no distribution is named 'gamma'"),
        ({"durations": -1}, "durations must be a positive number"),
        ({"method": "scaffnew", "schedule": "buffered"}, "use drift:scaffold"),
    ):
        with pytest.raises(ConfigError, match=message):
            Config.build({**RUN, **bad})


@pytest.mark.usefixtures("tiny")
def test_a_run_that_is_stopped_in_the_middle_of_a_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.build({**SETTINGS, "schedule": "buffered(3)"})
    whole = start(config, tmp_path / "whole")
    served, serve = 0, Worker.serve

    def stop(self: Worker, *arguments: Any) -> Any:
        nonlocal served
        served += 1
        if served == 8:
            raise KeyboardInterrupt
        return serve(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "serve", stop)
        with pytest.raises(KeyboardInterrupt):
            start(config, tmp_path / "stopped")
    again = resume(tmp_path / "stopped")
    assert again.sha256 == whole.sha256
    assert again.summary["virtual_seconds"] > 0


@pytest.mark.usefixtures("tiny")
def test_a_synchronous_run_has_virtual_time(tmp_path: Path) -> None:
    timed = start(Config.build({**SETTINGS, "rounds": 2}), tmp_path / "timed")
    plain = start(Config.build({**SETTINGS, "rounds": 2, "durations": None}), tmp_path / "plain")
    assert timed.summary["accuracy"] == plain.summary["accuracy"]
    assert timed.summary["virtual_seconds"] > 0 and "virtual_seconds" not in plain.summary
