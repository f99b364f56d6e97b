"""Print the peak memory of a server that refuses hostile replies, in units of the model; a process of its own.

PYTHONPATH=tests python -m support.hostile_memory
"""

import logging
from pathlib import Path
from random import Random
from types import SimpleNamespace

import torch
from flwr.app import ArrayRecord, RecordDict

from support.hostile import LOCAL, fuzzed
from undrift import Algorithm
from undrift.core.records.types import Broadcast, Upload
from undrift.core.server.wire import flatten
from undrift.engine.flower.records import Answer, claim, encode
from undrift.engine.flower.server.receive import Reply
from undrift.engine.flower.server.tally import Tally

SIZE = 4_000_000


def main() -> None:
    """Refuse a dozen replies and print the peak."""
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    params = torch.zeros(SIZE)
    broadcast = Broadcast(0, params, params[:0], torch.empty(0, dtype=torch.int64), {})
    upload = Upload(5, 0, torch.randn(SIZE), 5, 2, 1.0, params[:0], broadcast.counts, {})
    summary = '{"visits": [[5, 5, 2, 1.0, 1.0, 1.0, 1.0, {}]], "rejections": []}'
    arrays = encode(flatten(upload))
    sent = SimpleNamespace(metadata=SimpleNamespace(dst_node_id=0), content=claim(()))
    chance, base, peak = Random(0), memory("VmRSS"), 0
    for _ in range(12):
        record = Answer(0, summary, {}).content()["undrift"]
        content = RecordDict({"undrift": record, "arrays": ArrayRecord(dict(arrays))})
        _, _, content = fuzzed(chance, content, flatten(upload))
        tally = Tally(Algorithm(), LOCAL, 1.0, broadcast, frozenset([5]))
        tally.expect(sent, [5])  # type: ignore[arg-type]
        Path("/proc/self/clear_refs").write_text("5")
        tally.take(Reply(sent, SimpleNamespace(content=content)))  # type: ignore[arg-type]
        peak = max(peak, memory("VmHWM") - base)
        assert tally.total.clients == []
    print(peak / (4 * SIZE))


def memory(line: str) -> int:
    """The memory of this process in bytes: VmRSS, its size now, or VmHWM, the peak."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{line}:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
