"""Where a model starts: weights from a file, a run or a function, and parts that are frozen.

A task calls `make` for every model, on every worker, so this is where both belong: `Started` wraps a `make` and carries
the weights with it. Frozen parameters do not require a gradient. They are no part of the model's vector: they neither
train nor travel, no method sees them, and the model behaves as one in which they are constants.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from undrift.core.model.flat_model import bytes_of
from undrift.core.model.modules import plain_name, plain_state
from undrift.util.naming.references import Reference

Weights: TypeAlias = Mapping[str, Tensor]
Match = Literal["all", "shapes"]

MODEL = "model.safetensors"
"""The file of a run's folder with its final model."""


@dataclass(frozen=True, eq=False)
class Started:
    """Builds models that start from given weights or have frozen parts; use it as the `make` of a task.

    Args:
        make: builds the model; it can be sent to workers, and so can this object.
        weights: a state dict, as `read_weights` returns it; None keeps the weights of `make`.
        match: how tensors are matched, see `fit`.
        frozen: name patterns of the parameters that do not train, see `freeze`.

    Example:
        >>> weights = {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}
        >>> model = Started(lambda: nn.Linear(2, 1), weights, frozen=("bias",))()
        >>> model.weight.tolist(), model.bias.requires_grad
        ([[1.0, 1.0]], False)
    """

    make: Callable[[], nn.Module]
    weights: Weights | None = None
    match: Match = "all"
    frozen: tuple[str, ...] = ()

    def __call__(self) -> nn.Module:
        """A new model."""
        module = self.make()
        if self.weights is not None:
            fit(module, self.weights, self.match)
        return freeze(module, self.frozen)


def read_weights(source: str | Path, make: Callable[[], nn.Module] | None = None, seed: int = 0) -> dict[str, Tensor]:
    """The state dict that a source holds, on the CPU.

    Args:
        source: a safetensors file; a .pt or .pth file with a state dict, alone or under the key "state_dict"; the
            folder of a run; or a reference "package.module:object" to a state dict, a module, or a function that
            returns one of them. A function that takes an argument is given a new model, and may change it in place.
            In a path "~" is the home folder.
        make: builds the model for such a function.
        seed: fixes what `make` and the function draw.
    """
    path = find_weights(source)
    if isinstance(path, Reference):
        return _state(_resolve_weights(path, make, seed), str(source))
    try:
        return _state(load(path.read_bytes()) if path.suffix == ".safetensors" else _torch_file(path), str(path))
    except SafetensorError as error:
        raise ValueError(f"{path}: not a safetensors file: {error}; save it with safetensors.torch.save_file") from None


def find_weights(source: str | Path) -> Path | Reference:
    """The file or the reference that a source names; raises if there is no such file."""
    path, reference = Path(source).expanduser(), Reference.parse(str(source))
    if reference is not None and not path.exists():
        return reference
    if path.is_dir():
        path = path / MODEL
        if not path.exists():
            raise ValueError(f"{source}: this folder has no {MODEL}; give a run that is finished, or a file")
    if not path.is_file():
        raise ValueError(
            f"{source}: there is no such file; give a .safetensors or .pt file, a run, or package.module:object"
        )
    return path


def fit(module: nn.Module, weights: Weights, match: Match = "all") -> list[str]:
    """Copy weights into a model, parameters and buffers by their names, and return the names that were copied.

    Args:
        module: the model.
        weights: a state dict.
        match: "all" wants exactly the model's tensors; "shapes" takes those whose name and shape agree, at least one,
            and leaves the model's other tensors as they are, as a new head.
    """
    if match not in get_args(Match):
        raise ValueError(f'match must be "all" or "shapes", got {match!r}')
    own = plain_state(module)
    fitting = [name for name, x in own.items() if name in weights and weights[name].shape == x.shape]
    if match == "all":
        problems = _problems(own, weights)
        if problems:
            raise ValueError(
                f'the weights do not fit the model: {"; ".join(problems)}; match = "shapes" takes the rest'
            )
    if not fitting:
        there, wanted = (", ".join(list(names)[:3]) for names in (weights, own))
        raise ValueError(f"no tensor of the weights ({there}, ...) has a name and shape of the model ({wanted}, ...)")
    with torch.no_grad():
        for name in fitting:
            own[name].copy_(weights[name])
    return fitting


def freeze(module: nn.Module, patterns: Sequence[str]) -> nn.Module:
    """Freeze the parameters whose names match a pattern, and return the model.

    Running statistics of frozen layers still move in training, as in PyTorch.

    Args:
        module: the model.
        patterns: such as "features.*"; each must match a parameter, and one parameter must remain to be trained.
    """
    named = [(plain_name(name), parameter) for name, parameter in module.named_parameters()]
    names = [name for name, _ in named]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            inside = any(name.startswith(f"{pattern}.") for name in names)
            advice = f"write {pattern + '.*'!r}" if inside else f"the model has {', '.join(names)}"
            raise ValueError(f"frozen: no parameter is named {pattern!r}; {advice}")
    for name, parameter in named:
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if patterns and not any(p.requires_grad for p in module.parameters()):
        raise ValueError(f"frozen: {', '.join(map(repr, patterns))} leaves nothing to train; freeze fewer parameters")
    return module


def hash_weights(weights: Weights) -> str:
    """The SHA-256 of all names, types, shapes and values, whatever file they come from."""
    digest = sha256()
    for name in sorted(weights):
        x = weights[name]
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(bytes_of(x))
    return digest.hexdigest()


def _problems(own: Weights, weights: Weights) -> list[str]:
    """In what a state dict differs from the model's: missing, unexpected and wrong tensors, each by name.

    A tensor that the model has under two names needs to be there under one of them.
    """
    given = {x.data_ptr() for name, x in own.items() if name in weights}
    missing = [name for name, x in own.items() if name not in weights and x.data_ptr() not in given]
    unexpected = [name for name in weights if name not in own]
    wrong = [
        f"{name} has shape {tuple(weights[name].shape)} instead of {tuple(x.shape)}"
        for name, x in own.items()
        if name in weights and weights[name].shape != x.shape
    ]
    lists = (("missing", missing), ("unexpected", unexpected))
    return [f"{what} {', '.join(names)}" for what, names in lists if names] + wrong


def _torch_file(path: Path) -> Any:
    """The content of a file of torch.save: tensors only, no code is run."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{path}: not a state dict saved with torch.save(model.state_dict(), ...): {reason}; give a .safetensors "
            "file, or a .pt file with tensors only"
        ) from None


def _resolve_weights(reference: Reference, make: Callable[[], nn.Module] | None, seed: int) -> Any:
    """The value of a reference; a function is called, with a new model if it takes one."""
    value = reference.resolve()
    if isinstance(value, nn.Module | Mapping) or not callable(value):
        return value
    needed = [p for p in signature(value).parameters.values() if p.default is Parameter.empty and p.kind < 2]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if not needed:
            return value()
        if make is None:
            raise ValueError(
                f"{reference}: it takes a model, and there is none here; write a function without arguments"
            )
        module = make()
        found = value(module)
    return module if found is None else found


def _state(found: Any, source: str) -> dict[str, Tensor]:
    """The state dict in the content of a source."""
    found = plain_state(found) if isinstance(found, nn.Module) else found
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"{source}: expected a state dict, names with tensors, got {type(found).__name__}")
    odd = [name for name, x in found.items() if not isinstance(x, Tensor)]
    if odd:
        raise ValueError(
            f"{source}: expected a state dict, names with tensors; {odd[0]!r} is {type(found[odd[0]]).__name__}"
        )
    return {plain_name(str(name)): x.detach().cpu().clone() for name, x in found.items()}
