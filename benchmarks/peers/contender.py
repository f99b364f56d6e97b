"""One contender in its own process and environment; peers.py starts it.

python benchmarks/peers/contender.py bare --setting mlp --method fedavg --workers 1
"""

import argparse
import importlib
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch

from turns import Turns
from work import METHODS, SETTINGS, load


def main() -> None:
    """Run one contender until the driver stops it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a module of the folder contenders")
    parser.add_argument("--setting", choices=SETTINGS, default="mlp")
    parser.add_argument("--method", choices=METHODS, default="fedavg")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--in-order", action="store_true", help="do not shuffle: clients read their data in one order")
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    setting = SETTINGS[options.setting]
    data = load(setting)
    module = importlib.import_module(f"contenders.{options.name}")
    module.run(Turns(data), setting, data, options.method, options.workers, not options.in_order)


if __name__ == "__main__":
    main()
