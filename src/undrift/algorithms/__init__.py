"""Every named algorithm: one small file per paper, one line per algorithm here."""

from collections.abc import Callable
from inspect import signature

from undrift.algorithms.ace import ace as ace
from undrift.algorithms.aced import aced as aced
from undrift.algorithms.apfl import apfl as apfl
from undrift.algorithms.area import area as area
from undrift.algorithms.async_sgd import async_sgd as async_sgd
from undrift.algorithms.bulyan import bulyan as bulyan
from undrift.algorithms.ca2fl import ca2fl as ca2fl
from undrift.algorithms.delta_sgd import delta_sgd as delta_sgd
from undrift.algorithms.ditto import ditto as ditto
from undrift.algorithms.fadas import fadas as fadas
from undrift.algorithms.fed_sb import fed_sb as fed_sb
from undrift.algorithms.fedacg import fedacg as fedacg
from undrift.algorithms.fedadagrad import fedadagrad as fedadagrad
from undrift.algorithms.fedadam import fedadam as fedadam
from undrift.algorithms.fedadamw import fedadamw as fedadamw
from undrift.algorithms.fedala import fedala as fedala
from undrift.algorithms.fedas import fedas as fedas
from undrift.algorithms.fedasam import fedasam as fedasam
from undrift.algorithms.fedasync import fedasync as fedasync
from undrift.algorithms.fedavg import fedavg as fedavg
from undrift.algorithms.fedavg_ft import fedavg_ft as fedavg_ft
from undrift.algorithms.fedavgm import fedavgm as fedavgm
from undrift.algorithms.fedawa import fedawa as fedawa
from undrift.algorithms.fedbabu import fedbabu as fedbabu
from undrift.algorithms.fedbn import fedbn as fedbn
from undrift.algorithms.fedbuff import fedbuff as fedbuff
from undrift.algorithms.fedcm import fedcm as fedcm
from undrift.algorithms.fedcr import fedcr as fedcr
from undrift.algorithms.feddc import feddc as feddc
from undrift.algorithms.feddecorr import feddecorr as feddecorr
from undrift.algorithms.feddisco import feddisco as feddisco
from undrift.algorithms.feddyn import feddyn as feddyn
from undrift.algorithms.fedetf import fedetf as fedetf
from undrift.algorithms.fedex_lora import fedex_lora as fedex_lora
from undrift.algorithms.fedexp import fedexp as fedexp
from undrift.algorithms.fedfa import fedfa as fedfa
from undrift.algorithms.fedfft import fedfft as fedfft
from undrift.algorithms.fedfft_d import fedfft_d as fedfft_d
from undrift.algorithms.fedfft_s import fedfft_s as fedfft_s
from undrift.algorithms.fedfsa import fedfsa as fedfsa
from undrift.algorithms.fedfsa_random import fedfsa_random as fedfsa_random
from undrift.algorithms.fedfsa_reverse import fedfsa_reverse as fedfsa_reverse
from undrift.algorithms.fedgamma import fedgamma as fedgamma
from undrift.algorithms.fedgloss import fedgloss as fedgloss
from undrift.algorithms.fedgps import fedgps as fedgps
from undrift.algorithms.fedinit import fedinit as fedinit
from undrift.algorithms.fedlada import fedlada as fedlada
from undrift.algorithms.fedlaw import fedlaw as fedlaw
from undrift.algorithms.fedlc import fedlc as fedlc
from undrift.algorithms.fedlesam import fedlesam as fedlesam
from undrift.algorithms.fedlesam_d import fedlesam_d as fedlesam_d
from undrift.algorithms.fedlesam_s import fedlesam_s as fedlesam_s
from undrift.algorithms.fedlin import fedlin as fedlin
from undrift.algorithms.fedloge import fedloge as fedloge
from undrift.algorithms.fedlw import fedlw as fedlw
from undrift.algorithms.fedlws import fedlws as fedlws
from undrift.algorithms.fedlwsam import fedlwsam as fedlwsam
from undrift.algorithms.fedmoswa import fedmoswa as fedmoswa
from undrift.algorithms.fedmuon import fedmuon as fedmuon
from undrift.algorithms.fedmuon_cv import fedmuon_cv as fedmuon_cv
from undrift.algorithms.fednolowe import fednolowe as fednolowe
from undrift.algorithms.fednova import fednova as fednova
from undrift.algorithms.fednsam import fednsam as fednsam
from undrift.algorithms.fedntd import fedntd as fedntd
from undrift.algorithms.fedpac import fedpac as fedpac
from undrift.algorithms.fedpac_muon import fedpac_muon as fedpac_muon
from undrift.algorithms.fedpac_soap import fedpac_soap as fedpac_soap
from undrift.algorithms.fedper import fedper as fedper
from undrift.algorithms.fedper_fft import fedper_fft as fedper_fft
from undrift.algorithms.fedprox import fedprox as fedprox
from undrift.algorithms.fedrep import fedrep as fedrep
from undrift.algorithms.fedrod import fedrod as fedrod
from undrift.algorithms.fedrot_lora import fedrot_lora as fedrot_lora
from undrift.algorithms.fedrs import fedrs as fedrs
from undrift.algorithms.fedsa_lora import fedsa_lora as fedsa_lora
from undrift.algorithms.fedsam import fedsam as fedsam
from undrift.algorithms.fedscam import fedscam as fedscam
from undrift.algorithms.fedscam_sam import fedscam_sam as fedscam_sam
from undrift.algorithms.fedscam_wa import fedscam_wa as fedscam_wa
from undrift.algorithms.fedsmoo import fedsmoo as fedsmoo
from undrift.algorithms.fedsol import fedsol as fedsol
from undrift.algorithms.fedspeed import fedspeed as fedspeed
from undrift.algorithms.fedsvd import fedsvd as fedsvd
from undrift.algorithms.fedswa import fedswa as fedswa
from undrift.algorithms.feduv import feduv as feduv
from undrift.algorithms.fedvls import fedvls as fedvls
from undrift.algorithms.fedwmsam import fedwmsam as fedwmsam
from undrift.algorithms.fedyogi import fedyogi as fedyogi
from undrift.algorithms.ffa_lora import ffa_lora as ffa_lora
from undrift.algorithms.flexlora import flexlora as flexlora
from undrift.algorithms.flora import flora as flora
from undrift.algorithms.geometric_median import geometric_median as geometric_median
from undrift.algorithms.gradfilter_feddyn import gradfilter_feddyn as gradfilter_feddyn
from undrift.algorithms.hetlora import hetlora as hetlora
from undrift.algorithms.krum import krum as krum
from undrift.algorithms.lora_fair import lora_fair as lora_fair
from undrift.algorithms.median import median as median
from undrift.algorithms.mofedsam import mofedsam as mofedsam
from undrift.algorithms.moon import moon as moon
from undrift.algorithms.multi_krum import multi_krum as multi_krum
from undrift.algorithms.norm_clip import norm_clip as norm_clip
from undrift.algorithms.pfedfda import pfedfda as pfedfda
from undrift.algorithms.pfedme import pfedme as pfedme
from undrift.algorithms.q_fedavg import q_fedavg as q_fedavg
from undrift.algorithms.ravan import ravan as ravan
from undrift.algorithms.rolora import rolora as rolora
from undrift.algorithms.scaffnew import scaffnew as scaffnew
from undrift.algorithms.scaffold import scaffold as scaffold
from undrift.algorithms.scaffold_i import scaffold_i as scaffold_i
from undrift.algorithms.scaffold_m import scaffold_m as scaffold_m
from undrift.algorithms.specgrad import specgrad as specgrad
from undrift.algorithms.trimmed_mean import trimmed_mean as trimmed_mean
from undrift.algorithms.uniform import uniform as uniform
from undrift.algorithms.whitened import whitened as whitened
from undrift.blocks import __all__ as _blocks
from undrift.core.local import presets
from undrift.core.method.algorithm import Algorithm
from undrift.util.naming.binding import annotations_of, check_kinds
from undrift.util.naming.names import normalize_name, unknown_name
from undrift.util.naming.plugins import PluginGroup
from undrift.util.naming.references import Reference

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "uniform": uniform,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "scaffold-i": scaffold_i,
    "scaffnew": scaffnew,
    "fedlin": fedlin,
    "scaffold-m": scaffold_m,
    "feddyn": feddyn,
    "feddc": feddc,
    "fedcm": fedcm,
    "fedinit": fedinit,
    "fedadamw": fedadamw,
    "fedlada": fedlada,
    "fedmuon": fedmuon,
    "fedpac-muon": fedpac_muon,
    "fedpac-soap": fedpac_soap,
    "fedmuon-cv": fedmuon_cv,
    "delta-sgd": delta_sgd,
    "fedmoswa": fedmoswa,
    "fedavgm": fedavgm,
    "fedexp": fedexp,
    "fedacg": fedacg,
    "fedswa": fedswa,
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
    "fedlc": fedlc,
    "fedrs": fedrs,
    "fedntd": fedntd,
    "fedvls": fedvls,
    "fedetf": fedetf,
    "feddecorr": feddecorr,
    "feduv": feduv,
    "fedsam": fedsam,
    "fedasam": fedasam,
    "mofedsam": mofedsam,
    "fednsam": fednsam,
    "fedgamma": fedgamma,
    "fedspeed": fedspeed,
    "fedsmoo": fedsmoo,
    "fedgloss": fedgloss,
    "fedsol": fedsol,
    "fedlwsam": fedlwsam,
    "fedlesam": fedlesam,
    "fedlesam-s": fedlesam_s,
    "fedlesam-d": fedlesam_d,
    "fedgps": fedgps,
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
    "ffa-lora": ffa_lora,
    "rolora": rolora,
    "fedsvd": fedsvd,
    "fedrot-lora": fedrot_lora,
    "fedex-lora": fedex_lora,
    "flora": flora,
    "flexlora": flexlora,
    "hetlora": hetlora,
    "lora-fair": lora_fair,
    "fedavg-ft": fedavg_ft,
    "fedper": fedper,
    "fedsa-lora": fedsa_lora,
    "fed-sb": fed_sb,
    "ravan": ravan,
    "fedrep": fedrep,
    "fedbabu": fedbabu,
    "fedbn": fedbn,
    "fedala": fedala,
    "fedas": fedas,
    "fedrod": fedrod,
    "fedpac": fedpac,
    "pfedfda": pfedfda,
    "fedloge": fedloge,
    "fedcr": fedcr,
    "ditto": ditto,
    "apfl": apfl,
    "pfedme": pfedme,
    "fedper-fft": fedper_fft,
    "fedbuff": fedbuff,
    "fedasync": fedasync,
    "fadas": fadas,
    "fedfa": fedfa,
    "async-sgd": async_sgd,
    "ca2fl": ca2fl,
    "ace": ace,
    "aced": aced,
    "area": area,
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
    return next((own for own in ALGORITHMS if normalize_name(own) == normalize_name(name)), None)


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
