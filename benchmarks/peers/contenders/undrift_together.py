"""Undrift in one process, clients in groups."""

from functools import partial

from contenders import undrift_local

run = partial(undrift_local.run, together=True)
