"""The columns of what blocks report in a round: over the clients of the cohort, and at the server."""

from collections.abc import Sequence
from math import fsum

from undrift.core.method.aggregation import Summing
from undrift.core.method.algorithm import Algorithm
from undrift.core.records.report import Reported, declared, sound, spread
from undrift.engine.worker.partial_sum import Visit


def columns(algorithm: Algorithm, visits: Sequence[Visit], server: Reported) -> dict[str, float]:
    """Column -> value: "slot.name" is the mean over the cohort, "_std", "_min" and "_max" behind it the spread.

    What was not declared, or cannot be summed up, is left out: the reports of another machine are not trusted.

    Args:
        algorithm: the method, whose blocks declare the names.
        visits: the clients whose uploads were accepted.
        server: "slot.name" -> what the server's blocks reported: one number, or several with a spread.
    """
    blocks = dict(algorithm.slots())
    order = {slot: i for i, slot in enumerate(blocks)}
    values: dict[str, list[float]] = {}
    for visit in visits:
        for name, x in visit.reports.items():
            slot, _, rest = name.partition(".")
            if slot in blocks and declared(rest, blocks[slot].reports) and sound(x):
                values.setdefault(name, []).append(x)
    alone = {name: x for name, x in server.items() if isinstance(x, float)}
    values |= {name: list(x) for name, x in server.items() if not isinstance(x, float)}
    rule, whole = algorithm.aggregation, fsum(visit.weight for visit in visits)
    if isinstance(rule, Summing) and "weight" in rule.reports and whole > 0:
        values["aggregation.weight"] = [visit.weight / whole for visit in visits]
    out: dict[str, float] = {}
    for name in sorted({**values, **alone}, key=lambda name: order[name.partition(".")[0]]):
        out |= {name: alone[name]} if name in alone else spread(name, values[name])
    return out
