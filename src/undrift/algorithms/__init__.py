"""Every named algorithm: one small file per paper, one line per algorithm here."""

from collections.abc import Callable
from difflib import get_close_matches

from undrift.algorithm import Algorithm
from undrift.algorithms.fedasam import fedasam
from undrift.algorithms.fedavg import fedavg
from undrift.algorithms.fedavgm import fedavgm
from undrift.algorithms.fedcm import fedcm
from undrift.algorithms.feddyn import feddyn
from undrift.algorithms.fedfft import fedfft
from undrift.algorithms.fedfft_d import fedfft_d
from undrift.algorithms.fedfft_s import fedfft_s
from undrift.algorithms.fedgamma import fedgamma
from undrift.algorithms.fedlesam import fedlesam
from undrift.algorithms.fedlesam_d import fedlesam_d
from undrift.algorithms.fedlesam_s import fedlesam_s
from undrift.algorithms.fedprox import fedprox
from undrift.algorithms.fedsam import fedsam
from undrift.algorithms.fedspeed import fedspeed
from undrift.algorithms.mofedsam import mofedsam
from undrift.algorithms.scaffold import scaffold
from undrift.algorithms.specgrad import specgrad
from undrift.algorithms.uniform import uniform

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "uniform": uniform,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "feddyn": feddyn,
    "fedcm": fedcm,
    "fedavgm": fedavgm,
    "fedsam": fedsam,
    "fedasam": fedasam,
    "mofedsam": mofedsam,
    "fedgamma": fedgamma,
    "fedspeed": fedspeed,
    "fedlesam": fedlesam,
    "fedlesam-s": fedlesam_s,
    "fedlesam-d": fedlesam_d,
    "fedfft": fedfft,
    "fedfft-s": fedfft_s,
    "fedfft-d": fedfft_d,
    "specgrad": specgrad,
}
"""Name -> the function that makes it, in the order in which `undrift list` shows them."""


def make(name: str, **arguments: object) -> Algorithm:
    """A named algorithm.

    Args:
        name: as `undrift list` shows it.
        arguments: the arguments of its function; those left out take their defaults.

    Example:
        >>> make("fedsam", rho=0.05)
        Algorithm(perturbation=SAM(rho=0.05, blend=1.0), aggregation=Uniform())
    """
    if name not in ALGORITHMS:
        near = get_close_matches(name, ALGORITHMS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(ALGORITHMS)}"
        raise ValueError(f"no algorithm is named {name!r}; {hint}")
    return ALGORITHMS[name](**arguments)


__all__ = ["ALGORITHMS", "make", *sorted(f.__name__ for f in ALGORITHMS.values())]
