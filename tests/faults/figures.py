"""What the long tests measured, in one JSON file: `make faults` names it in UNDRIFT_FIGURES."""

import json
import os
import time
from pathlib import Path
from typing import Any


def record(row: str, case: str, **figures: Any) -> None:
    """Keep what a test measured; without the variable nothing is written.

    Args:
        row: the row of docs/evidence/reliability.md, such as R5.
        case: which case of it.
        figures: what was measured.
    """
    if not (where := os.environ.get("UNDRIFT_FIGURES")):
        return
    path = Path(where)
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(row, {})[case] = {"date": time.strftime("%Y-%m-%d", time.gmtime()), **figures}
    path.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")
