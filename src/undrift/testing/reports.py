"""The contract of what blocks report: only declared names, finite values, and nothing else changes."""

from undrift.core.algorithm import Algorithm
from undrift.core.block import Block
from undrift.core.wire import fingerprint
from undrift.testing.rounds import CLIENTS, demand, play, simulate, states_of
from undrift.testing.tasks import Clinic


def check_reports(algorithm: Algorithm, task: Clinic) -> None:
    """A round in which blocks report equals one in which they do not, and any order of clients gives one report."""
    for slot, block in algorithm.slots():
        silent = type(block).report is Block.report and type(block).report_server is Block.report_server
        promise = f'{slot}={type(block).__name__} reports names it does not declare: set reports = ("name", ...)'
        demand(silent or bool(block.reports), promise)
    round = play(algorithm, task)
    reports = []
    for clients in (CLIENTS, CLIENTS[::-1]):
        again = simulate(algorithm, task)
        states_of(again).update({client: dict(held) for client, held in states_of(round.simulation).items()})
        after, record = again.round(round.before, clients)
        demand(
            fingerprint(after) == fingerprint(round.after),
            "a round is another one if its blocks report: report() and report_server() must change nothing",
        )
        reports.append(record.reports)
    demand(reports[0] == reports[1], "what is reported depends on the order of the clients: keep nothing on the block")
