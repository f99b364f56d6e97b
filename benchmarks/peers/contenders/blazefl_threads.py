"""BlazeFL in the mode it recommends, with a pool of threads."""

from blazefl.contrib import FedAvgThreadPoolClientTrainer

from contenders import blazefl_serial
from turns import Turns
from work import Data, Setting


def run(turns: Turns, setting: Setting, data: Data, method: str, workers: int, shuffle: bool) -> None:
    """Train round by round until the driver asks to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: the data.
        method: "fedavg": BlazeFL has no SCAFFOLD.
        workers: threads.
        shuffle: whether clients shuffle their data.
    """
    trainer = FedAvgThreadPoolClientTrainer
    blazefl_serial.run(turns, setting, data, method, workers, shuffle, trainer, num_parallels=workers)
