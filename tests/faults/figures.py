"""What the long tests measured, in one JSON file: `make faults` and `make hostile` name it in UNDRIFT_FIGURES."""

import json
import os
import time
from pathlib import Path
from typing import Any


def record(row: str, case: str, **figures: Any) -> None:
    """Keep what a test measured; without the variable nothing is written.

    Args:
        row: the row of docs/evidence/reliability.md, such as R5; or the name of a run.
        case: which case of it.
        figures: what was measured.
    """
    if not (where := os.environ.get("UNDRIFT_FIGURES")):
        return
    path = Path(where)
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(row, {})[case] = {"date": time.strftime("%Y-%m-%d", time.gmtime()), **figures}
    path.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")


def hostile_table(results: dict[str, dict[str, Any]]) -> str:
    """The table of docs/evidence/reliability.md about a hostile node, in Markdown.

    Args:
        results: what `make hostile` measured: of each run, every round.
    """
    runs = [results[name] for name in ("uploads", "sums") if name in results]
    names = [name for _ in runs for name in ("outcome", "seconds", "norm", "moved")]
    lines = [f"| round | the hostile node sends | {' | '.join(names)} |", "|---|---|" + len(names) * "---|"]
    for number in runs[0]:
        cells = [number, runs[0][number]["behaviour"]]
        for it in (run[number] for run in runs):
            cells += [it["outcome"], f"{it['seconds']:.0f}", f"{it['norm']:.2f}", f"{it['distance']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def party_table(results: dict[str, dict[str, Any]]) -> str:
    """The table of docs/evidence/reliability.md about a hostile party of secure sums, in Markdown.

    Args:
        results: what `make hostile` measured: of each run, every round.
    """
    lines = [
        "| round | the hostile party sends | its upload | clients in the sum | seconds | norm |",
        "|---|---|---|---|---|---|",
    ]
    for number, it in sorted(results["secure"].items(), key=lambda pair: int(pair[0])):
        upload = "round abandoned" if it["outcome"] == "abandoned" else it["outcome"]
        cells = [number, it["behaviour"], upload, str(it["clients"]), f"{it['seconds']:.0f}", f"{it['norm']:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TRIAL = [
    ("1", "uploads of one node trickle", "rounds of 340 s with a deadline of 45 s; honest nodes left out"),
    ("1", "the proxy refuses an upload (413)", "a round of 223 s with a deadline of 90 s"),
    ("2", "one node claims all clients", "the run ended after 34 s"),
    ("3", "every client of a round fails", "the run ended"),
    ("4", "a restart after a node has left for good", "`TooFewNodes` after 300 s"),
    ("5", "no client of a node is accepted, under a bound", "its sum was a wrong tree, and the node quarantined"),
    ("6", "a displacement times 1e6", "the model moved by 20,330"),
    ("7", "an error quotes a patient", "in `log.txt` and `audit.jsonl` on the server"),
    ("8", "a reply that is far too large", "400 MB were fetched, then rejected; the ServerApp had 1.3 GB"),
    ("10", "files of a run's folder are edited or added", "all but a few passed `undrift verify`"),
    ("11", "a run that fails", "`flwr run --stream` returned 0"),
    ("rights", "a node gets a new key", "-"),
    ("rights", "a node is revoked", "-"),
    ("rights", "the proxy's certificate is replaced", "-"),
    ("rights", "an operator is added", "-"),
]
"""What the trial of an earlier version found: the number of the fault, what happened, and what came of it."""


def trial_table(faults: dict[str, Any], hostile: dict[str, Any]) -> str:
    """The table of docs/evidence/reliability.md about the faults of a trial, before and after, in Markdown.

    Args:
        faults: what `make faults` measured.
        hostile: what `make hostile` measured.
    """
    found, rights = faults["trial"]["over TLS"], faults["rights"]["over TLS"]
    sent = {it["behaviour"]: it for it in hostile["uploads"].values()}
    long, large, cut = (sent[name] for name in ("displacement times 1e6", "40 MB", "500 objects"))
    slow = f"the slowest of {found['slow rounds']} rounds {found['slowest round']} s with a deadline of"
    after = [
        f"{slow} {found['deadline']:g} s; only its own clients absent",
        f"a round of {cut['seconds']:g} s with a deadline of 40 s",
        f"refused by name after {found['claim refused after']} s; then rounds with all 12 clients of the others",
        f"{found['abandoned rounds']} round abandoned, then all 12 clients again",
        f"a round closed {found['resumed after']} s after the same `flwr run`, with `wait` 20 s",
        f"{found['failed visits']} visits FAILED; no wrong tree, then rounds with all nodes",
        f"rejected ({long['outcome']}), the model moved by {long['distance']:g}",
        "in the node's log only",
        f"40 MB refused ({large['outcome']}) in a round of {large['seconds']:g} s",
        f"{found['edits found']} of {found['edited files']} found",
        f"`deploy.py run` returns {faults['exit code']['of a failed run, over TLS']['code']}",
        f"in a round again {rights['new_key_back']} s after its SuperNode was stopped",
        f"event after {rights['revocation_logged']} s, no client of it in later rounds",
        f"event after {rights['certificate_logged']} s, then rounds in which no client is absent",
        f"event after {rights['operators_logged']} s",
    ]
    lines = ["| fault | what happens | before | after, over TLS |", "|---|---|---|---|"]
    rows = [(*what, then) for what, then in zip(TRIAL, after, strict=True)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
