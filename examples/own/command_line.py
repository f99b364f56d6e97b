"""The command line that the scripts share: FOLDER [--engine local|ray|flower] [--rounds N]."""

from argparse import ArgumentParser
from typing import Any


def given(description: str | None) -> dict[str, Any]:
    """What was given, as settings of `start`."""
    parser = ArgumentParser(description=description)
    parser.add_argument("folder", help="of the run; a run that is there already continues")
    parser.add_argument("--engine", choices=["local", "ray", "flower"], default="local")
    parser.add_argument("--rounds", type=int, default=4)
    return vars(parser.parse_args())
