"""What a run is doing at the moment, as log records: add a handler to `LOG` to read them.

Records have level DEBUG, so that they cost next to nothing and print nothing by default; what a run decides by itself
has level INFO, and a trouble that it survives WARNING.
"""

import logging

LOG = logging.getLogger("undrift.steps")


def tell(text: str, *values: object) -> None:
    """Report what is being done now, for example "loading cifar10" or "round 3, client 7 of 10"; rounds count from 1.

    Args:
        text: the step, with places for the values as in `logging`.
        values: what to put there.
    """
    LOG.debug(text, *values)


def note(text: str, *values: object) -> None:
    """Report what was decided for a run, for example which columns a model receives; a repetition is not shown.

    Args:
        text: the decision, with places for the values as in `logging`.
        values: what to put there.
    """
    LOG.info(text, *values)


def warn(text: str, *values: object) -> None:
    """Report what went wrong while the run continues, for example that a worker was lost.

    Args:
        text: what happened, with places for the values as in `logging`.
        values: what to put there.
    """
    LOG.warning(text, *values)


def tell_trial(number: int, trials: int, name: str) -> None:
    """Report which run of several begins; the steps that follow are its steps.

    Args:
        number: which one, from 1.
        trials: how many there are; fewer than `number` if more were added.
        name: its name.
    """
    of = f" of {trials}" if number <= trials else ""
    LOG.debug("trial %d%s (%s)", number, of, name, extra={"trial": True})


def tell_rounds(done: int, rounds: int) -> None:
    """Report that training begins, or continues after the rounds of an intact checkpoint.

    Args:
        done: how many rounds are done.
        rounds: how many there are in all.
    """
    LOG.debug(f"resuming after round {done}" if done else "starting", extra={"rounds": (done, rounds)})
