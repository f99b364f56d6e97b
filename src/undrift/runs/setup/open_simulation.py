"""Starts the simulation of a run on the backend that its settings name."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from undrift.engine.round.backend import Backend, InProcess
from undrift.engine.round.simulation import Simulation
from undrift.privacy.statement import fitting_rounds
from undrift.runs.settings.config import Config
from undrift.runs.settings.engine import Workers, engine_record, plan_workers, states_root
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.prepare import Setup, cohort_size, expected_cohort


def runs_behind(config: Config) -> bool:
    """Whether rounds may be evaluated while the next one trains: where clients are trained in other processes.

    The checkpoint of a round is then written while the clients of the next one store their states.

    Args:
        config: the settings.
    """
    return config.engine.name != "local"


def make_simulation(setup: Setup, **others: Any) -> Simulation:
    """The simulation of a run as its settings have it, in this process unless a backend is given.

    Args:
        setup: the run; its engine is settled.
        others: further arguments of `Simulation`.
    """
    config = setup.config
    return Simulation(
        setup.algorithm,
        setup.task,
        setup.local,
        cohort=None if config.probability else cohort_size(config.cohort, setup.task.population),
        probability=config.probability,
        seed=config.seed,
        bound=config.bound,
        failures=config.failures,
        durations=config.durations,
        availability=config.availability,
        sampling=config.sampling,
        device=config.engine.device,
        deterministic=config.engine.deterministic,
        **others,
    )


@contextmanager
def open_simulation(setup: Setup, states: Path, note: Callable[[Any], None] | None = None) -> Iterator[Simulation]:
    """The simulation of a run on the backend it names, closed at the end.

    Args:
        setup: the run; its engine is settled.
        states: the clients' state folder.
        note: called with what engine.json has.
    """
    config = setup.config
    with ExitStack() as stack:
        plan, probe = plan_workers(config.engine, setup.job, expected_cohort(config, setup.task.population))
        if note is not None:
            note(engine_record(config.engine, plan, probe))
        backend: Backend
        root = states_root(states, config.engine.states)
        if config.engine.name == "local":
            backend = InProcess(root=root)
        elif config.engine.name == "ray":
            from undrift.engine.ray_backend.backend import RayBackend

            held = setup.pool or stack.enter_context(Workers())
            backend = RayBackend(held.pool_for(plan, config.engine.address), root=root)
        else:
            from undrift.engine.flower.backend import FlowerBackend

            backend = FlowerBackend(plan.workers, root=states, gpus=plan.gpus)
        depth = config.output.checkpoint_every * config.output.keep + runs_behind(config)
        made = make_simulation(setup, depth=depth, backend=backend, quarantine=config.quarantine, secure=config.secure)
        simulation = stack.enter_context(made)
        check_budget(simulation, config)
        yield simulation


def check_budget(simulation: Simulation, config: Config) -> None:
    """Raise if the rounds of a run would spend more than its privacy budget.

    Args:
        simulation: states what rounds spend.
        config: has the rounds and the budget, if there is one.
    """
    if config.epsilon is None:
        return
    try:
        fits = fitting_rounds(config.epsilon, lambda rounds: simulation.privacy(rounds, config.delta), config.rounds)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if fits < config.rounds:
        raise ConfigError(
            f"epsilon: {config.rounds} rounds would spend more than {config.epsilon:g}, {fits} rounds fit; set rounds "
            "to that, or more noise in the method: undrift.privacy.calibrate_noise gives how much"
        )
