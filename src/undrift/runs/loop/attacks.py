"""Attacks on a run: gradient inversion of what its clients send, and membership inference from its final model."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from undrift.core.model.flat_model import Vector
from undrift.core.model.modules import plain_name
from undrift.core.model.random import SERVER, generator
from undrift.core.server.step import send
from undrift.core.tasks.task import Task
from undrift.core.tasks.tensor_task import TensorTask, rows
from undrift.data import DataTask
from undrift.engine.round.simulation import Simulation
from undrift.privacy.inversion import Inversion, input_errors, invert_gradient, invert_linear, summarise_errors
from undrift.privacy.membership import Membership, compare_losses
from undrift.runs.folder.audit import INVERSION, MEMBERSHIP
from undrift.runs.folder.files import RunFolder, refuse_deployed
from undrift.runs.reading.open_checkpoint import open_state
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.open_simulation import make_simulation
from undrift.runs.setup.prepare import prepare
from undrift.util.steps import tell

_BATCH = 200  # examples in a batch of losses
_MOST = 16  # examples that are searched at once
_OTHERS = 10  # clients whose mean input is the guess without an upload


def audit_inversion(folder: Path | str, task: Task | None = None, iterations: int = 300) -> list[Inversion]:
    """Attack the uploads of a run's first round by gradient inversion, and note the errors in its audit log.

    The run's model and files stay as they are.

    Args:
        folder: the run's folder; it must not be in progress.
        task: the run's task, if it was made in Python.
        iterations: as in `invert_uploads`.
    """
    with RunFolder.open(Path(folder)) as run:
        refuse_deployed(run.path, "audit a simulation with the same settings")
        setup = prepare(run.config, task=task, folder=run.path)
        found = invert_uploads(make_simulation(setup, secure=setup.config.secure), iterations)
        run.audit.write(INVERSION, rows=[one.row() for one in found])
    return found


def audit_membership(folder: Path | str, task: Task | None = None, examples: int = 5000) -> Membership:
    """Attack a run's last model by membership inference, and note the result in its audit log.

    Args:
        folder: the run's folder; it must not be in progress.
        task: the run's task, if it was made in Python.
        examples: as in `infer_members`.
    """
    with RunFolder.open(Path(folder)) as run, open_state(run.path, task=task) as (setup, simulation, state):
        stated = simulation.privacy(state.round, setup.config.delta)
        epsilon, delta = (inf, 0.0) if stated is None else (stated.epsilon, stated.delta)
        found = infer_members(simulation.module(state), setup.task, epsilon, delta, examples, setup.config.seed)
        run.audit.write(MEMBERSHIP, **found.row())
    return found


def infer_members(
    model: nn.Module, task: Task, epsilon: float = inf, delta: float = 0.0, examples: int = 5000, seed: int = 0
) -> Membership:
    """Tell the training examples of all clients from held-out ones by their losses.

    Clients that never took part count as well: without them, members would differ from the others in their classes.

    Args:
        model: the model, in evaluation mode.
        task: with examples by index and a test set.
        epsilon: the stated one.
        delta: the stated delta.
        examples: how many members and others are drawn at most, each.
        seed: of the draw.
    """
    if not isinstance(task, DataTask | TensorTask):
        raise ConfigError(f"membership: {type(task).__name__} has no held-out examples by index; use a TensorTask")
    random = generator(seed, 0, SERVER, "membership")
    members = torch.unique(torch.cat([task.order(client, random) for client in range(task.population)]))
    inputs, targets, prepare = _held_out(task)

    def losses(places: Tensor, gather: Callable[[Tensor], Any]) -> Tensor:
        chosen = places[torch.randperm(len(places), generator=random)[:examples]]
        with torch.no_grad():
            return torch.cat([task.losses(model, gather(part)) for part in torch.split(chosen, _BATCH)])

    try:
        ours = losses(members, task.gather)
        others = losses(torch.arange(len(targets)), lambda part: (prepare(rows(inputs, part)), targets[part]))
        return compare_losses(ours, others, epsilon, delta)
    except TypeError:
        raise ConfigError("membership: the task's criterion has no loss per example; use cross_entropy") from None
    except ValueError as error:
        raise ConfigError(f"membership: {error}") from None


def _held_out(task: DataTask | TensorTask) -> tuple[Any, Tensor, Callable[[Any], Any]]:
    """The inputs and targets of a task's test set, and what makes a model's inputs of them."""
    if isinstance(task, DataTask):
        return task.dataset.test.inputs, task.dataset.test.targets, task.prepare
    if task.test is None:
        raise ConfigError("membership: the task has no held-out examples; give test=")
    return *task.test, lambda inputs: inputs


def invert_uploads(simulation: Simulation, iterations: int = 300) -> list[Inversion]:
    """Recover examples of one client from what others see of the first round with clients, in the worst cases first.

    The client with the fewest examples is attacked: with one example and one step, with one batch and one step, and as
    the settings are, by a server, which sees the upload or, with secure sums, the sum of a round; and as the settings
    are by those who see the model before and after the round. Attackers know all settings, the labels and the number of
    examples.

    Args:
        simulation: the training; it is not changed.
        iterations: of the search, for models that do not begin with a linear layer.
    """
    local = replace(simulation.local, together=1)
    single = replace(local, steps=1, step_schedule=None, deadline=None, speed=None)
    found: list[Inversion] = []
    batch = [] if single == local else [single]
    for settings in (replace(single, batch_size=1), *batch, local):
        scene = replace(simulation, local=settings, backend=None, depth=0, device="cpu")
        found += _attack(scene, iterations, settings == local)
    return found


def _attack(simulation: Simulation, iterations: int, models: bool) -> Iterator[Inversion]:
    """Attack the first round with clients: what the server sees of it and, if requested, the models around it."""
    task, local, seed, state = simulation.task, simulation.local, simulation.seed, simulation.start()
    for after, record in simulation.rounds(100, state):
        if record.clients:
            break
        state = after
    else:
        raise ConfigError("inversion: no client took part in 100 rounds; set a larger cohort or probability")
    client = min(record.clients, key=task.examples)
    broadcast = send(simulation.job.algorithm, state, simulation.setting)
    steps = local.step_count(int(task.examples(client)), client, state.round, seed)
    order = generator(seed, state.round, client, "batches")
    batches = list(islice(task.batches(client, local.batch_size, order), steps))
    if not (isinstance(batches[0], tuple | list) and len(batches[0]) == 2 and _numbers(batches[0][0])):
        raise ConfigError("inversion: it needs batches of inputs and targets, where inputs are one tensor of numbers")
    inputs, targets = (torch.cat([batch[place] for batch in batches]) for place in (0, 1))
    views: dict[str, Vector] = {}
    if simulation.secure is not None:
        total = simulation.collect(broadcast, record.clients, {}).total
        views[f"the sum of {len(record.clients)} uploads"] = total.rule.named()["weighted"].value() / total.weight()
    else:
        upload = simulation.worker.visit(client, broadcast, None, simulation.job.gate(broadcast, [client], 1))
        assert upload is not None  # it was accepted in the round
        views["the upload"] = upload.delta
    if models:
        views["the models"] = after.params - state.params
    others = [other for other in range(task.population) if other != client and task.examples(other)][:_OTHERS]
    known = torch.cat([next(iter(task.batches(one, _BATCH, order)))[0] for one in others or [client]])
    module = simulation.module(state).train()
    shared = simulation.job.algorithm.personalization.share(torch.ones_like(state.params), simulation.setting.layout)
    for seen, moved in views.items():
        tell("inversion of %s, %d examples in %d steps", seen, len(inputs), steps)
        uphill = -moved.to(state.params) / local.rate(state.round) - steps * local.weight_decay * state.params * shared
        layer = _first_linear(module, inputs)
        if layer is not None:
            slopes = simulation.setting.layout.named(uphill)
            rebuilt = invert_linear(slopes[f"{layer}weight"], slopes[f"{layer}bias"])
        else:
            rebuilt = _search(simulation, module, uphill, shared, targets, known, iterations)
        errors = input_errors(rebuilt, inputs, known.mean(0))
        attack = "search" if layer is None else "linear layer"
        yield summarise_errors(errors, attack, seen, steps)


def _numbers(inputs: Any) -> bool:
    """Whether inputs are a tensor that has gradients."""
    return isinstance(inputs, Tensor) and inputs.is_floating_point()


def _first_linear(module: nn.Module, inputs: Tensor) -> str | None:
    """How the names of a trained linear layer that reads the inputs as they are begin; None if there is none."""
    found: list[str] = []
    names = {part: f"{plain_name(name)}." if name else "" for name, part in module.named_modules()}

    def note(part: nn.Module, given: tuple[Any, ...]) -> None:
        whole = isinstance(part, nn.Linear) and part.bias is not None and part.weight.requires_grad
        if whole and torch.equal(given[0].flatten(1), inputs.flatten(1).to(given[0])):
            found.append(names[part])

    hooks = [part.register_forward_pre_hook(note) for part in module.modules() if not list(part.children())]
    with torch.no_grad():
        module(inputs)
    for hook in hooks:
        hook.remove()
    return found[0] if found else None


def _search(
    simulation: Simulation,
    module: nn.Module,
    uphill: Vector,
    shared: Tensor,
    targets: Tensor,
    known: Tensor,
    iterations: int,
) -> Tensor:
    """Inputs whose gradient points where the upload points, for at most `_MOST` of the targets."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    labels = targets[:_MOST]

    def gradient(x: Tensor) -> Vector:
        loss = simulation.task.loss(module, (x, labels))
        slopes = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
        return torch.cat([slope.reshape(-1) for slope in slopes]) * shared

    random = generator(simulation.seed, 0, SERVER, "inversion")
    start = torch.randn((len(labels), *known.shape[1:]), generator=random).to(known)
    low, high = float(known.min()), float(known.max())
    return invert_gradient(gradient, uphill, start.clamp(low, high), low=low, high=high, iterations=iterations)
