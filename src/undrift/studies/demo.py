"""The demonstration: FedAvg and a method against client drift on the handwritten digits that are in the package."""

from pathlib import Path

from undrift.studies.compare import Comparison
from undrift.util.storage.metrics import read_rows

METHODS = ("fedavg", "feddyn")
ROUNDS = 15
CLIENTS, COHORT = 20, 5


def demo_comparison(rounds: int = ROUNDS, seed: int = 0) -> Comparison:
    """Twenty clients with two of the ten digits each, five of them in a round.

    Args:
        rounds: how many rounds each method is trained.
        seed: fixes everything random.

    Example:
        >>> [trial.label for trial in demo_comparison().trials()]
        ['fedavg', 'feddyn']
    """
    base = {
        "data": "digits",
        "partition": "classes(2)",
        "clients": CLIENTS,
        "cohort": COHORT,
        "rounds": rounds,
        "local": {"lr": 0.1, "epochs": 5, "batch_size": 20},
    }
    methods = [{"method": method} for method in METHODS]
    return Comparison.build({"name": "demo", "seeds": [seed], "base": base, "methods": methods}, "undrift demo")


def accuracy_curves(comparison: Comparison, out: Path) -> dict[str, list[tuple[float, float]]]:
    """The accuracy after every round so far, by label.

    Args:
        comparison: a comparison with one seed and one setting.
        out: its folder; runs that have not begun have no curve.
    """
    found = {}
    for trial in comparison.trials():
        rows = read_rows(out / trial.name)[: trial.config.rounds]
        points = [(float(row["round"]), float(row["accuracy"])) for row in rows if "accuracy" in row]
        if points:
            found[trial.label] = points
    return found
