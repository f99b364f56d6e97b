"""The table of costs in the guide to secure sums is that of the committed measurement."""

from support.page_numbers import result, tables

PAGE = "docs/guide/security.md"
HEAD = (
    "| parameters | parties | party, s | server, s | server, 10 % lost, s | plain server, s | up, MB | plain up, MB |"
)


def test_the_costs_in_the_guide_are_those_that_were_measured() -> None:
    rows = result("speed/results/secure.json")["rows"]
    found = {(row["parameters"], row["parties"], bool(row["lost"])): row for row in rows}
    cases = sorted({key[:2] for key in found})
    shown = []
    for size, parties in cases:
        row, lost = found[size, parties, False], found.get((size, parties, True))
        seconds = [row["party_seconds"], row["server_seconds"], lost and lost["server_seconds"]]
        cells = [f"{x:.2f}" if x is not None else "-" for x in (*seconds, row["plain_server_seconds"])]
        megabytes = [f"{row[name] / 1e6:.2f}" for name in ("up_bytes", "plain_up_bytes")]
        shown.append([f"{size:,}", f"{parties:,}", *cells, *megabytes])
    assert tables(PAGE)[HEAD] == shown
