"""What the tests of aggregation rules share: clients with labels and proxy data, and uploads written down."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undrift import Local
from undrift.core.method.aggregation import Aggregation
from undrift.core.method.view import ServerView, Setting
from undrift.core.model.flat_model import Layout
from undrift.core.records.types import Upload
from undrift.testing import Quadratics

DOUBLE = torch.float64


class Bowls(Quadratics):
    """Clients with label counts; the server holds what clients 4, 1 and 2 hold."""

    counts = ([9, 1, 0], [2, 2, 2], [0, 5, 1], [4, 4, 3], [1, 0, 0], [3, 2, 6], [1, 1, 8])

    def label_counts(self, client: int) -> Tensor:
        return torch.tensor(self.counts[client])

    def proxy(self) -> list[int]:
        return [4, 1, 2]


def bowls(sizes: Sequence[int] = (1, 3, 2, 5, 4, 7, 2)) -> Bowls:
    task = Quadratics.random(clients=7, sizes=sizes)
    return Bowls(task.curvatures, task.optima, task.start, task.sizes)


TASK, LOCAL = bowls(), Local(lr=0.05, decay=0.97, epochs=2, batch_size=2)


def uploads_of(rows: Any, sizes: Sequence[int] | None = None, parts: Any = None) -> list[Upload]:
    none = torch.empty(0, dtype=DOUBLE)
    return [
        Upload(i, 0, torch.as_tensor(row, dtype=DOUBLE).reshape(-1), n, 1, 0.0, none, none.long(), parts or {})
        for i, (row, n) in enumerate(zip(rows, sizes or [1] * len(rows), strict=True))
    ]


def gather(
    rule: Aggregation[Any, Any, Any, Any, Any],
    uploads: list[Upload],
    w0: Any = None,
    server: Any = None,
    layout: Any = None,
) -> Any:
    w0 = torch.zeros(len(uploads[0].delta), dtype=DOUBLE) if w0 is None else torch.tensor(w0, dtype=DOUBLE)
    kept = rule.init_server(w0) if server is None else server
    layout = layout or Layout(("w",), ((len(w0),),))
    ups = [upload.parts.get("aggregation") for upload in uploads]
    setting = Setting(len(uploads), Local(), layout)
    view: Any = ServerView(params=w0, w0=w0, setting=setting, round=0, cohort=len(uploads), state=kept)
    return rule.gather(uploads, ups, view)  # type: ignore[attr-defined]
