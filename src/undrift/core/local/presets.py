"""Presets: what a paper sets for local training, and for the methods that it compares. Every value has its source.

A preset has only what its paper, or the code the paper adopts, states. A method that it does not mention keeps its
defaults. The names of methods and arguments are those of `undrift list`; "fsa" is the block, as a plug-in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from undrift.util.naming.names import normalize_name, suggest

Values = Mapping[str, Any]


@dataclass(frozen=True)
class MethodPreset:
    """What a paper sets for one method.

    Args:
        arguments: the method's arguments.
        local: settings of local training in which it differs from the paper's others.
        source: where the paper states it.
    """

    arguments: Values = field(default_factory=dict)
    local: Values = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class Preset:
    """What a paper sets.

    Args:
        source: where its local settings come from.
        local: the fields of `Local` that it sets; the others keep their defaults.
        methods: method -> what the paper sets for it.
    """

    source: str
    local: Values
    methods: Mapping[str, MethodPreset] = field(default_factory=dict)

    def of(self, method: str) -> MethodPreset:
        """What it sets for a method, whatever the case, dashes and underscores of its name: nothing if it is absent."""
        named = {normalize_name(name): values for name, values in self.methods.items()}
        return named.get(normalize_name(method), MethodPreset())


_PROTOCOL = {"lr": 0.1, "decay": 0.998, "weight_decay": 1e-3, "clip": 10.0, "epochs": 5, "batch_size": 50}
_SLOW = {"decay": 0.9995}

_RADIUS = "FedFFT 5.1: radius 0.1 for all methods with SAM"
_DUAL = "C.1: the configuration of FedSMOO, mu 0.1"
_DECAY = "C.1: decay 0.9995"
_RATIO = "5.1: r 0.01"
_FEDFFT = Preset(
    "FedFFT 5.1 and C.1, CIFAR-10 and Tiny-ImageNet; clipping from the code of FedSMOO, whose configuration it adopts",
    _PROTOCOL,
    {
        "fedsam": MethodPreset({"rho": 0.1}, source=_RADIUS),
        "mofedsam": MethodPreset({"rho": 0.1}, source=_RADIUS),
        "fedgamma": MethodPreset({"rho": 0.1}, source=f"{_RADIUS}; its row FedSAM-S, FedGamma-S is quoted"),
        "fedlesam": MethodPreset({"rho": 0.1}, source=_RADIUS),
        "fedlesam-s": MethodPreset({"rho": 0.1}, source=_RADIUS),
        "fedlesam-d": MethodPreset({"rho": 0.1, "mu": 0.1}, _SLOW, f"{_RADIUS}; {_DECAY}; {_DUAL}"),
        "feddyn": MethodPreset({"mu": 0.1}, _SLOW, f"FedFFT {_DECAY}; {_DUAL}"),
        "fedspeed": MethodPreset({"rho": 0.1, "mu": 0.1, "blend": 1.0}, source=f"{_RADIUS}; {_DUAL}; its row FedSAM-D"),
        "fedsmoo": MethodPreset({"rho": 0.1, "mu": 0.1}, _SLOW, f"{_RADIUS}; {_DECAY}; {_DUAL}"),
        "fedgloss": MethodPreset(
            {"rho": 0.1, "local_rho": 0.1, "warmup": 0},
            source=f"{_RADIUS}, on server and clients (its time per round is that of two gradients); table 6: constant",
        ),
        "fedfft": MethodPreset({"r": 0.01, "rho": 0.1}, source=f"{_RADIUS}; {_RATIO}"),
        "fedfft-s": MethodPreset({"r": 0.01, "rho": 0.1}, source=f"{_RADIUS}; {_RATIO}"),
        "fedfft-d": MethodPreset({"r": 0.01, "rho": 0.1, "mu": 0.1}, _SLOW, f"{_RADIUS}; {_RATIO}; {_DECAY}; {_DUAL}"),
        "fedper-fft": MethodPreset({"r": 0.01, "rho": 0.1}, source=f"{_RADIUS}; {_RATIO}"),
        "gradfilter-feddyn": MethodPreset(
            {"r": 0.01, "mu": 0.1}, _SLOW, f"FedFFT {_RATIO} (E.6 states none); {_DECAY}; {_DUAL}"
        ),
    },
)

_RADII = "FedFSA 5.1"
_OWN = "FedFSA, the authors' code"


def _fsa(source: str, rho: float, larger: float, count: int) -> Mapping[str, MethodPreset]:
    """What FedFSA sets for the methods with its perturbation: the radii, and how many tensors get the larger one."""
    own = {"rho": rho, "larger": larger, "count": count}
    names = ("fedfsa", "fedfsa-random", "fedfsa-reverse")
    with_momentum = MethodPreset({**own, "a": 0.1}, source=source)
    return {**dict.fromkeys(names, with_momentum), "fsa": MethodPreset(own, source=source)}


_FEDFSA = Preset(
    "FedFSA 5.1 and code, Fashion-MNIST and CIFAR-10",
    {"lr": 0.1, "decay": 1.0, "weight_decay": 0.0, "clip": 10.0, "epochs": 10, "batch_size": 48},
    {
        **_fsa(_RADII, rho=0.1, larger=0.2, count=2),
        "fedsam": MethodPreset({"rho": 0.05}, source=_OWN),
        "mofedsam": MethodPreset({"rho": 0.1, "a": 0.1}, source="FedFSA, figure 4"),
        "fedspeed": MethodPreset(local={"decay": 0.998}, source=_OWN),
        "fedsmoo": MethodPreset(local={"decay": 0.998}, source=_OWN),
        "fedavg-ft": MethodPreset({"epochs": 10}, source="FedFSA 5.2: one round of tuning the classifier, 10 epochs"),
    },
)

_FEDSCAM = Preset(
    "FedSCAM 4.1.3, Fashion-MNIST",
    {"lr": 0.01, "decay": 1.0, "weight_decay": 0.0, "epochs": 5, "batch_size": 256},
    {
        "fedscam": MethodPreset({"rho": 0.05, "batches": 3}, source="FedSCAM 4.1.5, appendix"),
        "fedscam-sam": MethodPreset({"rho": 0.05, "batches": 3}, source="FedSCAM 4.1.5, appendix"),
        "fedscam-wa": MethodPreset({"batches": 3}, source="FedSCAM, appendix"),
    },
)


def _change_fields(
    base: Preset, source: str, local: Values, methods: Mapping[str, MethodPreset] | None = None
) -> Preset:
    """A paper's preset on other data or with another model."""
    return replace(base, source=source, local={**base.local, **local}, methods={**base.methods, **(methods or {})})


PAPERS: Mapping[str, Preset] = {
    "papers": Preset("the protocol that FedFFT, FedWMSAM and the code they build on share", _PROTOCOL),
    "fedfft": _FEDFFT,
    "fedfft-cifar100": _change_fields(_FEDFFT, "FedFFT C.1, CIFAR-100", {"epochs": 2, "batch_size": 20}),
    "specgrad": Preset(
        "SpecGradFilter V-A; it tunes lr for each method from 0.01, 0.05, 0.1 and 0.15, in a supplement not available",
        {"lr": 0.1, "weight_decay": 1e-3, "epochs": 5, "batch_size": 50},
        {"specgrad": MethodPreset({"r": 0.05}, source="SpecGradFilter V-A: r 0.05")},
    ),
    "fedscam": _FEDSCAM,
    "fedscam-cifar10": _change_fields(
        _FEDSCAM, "FedSCAM 4.1.3, CIFAR-10; its epochs are not stated", {"batch_size": 64}
    ),
    "fedwmsam": Preset(
        "FedWMSAM, the authors' code",
        _PROTOCOL,
        {
            "fedwmsam": MethodPreset(
                {"rho": 0.01, "a": 0.1, "pace": 0.01},
                source="FedWMSAM, its sweep of rho, as in table 1; code",
            ),
            "mofedsam": MethodPreset({"rho": 0.01}, source="FedWMSAM, its sweep of rho, as in table 1"),
        },
    ),
    "fedfsa": _FEDFSA,
    "fedfsa-cifar100": _change_fields(
        _FEDFSA, "FedFSA 5.1 and code, CIFAR-100", {}, _fsa(_RADII, rho=0.05, larger=0.9, count=2)
    ),
    "fedfsa-tiny": _change_fields(
        _FEDFSA,
        "FedFSA 5.1 and code, Tiny-ImageNet",
        {"decay": 0.998},
        _fsa(_RADII, rho=0.05, larger=0.9, count=2),
    ),
    "fedfsa-resnet18": _change_fields(
        _FEDFSA,
        "FedFSA 5.3 and code, ResNet-18 on CIFAR-100",
        {},
        {
            **_fsa("FedFSA 5.3", rho=0.05, larger=1.0, count=5),
            "mofedsam": MethodPreset({"rho": 0.3, "a": 0.1}, source="FedFSA 5.3"),
        },
    ),
}
"""Name -> what the paper sets."""


def preset(name: str) -> Preset:
    """A preset by its name.

    Example:
        >>> preset("fedfft").of("feddyn").local
        {'decay': 0.9995}
    """
    if name not in PAPERS:
        raise ValueError(f"no preset is named {name!r}; {suggest(name, PAPERS)}")
    return PAPERS[name]
