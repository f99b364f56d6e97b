"""What a round of a million clients costs by the cost model: 10,000 take part, flat and as a tree of sums.

The constants are the committed ones, the fan-in is the best of `FAN_IN`, and prices are assumptions.

    python benchmarks/speed/planned.py    # the table of docs/evidence/performance.md
"""

from dataclasses import replace

from undrift.planning.bottlenecks import bytes_text, seconds_text
from undrift.planning.round_cost import CostModel, Engine, RoundCost, RoundSize

FAN_IN = (2, 4, 8, 16, 32)
PARAMETERS, WORKERS = (10**7, 10**9), (10, 100, 1000)
NETWORK = 10e9
"""Bits per second of every machine."""
HOUR, GIGABYTE = 0.05, 0.01
"""Dollars for an hour of a processor, and for 1e9 bytes between machines."""
AIM = (0.7, 1.4)
"""Between which the ratio of a prediction to its measurement is to be: plan.py."""
WAYS: dict[str, tuple[Engine, bool]] = {
    "Ray, flat": ("ray", False),
    "Ray, tree": ("ray", True),
    "Flower, flat": ("flower", False),
    "Flower, edge servers": ("flower", True),
}


def plan(parameters: int, workers: int, engine: Engine, tree: bool) -> tuple[int | None, RoundCost]:
    """The best fan-in, None without a tree, and what a round costs.

    Args:
        parameters: of the model.
        workers: how many, each on a machine of its own.
        engine: "ray" or "flower".
        tree: whether sums are merged on their way.
    """
    size = RoundSize(10**6, 10**4, parameters, workers, engine=engine, network=NETWORK)
    known = {x: CostModel(replace(size, fan_in=x)).predict() for x in (FAN_IN if tree else (None,))}
    best = min(known, key=lambda x: known[x].seconds)
    return best, known[best]


def price(cost: RoundCost) -> float:
    """Dollars of a round.

    Args:
        cost: what it costs.
    """
    sent = sum(cost.traffic[name] for name in ("out", "in", "between"))
    return HOUR * sum(cost.processor.values()) / 3600 + GIGABYTE * sent / 1e9


def markdown() -> str:
    """The table."""
    heads = [
        "parameters",
        "workers",
        "way",
        "fan-in",
        "a round",
        "of which network",
        "traffic of the server",
        "dollars",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---:|" * 2 + "---|" + "---:|" * 5]
    for parameters in PARAMETERS:
        for workers in WORKERS:
            for way, (engine, tree) in WAYS.items():
                best, cost = plan(parameters, workers, engine, tree)
                if tree and not cost.traffic["between"]:
                    continue
                server = cost.traffic["out"] + cost.traffic["in"]
                cells = [f"{parameters:.0e}".replace("+0", ""), f"{workers:,}", way, str(best or "")]
                cells += [seconds_text(cost.seconds), seconds_text(cost.parts["network"]), bytes_text(server)]
                lines.append("| " + " | ".join([*cells, f"{price(cost):.2f}"]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
