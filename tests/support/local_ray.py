"""Ray on this machine, for the tests of a file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

MARKS = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # Ray's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Of every such file: tests that use Ray run in one process, one after the other."""


@contextmanager
def local_ray(file: str, **resources: Any) -> Iterator[None]:
    """Start Ray and shut it down at the end.

    Args:
        file: the name of the module with the tests, which workers cannot import.
        resources: what Ray shall have, as num_cpus.
    """
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.cloudpickle.register_pickle_by_value(sys.modules[file])
    for left in reversed(range(5)):
        try:
            ray.init(**resources, include_dashboard=False, log_to_driver=False, configure_logging=False)
            break
        except Exception:  # on a busy machine Ray gives up after 30 s
            if not left:
                raise
            ray.shutdown()
    yield
    ray.shutdown()
