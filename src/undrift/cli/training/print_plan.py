"""What `undrift plan` and `undrift doctor --measure` do and print."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import typer

from undrift.cli.console import open_console
from undrift.cli.tables import show_rows
from undrift.compose.build import make
from undrift.planning.bottlenecks import plan_rows, pressures, this_machine, verdict
from undrift.planning.calibrate import measure, measure_engines
from undrift.planning.from_run import run_size
from undrift.planning.machine import DEFAULTS, load_constants, save_constants
from undrift.planning.round_cost import CostModel, MethodSize, RoundSize, method_size
from undrift.privacy.noise_plan import plan_noise
from undrift.runs.settings.config import Config

_WHOLE = ("clients", "cohort", "parameters", "workers", "batch", "fan_in")  # sizes that are counted


def show_plan(
    sizes: Mapping[str, Any],
    method: str | None,
    config: Path | None,
    memory: float | None,
    disk: float | None,
    as_json: bool,
    budget: tuple[float, int, float | None] | None = None,
) -> None:
    """Print what a round costs and what breaks first.

    Args:
        sizes: fields of `RoundSize`; None where a flag was not given.
        method: the method; None takes that of the run, or FedAvg.
        config: the run's file or folder; None takes the sizes alone.
        memory: bytes of a machine; None takes this one's.
        disk: bytes that are free; None takes those here.
        as_json: print an object.
        budget: an epsilon, the rounds that spend it, and a delta; None plans no privacy.
    """
    found = load_constants()
    constants = found or DEFAULTS
    size, cost = _sizes(dict(sizes), method, config, constants)
    limits = this_machine()
    limits = replace(
        limits,
        memory=limits.memory if memory is None else positive("memory", memory),
        disk=limits.disk if disk is None else positive("disk", disk),
    )
    round = CostModel(size, cost, constants).predict()
    order = pressures(size, cost, round, limits)
    private = None
    if budget is not None:
        epsilon, rounds, delta = budget
        private = plan_noise(epsilon, rounds, size.clients, size.cohort, size.parameters, delta)
    basis = f"measured on {found.machine}" if found else f"committed, of {DEFAULTS.machine}"
    if as_json:
        values = {
            "size": asdict(size),
            "method": asdict(cost),
            **asdict(round),
            "limits": asdict(limits),
            "pressures": [asdict(x) for x in order],
            "verdict": verdict(order),
            "constants": basis,
            "measured": found is not None,
            **({} if private is None else {"privacy": asdict(private)}),
        }
        typer.echo(json.dumps(values, indent=2))
        return
    title = (
        f"{cost.name}: {size.cohort:,} of {size.clients:,} clients, {size.parameters:,} parameters, "
        f"{size.engine} with {size.workers} worker{'s' if size.workers > 1 else ''}"
    )
    show_rows(title, ["what", "amount", "of which"], [list(row) for row in plan_rows(size, cost, round)])
    say = open_console().print
    say(verdict(order), markup=False, highlight=False, soft_wrap=True)
    notes = [*str(private or "").splitlines(), f"constants: {basis}"]
    if found is None:
        notes.append("undrift doctor --measure measures those of this machine")
    if size.example is None:
        notes.append(f"steps: those of a {constants.model}; --config FILE measures a step of your model")
    if cost.gathers:
        notes.append("a rule that compares uploads in pairs takes longer than counted here")
    for note in notes:
        say(note, markup=False, highlight=False, soft_wrap=True)


def positive(name: str, value: float) -> float:
    """The value itself, if it is a finite number above 0.

    Args:
        name: the option.
        value: its value.
    """
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a number of bytes, more than 0, got {value}")
    return value


def _sizes(
    given: dict[str, Any], method: str | None, config: Path | None, constants: Any
) -> tuple[RoundSize, MethodSize]:
    """The sizes of a round, from flags or from a run that flags override."""
    for name in _WHOLE:
        if given[name] is not None:
            if not 1 <= given[name] < float("inf"):
                raise ValueError(f"{name} must be 1 or more, got {given[name]:g}")
            given[name] = int(given[name])
    if config is None:
        known = {name: value for name, value in given.items() if value is not None}
        known.setdefault("engine", "ray" if known.get("workers", 1) > 1 else "local")
        if known["engine"] == "local" and known.get("workers", 1) > 1:
            raise ValueError(f"workers: the local engine has one, got {known['workers']}; set engine to ray or flower")
        name = method or "fedavg"
        return RoundSize(**known), method_size(make(name), name=name)
    if given["parameters"] is not None:
        raise ValueError("parameters: with --config they are those of the run's model; leave out one of the two")
    run = Config.read(config)
    if method is not None:
        run = Config.build(run.model_dump() | {"method": method, "arguments": {}})
    return run_size(run, constants, **given)


def measure_machine(as_json: bool) -> None:
    """Measure what the parts of a round cost here, store it and print it.

    Args:
        as_json: print an object.
    """
    begun = perf_counter()
    constants = measure_engines(measure())
    file = save_constants(constants)
    values = constants.model_dump()
    if as_json:
        typer.echo(json.dumps({**values, "file": str(file)}, indent=2))
        return
    rows = [[name, f"{value:.3g}"] for name, value in values.items() if isinstance(value, float)]
    for engine in ("ray", "flower"):
        rows += [[f"{engine}: {name}", f"{x:.3g}"] for name, x in values[engine].items()]
    show_rows(f"{constants.machine}: seconds of one processor", ["constant", "value"], rows)
    typer.echo(f"written to {file} in {perf_counter() - begun:.0f} s; undrift plan reads it")
