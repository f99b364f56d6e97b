"""Where a run is executed: the settings of the engine, its workers, and the record of both in the run's folder."""

import os
import warnings
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from uuid import uuid4

from pydantic import AfterValidator, Field, field_validator

from undrift.engine.stores.object_store import check_url, is_url, local_folder
from undrift.engine.worker.device import check_name, check_share, kind_of, resolve, title
from undrift.engine.worker.job import Job
from undrift.engine.worker.measure import Probe
from undrift.engine.worker.worker_plan import Plan, choose_workers
from undrift.runs.settings.schema import ConfigError, Strict
from undrift.util.storage.files import write


class EngineConfig(Strict):
    """Where the run is executed; this does not affect results, except that bits are those of one kind of device.

    Args:
        name: the engine.
        workers: how many workers; "auto" measures one visit and chooses.
        device: "auto", "cpu", "cuda", "cuda:1", "mps", or one that `UNDRIFT_DEVICE_MODULE` registers.
        address: the address of a Ray cluster.
        gpus: each worker's share of a GPU; None shares the GPUs equally.
        deterministic: choose deterministic kernels: see docs/guide/accelerators.md.
        states: the URL of an object store for clients' states, as s3://bucket/runs, below which every run has a place
            of its own; None stores them in the run's folder, which all workers must see.
    """

    name: Literal["local", "ray", "flower"] = "local"
    workers: int | Literal["auto"] = 2
    device: Annotated[str, AfterValidator(check_name)] = "cpu"
    address: str | None = None
    gpus: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    deterministic: bool = False
    states: str | None = None

    @field_validator("workers", mode="before")
    @classmethod
    def _number_or_auto(cls, value: Any) -> Any:
        if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4096):
            return value
        raise ValueError(f'engine.workers must be a whole number from 1 to 4096, or "auto", got {str(value)[:80]!r}')


_PACKAGES = {"ray": "ray", "flower": "flwr"}
"""Engine -> the package that it needs."""


def resolve_engine(engine: EngineConfig) -> EngineConfig:
    """The settings with a device that exists in place of "auto"; raises if they cannot work here.

    Args:
        engine: the settings of the engine.
    """
    try:
        package = _PACKAGES.get(engine.name)
        if package is not None and find_spec(package) is None:
            raise ValueError(f"{engine.name} is not installed: pip install 'undrift[{engine.name}]'")
        device = resolve(engine.device)
        if engine.name == "local" and engine.gpus is not None:
            raise ValueError(f"gpus={engine.gpus:g}: the local engine has one worker on one device; set name to ray")
        if engine.name != "local":
            check_share(device, engine.gpus)
        if engine.states is not None:
            _check_states(engine.states, engine.name)
    except ValueError as error:
        raise ConfigError(f"engine: {error}") from None
    return engine.model_copy(update={"device": device})


def _check_states(url: str, name: str) -> None:
    """Raise if states cannot be stored there."""
    if name == "flower":
        raise ValueError("states: Flower's nodes store states in folders; leave it out, or set name to ray")
    if not is_url(url) or local_folder(url) is not None:
        raise ValueError(f"states must be the URL of an object store, as s3://bucket/runs, got {url}")
    check_url(url)


def states_root(folder: Path, url: str | None) -> Path | str:
    """Where a run has its clients' states: its folder, or a place of its own in an object store, noted in the folder.

    Args:
        folder: the run's folder for states.
        url: the setting `states` of its engine.
    """
    noted = folder / "url"
    if noted.is_file():
        root = noted.read_text(encoding="utf-8").strip()
        if url is not None and root.rpartition("/")[0] != url.rstrip("/"):
            raise ConfigError(f"engine: states: this run has its clients' states in {root}; do not change it")
        return root
    if url is None:
        return folder
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"engine: states: this run has its clients' states in {folder}; leave the setting out")
    root = f"{url.rstrip('/')}/{uuid4().hex[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    write(noted, root)
    return root


def plan_workers(engine: EngineConfig, job: Job, cohort: int) -> tuple[Plan, Probe | None]:
    """The workers of a run, and the visit that was measured if their number depends on one.

    Args:
        engine: the settings of the engine, settled.
        job: the method, the task and the device.
        cohort: clients in a round.
    """
    if engine.name == "local":
        return Plan(engine.device, 1), None
    given = None if engine.workers == "auto" else engine.workers
    shared = kind_of(engine.device) == "cuda" and engine.gpus is None
    if given is not None and not shared:
        return Plan(engine.device, given, engine.gpus or 0.0), None
    count, gpus = count_processors(), None
    if engine.name == "ray":
        from undrift.engine.ray_backend.start import resources

        found, gpus = resources(engine.address)
        count = int(found)
    plan, probe = choose_workers(job, cohort, count, workers=given, gpus=gpus)
    if engine.gpus is not None:
        plan = Plan(plan.device, plan.workers, engine.gpus, plan.reason)
    return plan, probe


class Workers:
    """The Ray workers of one run or of several, started by the first that needs them; a context manager."""

    def __init__(self) -> None:
        self.pool: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def pool_for(self, plan: Plan, address: str | None) -> Any:
        """The pool for a plan: the one there is, unless its workers are too many for the memory of this run.

        Args:
            plan: the number of workers and their share of a GPU.
            address: the address of a Ray cluster.
        """
        from undrift.engine.ray_backend.pool import Pool

        if self.pool is not None and len(self.pool.actors) > plan.workers and plan.reason == "memory":
            self._stop()
        if self.pool is None:
            self.pool = Pool(plan.workers, address=address, gpus=plan.gpus)
        return self.pool

    def _stop(self) -> None:
        if self.pool is not None:
            self.pool.stop()
            self.pool = None


def engine_record(engine: EngineConfig, plan: Plan, probe: Probe | None) -> dict[str, Any]:
    """What engine.json has: the device, the choice of workers and what it was based on.

    Args:
        engine: the settings of the engine, settled.
        plan: its workers.
        probe: the visit that was measured, if one was.
    """
    return {
        "name": engine.name,
        "device": engine.device,
        "title": title(engine.device),
        "deterministic": engine.deterministic,
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "plan": asdict(plan),
        "probe": None if probe is None else asdict(probe),
    }


def device_change(before: EngineConfig, now: EngineConfig) -> str | None:
    """Why a resumed run has other bits than an uninterrupted one; None if nothing changed that they depend on.

    Args:
        before: the settings with which it was trained so far.
        now: those to continue with.
    """
    if kind_of(before.device) != kind_of(now.device):
        return f"it was trained on {before.device} and would continue on {now.device}"
    if before.deterministic and not now.deterministic:
        return "it was trained with deterministic kernels and would continue without"
    return None


def warn_device_change(folder: object, why: str) -> None:
    """Warn that a resumed run does not have the bits of an uninterrupted one.

    Args:
        folder: the run's folder.
        why: what `device_change` returned.
    """
    warnings.warn(
        f"{folder}: {why}: the result is close to that of an uninterrupted run, but not equal bit for bit",
        stacklevel=3,
    )


def count_processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
