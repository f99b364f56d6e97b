"""Undrift on Ray."""

from contenders import undrift_local
from turns import Turns
from undrift.ray import Pool, RayBackend
from work import Data, Setting


def run(
    turns: Turns, setting: Setting, data: Data, method: str, workers: int, shuffle: bool, together: bool = False
) -> None:
    """Train round by round until the driver asks to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: the data.
        method: "fedavg" or "scaffold".
        workers: Ray actors.
        shuffle: whether clients shuffle their data.
        together: whether a worker trains its clients in groups.
    """
    with Pool(workers) as pool:
        pool.pids()
        undrift_local.run(turns, setting, data, method, workers, shuffle, RayBackend(pool), together)
