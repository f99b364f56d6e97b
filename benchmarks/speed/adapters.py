"""Adapters on a frozen base of 1e8 parameters: memory, seconds and bytes of a round, and the cost of a local step.

The base is a Llama with random weights; adapters of peft have rank 8 on the queries and values. Twenty clients take one
step each on two Ray workers. Memory is the proportional share (PSS), in which a page that several processes have counts
once; it is counted in multiples of the base, without what Python, torch, transformers and Ray take before there is
a base. A base `from-file` is loaded by `from_pretrained`, which maps the file into memory; `in-memory` is built by
every process for itself. The base under FedEx-LoRA's adapters travels.

A step is compared with a loop of plain PyTorch over the same model of peft, in turns, by processor time. `small` is a
Llama of 2 layers of 64, in which a step is mostly Python.

    python benchmarks/speed/adapters.py --json > benchmarks/speed/results/adapters.json
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from processes import run_part
from step import bare, environment, through_train
from undrift import LoaderTask, Local, Simulation, parse
from undrift.core.method.part_vector import travelling

CLIENTS, WORKERS, ROUNDS, RANK = 20, 2, 2, 8
LOCAL = Local(lr=0.01, steps=1, batch_size=1)
LENGTH = 16
VOCABULARY = 10_000
SIZES: dict[str, dict[str, int]] = {
    "large": {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12},
    "small": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
}
METHODS = ("fedavg", "ffa-lora", "fedex-lora")
PARTS = (*(f"memory:{method}:from-file" for method in METHODS), "memory:fedavg:in-memory")
REPETITIONS, STEPS = {"large": 21, "small": 61}, {"large": 2, "small": 20}


def fresh(size: str) -> Any:
    """A Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **SIZES[size]))  # type: ignore[arg-type]


def adapted(size: str, folder: str, opened: bool) -> nn.Module:
    """The Llama with adapters.

    Args:
        size: of the base.
        folder: where its weights are; "" draws random ones.
        opened: whether the weights under the adapters travel.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM

    from undrift.models import open_base

    net = LlamaForCausalLM.from_pretrained(folder) if folder else fresh(size)
    adapters = LoraConfig(r=RANK, lora_alpha=RANK, target_modules=["q_proj", "v_proj"])
    made: nn.Module = get_peft_model(net, adapters)
    return open_base(made) if opened else made


def task(size: str, folder: str = "", opened: bool = False, clients: int = CLIENTS, steps: int = 1) -> LoaderTask:
    """Random sequences, a batch for every step of each client."""
    count = steps * LOCAL.batch_size
    rows = torch.randint(VOCABULARY, (clients * count, LENGTH), generator=torch.Generator().manual_seed(0))
    examples = [{"input_ids": row, "labels": row} for row in rows]
    parts = [examples[first : first + count] for first in range(0, len(examples), count)]
    return LoaderTask(partial(adapted, size, folder, opened), parts)


def share(pid: int) -> int:
    """The proportional share of a process in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def watched(pids: dict[str, int]) -> Iterator[dict[str, int]]:
    """The largest shares seen while something runs, of each process and of all at one moment."""
    peaks, stop = dict.fromkeys([*pids, "all"], 0), threading.Event()

    def look() -> None:
        while not stop.wait(0.05):
            now = {name: share(pid) for name, pid in pids.items()}
            now["all"] = sum(now.values())
            peaks.update({name: max(peaks[name], x) for name, x in now.items()})

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peaks
    finally:
        stop.set()
        thread.join()


def memory(method: str, base: str) -> dict[str, Any]:
    """Rounds of a method: peak memory with the building of all models, seconds of a round, and a client's bytes."""
    from undrift.ray import Pool, RayBackend

    torch.set_num_threads(1)
    algorithm = parse(method)
    opened = algorithm.needs.model == "foldable"
    with tempfile.TemporaryDirectory() as folder, Pool(WORKERS) as pool:
        if base == "from-file":
            run_part(__file__, ["--part", f"write:{folder}"])
        first = task("small", opened=opened)
        with Simulation(algorithm, first, LOCAL, backend=RayBackend(pool), failures="raise") as simulation:
            simulation.run(1)
        pids = {"server": os.getpid(), **{f"worker {i}": pid for i, pid in enumerate(pool.pids())}}
        before = {name: share(pid) for name, pid in pids.items()}
        before["all"] = sum(before.values())
        seconds = []
        whole = task("large", folder if base == "from-file" else "", opened)
        backend = RayBackend(pool)
        with (
            watched(pids) as peaks,
            Simulation(algorithm, whole, LOCAL, backend=backend, failures="raise") as simulation,
        ):
            state = simulation.run(1)
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                state = simulation.run(1, state)
                seconds.append(time.perf_counter() - begun)
        layout, own = simulation.job.setting.layout, algorithm.personalization
    with torch.device("meta"):
        size = sum(p.numel() for p in fresh("large").parameters())
    sent = {way: 4 * travelling(own, layout, 1, way == "up") for way in ("down", "up")}
    return {
        "method": method,
        "base": base,
        "base_parameters": size,
        "vector": layout.size,
        "peak_in_bases": {name: round((peaks[name] - before[name]) / (4 * size), 2) for name in before},
        "megabytes_before": {name: round(x / 2**20) for name, x in before.items()},
        "seconds": round(statistics.median(seconds), 2),
        "bytes_of_a_client": sent,
        "base_over_bytes": round(4 * size / sent["up"], 1),
    }


def steps(size: str) -> dict[str, Any]:
    """The ratio of our step to one of plain PyTorch, with quartiles."""
    torch.set_num_threads(1)
    local = Local(lr=LOCAL.lr, batch_size=LOCAL.batch_size)
    sides: dict[str, Callable[[], None]] = {
        "bare": bare(task(size, clients=1, steps=STEPS[size]), local),  # type: ignore[arg-type]
        "undrift": through_train(parse("fedavg"), task(size, clients=1, steps=STEPS[size]), local),  # type: ignore[arg-type]
    }
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(1 + REPETITIONS[size]):
        for name in sorted(sides, reverse=bool(number % 2)):
            begun = time.process_time()
            sides[name]()
            spent[name].append((time.process_time() - begun) / STEPS[size])
    ratios = [ours / theirs for ours, theirs in zip(spent["undrift"][1:], spent["bare"][1:], strict=True)]
    return {
        "loop_over_bare": round(statistics.median(ratios), 3),
        "quartiles": [round(q, 3) for q in statistics.quantiles(ratios, n=4)[::2]],
        "repetitions": REPETITIONS[size],
        "steps": STEPS[size],
        "ms": {name: round(1e3 * statistics.median(times[1:]), 2) for name, times in spent.items()},
    }


def part(name: str) -> Any:
    """One part, in this process."""
    kind, _, rest = name.partition(":")
    if kind == "write":
        return fresh("large").save_pretrained(rest)
    return steps(rest) if kind == "step" else memory(*rest.split(":"))


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--part", help="measure one part in this process: memory:fedavg:from-file or step:large")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(part(options.part)))
        return
    found = {
        "memory": [run_part(__file__, ["--part", name]) for name in PARTS],
        "step": {size: run_part(__file__, ["--part", f"step:{size}"]) for size in SIZES},
    }
    if options.json:
        print(json.dumps({**found, "environment": environment("default")}, indent=2))
        return
    for row in found["memory"]:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    for size, row in found["step"].items():
        print(f"{size}: a step takes {row['loop_over_bare']} of a bare one, half from {row['quartiles']}")


if __name__ == "__main__":
    main()
