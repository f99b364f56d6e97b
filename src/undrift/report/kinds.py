"""The kinds of figures that `undrift figure` draws, and the command that draws a figure again."""

from collections.abc import Mapping
from dataclasses import dataclass

from undrift.report.loaded import Material


@dataclass(frozen=True)
class Kind:
    """A kind of figure.

    Args:
        shows: what it shows.
        names: how the names of its files begin.
        part: the lens measurement it needs; empty if the run's own rows are enough.
        rounds: whether it shows every kept round and not only the last.
        live: whether measurements taken during the run are enough.
    """

    shows: str
    names: tuple[str, ...]
    part: str = ""
    rounds: bool = False
    live: bool = False


KINDS: Mapping[str, Kind] = {
    "bands": Kind(
        "distance of clients' gradients and perturbations by band, round by round", ("bands-",), "spectrum", True
    ),
    "consensus": Kind("what clients share of each band", ("consensus-", "distance-"), "spectrum"),
    "variance": Kind("variance of clients' perturbations by band", ("variance-",), "spectrum"),
    "layers": Kind("divergence by layer, before and after a filter", ("divergence-",), "divergence"),
    "heterogeneity": Kind(
        "norm of the gradient, and its variance between and within clients, over rounds",
        ("heterogeneity",),
        "heterogeneity",
        rounds=True,
        live=True,
    ),
    "cka": Kind("alignment of clients' representations, by pairs and by layer", ("cka",), "alignment"),
    "pca": Kind("perturbations, weights and features of clients in a plane", ("pca-",), "views"),
    "tsne": Kind("features of test examples, coloured by class", ("features",), "embedding"),
    "joint": Kind("features of clients' models and of the global model in one t-SNE map", ("joint",), "joint"),
    "landscape": Kind("the loss around the global models, on one scale", ("landscape-",), "surface"),
    "drift": Kind("how far clients move and drift, over rounds", ("curve-drift", "curve-client-distance")),
    "blocks": Kind("what blocks report: radii, weights, norms, chosen layers, over rounds", ("block-",)),
    "accuracy": Kind("accuracy over rounds, traffic and time", ("curve-accuracy",)),
    "sweep": Kind("accuracy over an argument or a setting: --over NAME", ("sweep-",)),
    "partition": Kind("who has what", ("partition",)),
    "clients": Kind("accuracy of each client", ("clients",)),
    "loss": Kind("loss on the test set over rounds", ("curve-test-loss",)),
}
"""Name -> what it is."""


def command_for(material: Material, figure: str) -> str:
    """The command that writes a figure of a report as PNG and PDF, from the current directory.

    Args:
        material: what the report is made from.
        figure: the figure's name.
    """
    folders = " ".join(material.paths)
    kind = next((name for name, kind in KINDS.items() if figure.startswith(kind.names)), "")
    return f"undrift figure {kind} {folders}" if kind else f"undrift report {folders} --figures figures"
