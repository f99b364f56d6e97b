"""The cost and the error of removing the low band of a row: in place as `high_pass` does it, and by a whole transform.

Both run on one thread, one after the other in every repetition; times are processor time, minima and medians in
milliseconds. The error is that of the result against a transform in double precision, relative to the norm of the row.

    python benchmarks/speed/filters.py --json > benchmarks/speed/results/filters.json
"""

import argparse
import json
import statistics
import time
from typing import Any

import torch

from undrift.blocks.spectral.coarse import grid
from undrift.blocks.spectral.filter import removed_bins
from undrift.blocks.spectral.lowband import choose, remove_low_

SIZES = (640, 2304, 9216, 36_864, 102_400, 589_824, 1_000_003, 1_048_576, 1_638_400, 2_359_296)
SHARES = (0.01, 0.05)


def whole(rows: torch.Tensor, count: int) -> torch.Tensor:
    """The bins zeroed in the transform of the whole row."""
    bins = torch.fft.rfft(rows)
    bins[:, :count] = 0
    return torch.fft.irfft(bins, n=rows.shape[-1])


def measure(size: int, r: float, repetitions: int) -> dict[str, Any]:
    """Times and error of one length and share."""
    count = removed_bins(r, size)
    rows = torch.randn(1, size, generator=torch.Generator().manual_seed(0))
    out = rows.clone()
    remove_low_(out, count)
    error = torch.linalg.vector_norm(out - whole(rows.double(), count)) / torch.linalg.vector_norm(rows)
    runs = {"fft": lambda: whole(rows, count), "now": lambda: remove_low_(out, count), "copy": lambda: out.copy_(rows)}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {
        "size": size,
        "r": r,
        "bins": count,
        "way": choose(size, count),
        "grid": grid(size, count),
        **{f"{name}_ms": round(statistics.median(s) * 1e3, 3) for name, s in seconds.items()},
        **{f"{name}_min_ms": round(min(s) * 1e3, 3) for name, s in seconds.items()},
        "error": float(f"{float(error):.1e}"),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The cost and the error of removing the low band of a row.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--repetitions", type=int, default=11, help="alternating repetitions")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(size, r, options.repetitions) for size in SIZES for r in SHARES]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
