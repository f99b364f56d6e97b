"""What `undrift doctor` does with a device or a run: check the one, measure the other."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import typer

from undrift.cli.console import open_console
from undrift.cli.names import check_spelling
from undrift.engine.worker.device import resolve
from undrift.engine.worker.worker_plan import choose_workers
from undrift.runs.settings.config import Config
from undrift.runs.settings.engine import count_processors
from undrift.runs.setup.prepare import expected_cohort, prepare
from undrift.testing import check_device
from undrift.testing.device import MethodCheck
from undrift.util.storage.files import write


def examine_device(
    device: str, methods: list[str] | None, deterministic: bool, measure: bool, out: Path | None, as_json: bool
) -> bool:
    """Check a device, write and print the report, and return whether a method failed.

    Args:
        device: its name.
        methods: names or compositions; None or none at all checks all.
        deterministic: choose deterministic kernels.
        measure: measure steps, memory and Ray.
        out: the report's path without its ending; None is undrift-DEVICE.
        as_json: print the report as JSON instead of Markdown.
    """
    for method in methods or ():
        check_spelling(method)
    device = resolve(device)

    def show(check: MethodCheck) -> None:
        typer.echo(
            f"{check.method}: {check.error or f'difference {check.difference:.1e}, {check.seconds:.2f} s'}", err=True
        )

    report = check_device(device, methods or None, deterministic=deterministic, measure=measure, watch=show)
    base = out or Path(f"undrift-{device.replace(':', '-')}")
    paths = [base.with_name(f"{base.name}{ending}") for ending in (".json", ".md")]
    for path, text in zip(paths, (report.json() + "\n", report.markdown()), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, text)
    typer.echo(report.json() if as_json else report.markdown())
    typer.echo(f"written to {paths[0]} and {paths[1]}; attach them to an issue if something is wrong", err=True)
    return bool(report.failures)


def examine_run(file: Path, device: str | None, as_json: bool) -> None:
    """Measure one visit of a run on a device and print how many workers fit there.

    Args:
        file: a run's folder, or its TOML file.
        device: the device's name; None takes the run's.
        as_json: print an object.
    """
    setup = prepare(Config.read(file))
    where = resolve(device or setup.config.engine.device)
    cohort = expected_cohort(setup.config, setup.task.population)
    plan, probe = choose_workers(replace(setup.job, device=where), cohort, count_processors())
    if as_json:
        typer.echo(json.dumps({"probe": asdict(probe), "plan": asdict(plan)}, indent=2))
        return
    size = "unknown" if probe.bytes is None else f"{probe.bytes / 1e6:.0f} MB"
    console = open_console()
    console.print(f"a visit on {where}: {probe.seconds:.3f} s, memory {size} (client {probe.client})")
    console.print(f"workers: {plan.workers}, gpus {plan.gpus:g} each; limited by {plan.reason}")
