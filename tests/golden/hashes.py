"""The SHA-256 of the server state after three rounds, for every method and for some fixed compositions.

`make golden` writes them to hashes.json; `test_golden.py` compares. They guard refactoring: a change that is meant to
leave the arithmetic alone leaves them alone.
"""

import json
import platform
import sys
from pathlib import Path

import torch

from undrift.algorithms import ALGORITHMS, make
from undrift.compose.grammar import parse
from undrift.core.server.wire import fingerprint
from undrift.testing.rounds import simulate

PATH = Path(__file__).with_name("hashes.json")

COMPOSITIONS = (
    "scaffold + sam(0.05)",
    "scaffold + sam(0.05) + high-pass(0.1) + fedawa + fedper",
    "feddyn + gradient:high-pass(0.2)",
    "feddyn(0.05) + momentum:server-momentum(0.3) + uniform",
    "fedcm + asam(0.3)",
    "scaffold + momentum-path(0.1) + adaptive-momentum",
    "momentum-path(0.1, paced=True) + adaptive-momentum(a=0.4)",
    "scored-sam + by-score + drift:scaffold",
    "scored-sam(0.1) + dampened",
    "fedsam(0.05) + krum",
    "fedsam(0.05) + trimmed-mean(0.2) + heavy-ball(0.5)",
    "scaffold + coordinate-median",
    "feddyn + geometric-median",
    "local-momentum(0.5) + normalized(0.5, 0.1) + fedprox(0.1)",
    "local-momentum(0.9) + by-loss(rule='softmax')",
    "moon(0.5) + sam(0.02)",
    "moon(1.0) + private(('head.*',)) + feddyn",
    "loss-complement + drift:scaffold",
    "last-loss-complement + momentum:server-momentum(0.2)",
    "by-last-loss + fedprox(0.2) + server-optimizer:adam(0.05)",
    "q-fair(2.0) + drift:scaffold-i",
    "norm-clip(0.05) + drift:scaffold + yogi(0.05)",
    "quantile-clip(0.05) + drift:feddyn + adagrad",
    "median-clip + sam(0.1) + gaussian(0.2)",
    "by-discrepancy + drift:scaffold + ditto",
    "by-agreement(steps=3) + mixture(adaptive=True)",
    "by-proxy(epochs=2) + drift:feddyn",
    "layer-shrinking + momentum:server-momentum(0.5) + latest",
    "consensus(0.1) + drift:feddyn + server-sam(0.1, warmup=2)",
    "warm-sam(0.1, warmup=3) + server-sam(0.1, warmup=3) + drift:scaffold",
    "stale-global(0.05) + perturbation:low-pass(0.3) + drift:feddyn",
    "moreau(5.0, inner=3, lr=0.05) + drift:scaffold",
    "proximal-ascent(0.5, adaptive=True) + alternating(('head.*',), head_epochs=1)",
    "fsa(choice='random') + private-norms + moving-average(0.3)",
    "fsa(0.05, 0.3, blend=0.5) + fedper + gradient:random-stop(0.2)",
    "adaptive-aggregation + gradient:high-pass-2d(0.3) + drift:scaffold-i",
    "tuned(2, 'last') + rescale(0.5) + bulyan(0.2)",
    "specgrad + scaffold + fedadam + private(('head.*',), tuned=1)",
    "sam(0.1, blend=0.5) + cap-norm(0.5) + gradient:clip-coordinates(0.5) + ditto(0.5, 0.01)",
    "fedlaw(epochs=1) + sam(0.05) + mixture(0.3) + momentum:scaffold",
    "top-k(0.2) + fedadam + fedprox(0.1)",
    "quantized(4) + drift:scaffold + uniform",
)


NAMES = (*ALGORITHMS, *COMPOSITIONS)


def measure(name: str) -> str:
    """The hash of a method or composition."""
    torch.set_num_threads(1)
    return fingerprint(simulate(make(name) if name in ALGORITHMS else parse(name)).run(3))


def machine() -> dict[str, str]:
    """What the bits may depend on besides the code."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "machine": platform.machine(), "capability": capability}


if __name__ == "__main__":
    now = {name: measure(name) for name in NAMES}
    if "--compare" in sys.argv:
        before = json.loads(PATH.read_text())["hashes"]
        differ = [name for name in before | now if before.get(name) != now.get(name)]
        sys.exit(f"{len(differ)} of {len(before)} differ: {', '.join(differ)}" if differ else 0)
    PATH.write_text(json.dumps({**machine(), "hashes": now}, indent=1) + "\n")
