"""How a model is evaluated in a Flower run: on the nodes, and on the server."""

import logging
from collections.abc import Callable, Iterable
from math import isfinite

try:
    from flwr.app import ArrayRecord, Message, MetricRecord
    from flwr.serverapp.strategy import Result
except ImportError as error:  # pragma: no cover
    raise ImportError("the Flower engine needs Flower: pip install 'undrift[flower]'") from error

_log = logging.getLogger("flwr")  # Flower shows what is logged here


def weighted_means(replies: Iterable[Message]) -> MetricRecord | None:
    """The means of the nodes' metrics, weighted by their `num-examples`; None if there are none."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for message in replies:
        for record in message.content.metric_records.values() if message.has_content() else ():
            values = {k: float(v) for k, v in record.items() if isinstance(v, int | float) and isfinite(v)}
            weight = values.pop("num-examples", 1.0)
            for name, value in values.items() if 0 < weight < 2**31 else ():
                sums[name] = sums.get(name, 0.0) + weight * value
                weights[name] = weights.get(name, 0.0) + weight
    return MetricRecord({name: total / weights[name] for name, total in sums.items()}) if sums else None


def assess(
    evaluate: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    round: int,
    arrays: ArrayRecord,
    result: Result,
) -> None:
    """Evaluate the global model on the server, into a result.

    Args:
        evaluate: a function of the round and the model's arrays; None does nothing.
        round: the round, from 1; 0 before the first.
        arrays: the model's.
        result: where the metrics go.
    """
    metrics = evaluate(round, arrays) if evaluate is not None else None
    if metrics is not None:
        _log.info("round %d, evaluated here: %s", round, metrics)
        result.evaluate_metrics_serverapp[round] = metrics
