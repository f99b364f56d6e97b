"""Fuzzes the decoders: `python tests/fuzz/run.py --inputs 10000 --seconds 60 wire config`.

With --guided and atheris (pip install atheris) inputs are guided by coverage, each decoder in a child of the process;
without it they are random changes of good ones. The inputs that fail are written to the folder fuzz-failures, and the
command ends with 1. UNDRIFT_FIGURES names the file that takes the figures, in row S4.
"""

import argparse
import os
import re
import sys
import time
import traceback
from pathlib import Path
from random import Random

LIMIT = 1.0
"""Seconds that one input may take."""


def fuzz(name: str, inputs: int, seconds: float, seed: int = 0) -> dict[str, float]:
    """Try inputs until their number or the time is reached; raises on the first fault."""
    from targets import TARGETS, attempt, mutations

    for data in TARGETS[name].seeds():
        attempt(name, data)
    accepted = count = 0
    slowest, began = 0.0, time.monotonic()
    for data in mutations(name, Random(seed)):
        start = time.monotonic()
        if count >= inputs or start - began >= seconds:
            break
        accepted += tried(name, data)
        count, slowest = count + 1, max(slowest, time.monotonic() - start)
    return {"inputs": count, "accepted": accepted, "slowest": slowest, "seconds": time.monotonic() - began}


def tried(name: str, data: bytes) -> bool:
    """Decode one input; one that fails or takes too long is stored."""
    from targets import attempt

    start = time.process_time()
    try:
        accepted = attempt(name, data)
        if time.process_time() - start > LIMIT:
            raise TimeoutError(f"{name}: an input of {len(data)} bytes took {time.process_time() - start:.1f} s")
    except BaseException:
        folder = Path("fuzz-failures")
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}-{abs(hash(data)):x}"
        path.write_bytes(data)
        print(f"{name}: {path} fails", file=sys.stderr)
        raise
    return accepted


def guided(name: str, inputs: int, seconds: float) -> dict[str, float]:
    """The same with atheris, in a child of this process, which atheris ends; raises if that ended with a fault."""
    import targets

    output, began = targets._folder() / "output", time.monotonic()
    sys.stdout.flush()
    if not (child := os.fork()):
        try:
            with output.open("wb") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            with_atheris(name, inputs, seconds)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    printed = output.read_text(errors="replace")
    if status:
        raise RuntimeError("\n".join(printed.splitlines()[-40:]))
    return {**statistics(printed), "seconds": time.monotonic() - began}


def statistics(output: str) -> dict[str, float]:
    """How many inputs libFuzzer tried, and how many edges of the code they reached, from what it printed."""
    edges = re.findall(r" cov: (\d+) ", output)
    tried = re.search(r"stat::number_of_executed_units: (\d+)", output)
    if not edges or not tried:
        raise ValueError(f"no figures of libFuzzer in {output[-400:]!r}")
    return {"inputs": int(tried[1]), "edges_at_first": int(edges[0]), "edges": int(edges[-1])}


def with_atheris(name: str, inputs: int, seconds: float) -> None:
    """Guide the inputs of a decoder by coverage, in this process, which it ends."""
    import atheris

    import targets

    corpus = targets._folder() / f"corpus-{name}"
    corpus.mkdir()
    for number, data in enumerate(targets.TARGETS[name].seeds()):
        (corpus / str(number)).write_bytes(data)
    words = targets._folder() / f"words-{name}"
    words.write_text(
        "".join(
            '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in targets.TARGETS[name].words if word
        )
    )
    limits = [f"-runs={inputs}", f"-max_total_time={int(seconds)}", "-timeout=10", "-rss_limit_mb=4096"]
    found = "fuzz-failures/"
    os.makedirs(found, exist_ok=True)
    options = [f"-dict={words}"] if words.stat().st_size else []
    options += [f"-artifact_prefix={found}{name}-", "-print_final_stats=1", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], lambda data: (tried(name, data), None)[1])
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--guided", action="store_true", help="guide inputs by coverage, with atheris")
    given = parser.parse_args()
    if given.guided:
        import atheris

        with atheris.instrument_imports(include=["undrift"]):
            from targets import TARGETS
    else:
        from targets import TARGETS
    sys.path.append(str(Path(__file__).parents[1]))
    from faults.figures import record

    failed = 0
    figures: dict[str, dict[str, float]] = {}
    for name in given.targets or TARGETS:
        try:
            if given.guided:
                found = guided(name, given.inputs, given.seconds)
            else:
                found = fuzz(name, given.inputs, given.seconds, given.seed)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            lines = traceback.format_exc(limit=-4)
            print(f"{name:12} FAILED {lines}", flush=True)
            continue
        figures[name] = {key: round(value, 3) for key, value in found.items()}
        print(f"{name:12} " + "  ".join(f"{key} {value:g}" for key, value in found.items()), flush=True)
    command = f"make fuzz INPUTS={given.inputs} SECONDS={given.seconds:g}{' GUIDED=--guided' * given.guided}"
    record("S4", "guided" if given.guided else "random", command=command, faults=failed, decoders=figures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
