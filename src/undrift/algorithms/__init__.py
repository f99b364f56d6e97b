"""Every named algorithm: one small file per paper, one line per algorithm here."""

from collections.abc import Callable
from inspect import signature

from undrift.algorithms.apfl import apfl
from undrift.algorithms.bulyan import bulyan
from undrift.algorithms.ditto import ditto
from undrift.algorithms.fedadagrad import fedadagrad
from undrift.algorithms.fedadam import fedadam
from undrift.algorithms.fedala import fedala
from undrift.algorithms.fedasam import fedasam
from undrift.algorithms.fedavg import fedavg
from undrift.algorithms.fedavg_ft import fedavg_ft
from undrift.algorithms.fedavgm import fedavgm
from undrift.algorithms.fedawa import fedawa
from undrift.algorithms.fedbn import fedbn
from undrift.algorithms.fedcm import fedcm
from undrift.algorithms.fedcr import fedcr
from undrift.algorithms.feddc import feddc
from undrift.algorithms.feddisco import feddisco
from undrift.algorithms.feddyn import feddyn
from undrift.algorithms.fedfft import fedfft
from undrift.algorithms.fedfft_d import fedfft_d
from undrift.algorithms.fedfft_s import fedfft_s
from undrift.algorithms.fedfsa import fedfsa
from undrift.algorithms.fedfsa_random import fedfsa_random
from undrift.algorithms.fedfsa_reverse import fedfsa_reverse
from undrift.algorithms.fedgamma import fedgamma
from undrift.algorithms.fedgloss import fedgloss
from undrift.algorithms.fedlaw import fedlaw
from undrift.algorithms.fedlesam import fedlesam
from undrift.algorithms.fedlesam_d import fedlesam_d
from undrift.algorithms.fedlesam_s import fedlesam_s
from undrift.algorithms.fedlw import fedlw
from undrift.algorithms.fedlws import fedlws
from undrift.algorithms.fedlwsam import fedlwsam
from undrift.algorithms.fednolowe import fednolowe
from undrift.algorithms.fednova import fednova
from undrift.algorithms.fedper import fedper
from undrift.algorithms.fedper_fft import fedper_fft
from undrift.algorithms.fedprox import fedprox
from undrift.algorithms.fedrep import fedrep
from undrift.algorithms.fedsam import fedsam
from undrift.algorithms.fedscam import fedscam
from undrift.algorithms.fedscam_sam import fedscam_sam
from undrift.algorithms.fedscam_wa import fedscam_wa
from undrift.algorithms.fedsmoo import fedsmoo
from undrift.algorithms.fedsol import fedsol
from undrift.algorithms.fedspeed import fedspeed
from undrift.algorithms.fedwmsam import fedwmsam
from undrift.algorithms.fedyogi import fedyogi
from undrift.algorithms.geometric_median import geometric_median
from undrift.algorithms.gradfilter_feddyn import gradfilter_feddyn
from undrift.algorithms.krum import krum
from undrift.algorithms.median import median
from undrift.algorithms.mofedsam import mofedsam
from undrift.algorithms.moon import moon
from undrift.algorithms.multi_krum import multi_krum
from undrift.algorithms.norm_clip import norm_clip
from undrift.algorithms.pfedme import pfedme
from undrift.algorithms.q_fedavg import q_fedavg
from undrift.algorithms.scaffold import scaffold
from undrift.algorithms.scaffold_i import scaffold_i
from undrift.algorithms.specgrad import specgrad
from undrift.algorithms.trimmed_mean import trimmed_mean
from undrift.algorithms.uniform import uniform
from undrift.algorithms.whitened import whitened
from undrift.blocks import __all__ as _blocks
from undrift.core.local import presets
from undrift.core.method.algorithm import Algorithm
from undrift.util.naming.binding import annotations_of, check_kinds
from undrift.util.naming.names import normalized, unknown_name
from undrift.util.naming.plugins import PluginGroup
from undrift.util.naming.references import Reference

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "uniform": uniform,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "scaffold-i": scaffold_i,
    "feddyn": feddyn,
    "feddc": feddc,
    "fedcm": fedcm,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
    "fednova": fednova,
    "q-fedavg": q_fedavg,
    "fedlw": fedlw,
    "fednolowe": fednolowe,
    "feddisco": feddisco,
    "fedawa": fedawa,
    "fedlws": fedlws,
    "fedlaw": fedlaw,
    "median": median,
    "trimmed-mean": trimmed_mean,
    "krum": krum,
    "multi-krum": multi_krum,
    "bulyan": bulyan,
    "norm-clip": norm_clip,
    "geometric-median": geometric_median,
    "moon": moon,
    "fedsam": fedsam,
    "fedasam": fedasam,
    "mofedsam": mofedsam,
    "fedgamma": fedgamma,
    "fedspeed": fedspeed,
    "fedsmoo": fedsmoo,
    "fedgloss": fedgloss,
    "fedsol": fedsol,
    "fedlwsam": fedlwsam,
    "fedlesam": fedlesam,
    "fedlesam-s": fedlesam_s,
    "fedlesam-d": fedlesam_d,
    "fedfsa": fedfsa,
    "fedfsa-random": fedfsa_random,
    "fedfsa-reverse": fedfsa_reverse,
    "fedwmsam": fedwmsam,
    "fedscam": fedscam,
    "fedscam-wa": fedscam_wa,
    "fedscam-sam": fedscam_sam,
    "fedfft": fedfft,
    "fedfft-s": fedfft_s,
    "fedfft-d": fedfft_d,
    "specgrad": specgrad,
    "gradfilter-feddyn": gradfilter_feddyn,
    "whitened": whitened,
    "fedavg-ft": fedavg_ft,
    "fedper": fedper,
    "fedrep": fedrep,
    "fedbn": fedbn,
    "fedala": fedala,
    "fedcr": fedcr,
    "ditto": ditto,
    "apfl": apfl,
    "pfedme": pfedme,
    "fedper-fft": fedper_fft,
}
"""Name -> the function that builds it, in the order in which `undrift list` shows them."""


METHODS = PluginGroup("undrift.methods", (*ALGORITHMS, *_blocks))
"""The algorithms of plug-ins; they cannot have the name of an algorithm or a block of ours."""


def listed(name: str) -> str | None:
    """The name of an algorithm of ours as `undrift list` writes it; None if there is none of that name.

    Args:
        name: with any case, dashes and underscores.

    Example:
        >>> listed("Fed_SAM"), listed("fedavg + sam")
        ('fedsam', None)
    """
    return next((own for own in ALGORITHMS if normalized(own) == normalized(name)), None)


def function(name: str) -> Callable[..., Algorithm]:
    """The function that builds an algorithm.

    Args:
        name: its name in `undrift list`, which has those of plug-ins, whatever its case, dashes and underscores; or a
            reference, `mypackage.methods:mymethod`.

    Example:
        >>> function("FedSAM").__name__
        'fedsam'
    """
    ours = listed(name)
    if ours is not None:
        return ALGORITHMS[ours]
    plugin, reference = METHODS.find(name), Reference.parse(name)
    if plugin is None and reference is None:
        raise ValueError(unknown_name("algorithm", name, {**ALGORITHMS, **METHODS.known()}))
    found = plugin.load() if plugin is not None else reference.resolve() if reference is not None else None
    if not callable(found):
        raise ValueError(f"{plugin or name}: it must be a function that returns an Algorithm, got {found!r:.80}")
    return found  # type: ignore[no-any-return]


def make(name: str, *, preset: str | None = None, **arguments: object) -> Algorithm:
    """A named algorithm.

    Args:
        name: its name in `undrift list`, or a reference to a function of your own.
        preset: a paper whose values the arguments have that are not given; `undrift show NAME` lists them.
        arguments: the arguments of its function; the others have their defaults.

    Example:
        >>> make("fedsam", rho=0.05)
        Algorithm(perturbation=SAM(rho=0.05, blend=1.0), aggregation=Uniform())
        >>> make("fedgloss", preset="fedfft").server_optimizer
        ServerSAM(rho=0.1, warmup=0, first=0.001)
    """
    build = function(name)
    known = signature(build).parameters
    for unknown in sorted(arguments.keys() - known.keys()):
        takes = ", ".join(map(str, known.values())) or "no arguments"
        raise TypeError(f"{name} got an unexpected keyword argument {unknown!r}; it takes {takes}")
    check_kinds(name, annotations_of(build), arguments)
    made = build(**{**presets.preset(preset).of(name).arguments, **arguments} if preset else arguments)
    if not isinstance(made, Algorithm):
        raise TypeError(f"{name} must return an Algorithm, got {made!r:.80}")
    return made


__all__ = ["ALGORITHMS", "METHODS", "function", "listed", "make", *sorted(f.__name__ for f in ALGORITHMS.values())]
