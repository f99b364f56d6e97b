"""Undrift on Ray, clients in groups."""

from functools import partial

from contenders import undrift_ray

run = partial(undrift_ray.run, together=True)
