"""The settings of a run: what is trained, on what, how and where; validated before anything starts."""

import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from undrift.algorithms import make
from undrift.blocks import ByExamples, Uniform
from undrift.compose.build import resolve
from undrift.compose.grammar import is_composition, parse, text, with_arguments
from undrift.core.local.amounts import check_population, identity_amount, portable
from undrift.core.local.presets import PAPERS
from undrift.core.local.schedule import Schedule
from undrift.core.local.settings import AMOUNTS, Local
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.selection import check_cohort
from undrift.core.tasks.durations import portable_durations
from undrift.core.tasks.participation import pin_trace
from undrift.data import Augment
from undrift.data.partitions.draw import canonical_text, identity_text
from undrift.engine.round.failures import Failures
from undrift.engine.round.quarantine import Quarantine
from undrift.observe.parts import read_filter
from undrift.runs.settings.engine import EngineConfig
from undrift.runs.settings.goals import Goal, LossText, MetricTexts, TaskText, check_task, drop_data_settings
from undrift.runs.settings.initial_weights import Frozen, Init
from undrift.runs.settings.named_arguments import Named, NamedOrNone, names_owner
from undrift.runs.settings.schema import LISTED, Strict, find_setting, read_toml, validate
from undrift.runs.settings.targets import run_numbers
from undrift.secure.settings import Secure, read_secure, why_not_secure
from undrift.util.naming.calls import Call
from undrift.util.naming.names import suggest

Weights = Literal["paper", "examples", "uniform"]


def replace_weights(algorithm: Algorithm, weights: Weights) -> Algorithm:
    """A method with other weights; raises if it has a rule of aggregation that is more than weights.

    Args:
        algorithm: the method.
        weights: "paper" keeps its own; "examples" and "uniform" override them.

    Example:
        >>> replace_weights(Algorithm(aggregation=ByExamples()), "uniform").aggregation
        Uniform()
    """
    if weights == "paper":
        return algorithm
    if type(algorithm.aggregation) not in (ByExamples, Uniform):
        raise ValueError(
            f"weights: {weights} weights would replace the method's rule of aggregation, "
            f'{type(algorithm.aggregation).__name__}; set weights = "paper" for this method'
        )
    return replace(algorithm, aggregation=ByExamples() if weights == "examples" else Uniform())


def replace_schedule(algorithm: Algorithm, schedule: str | None) -> Algorithm:
    """A method with another schedule; None keeps its own.

    Args:
        algorithm: the method.
        schedule: as text, "buffered(10)".

    Example:
        >>> replace_schedule(Algorithm(), "over-selected(1.5)").schedule
        OverSelected(factor=1.5)
    """
    return algorithm if schedule is None else replace(algorithm, schedule=parse(f"schedule:{schedule}").schedule)


def _duration_values(value: Any) -> Any:
    """Durations that can be used, as data."""
    return None if value is None else portable_durations(value)


def _schedule_text(value: Any) -> Any:
    """A schedule as its canonical text: from a text, or a table with `name` and arguments."""
    if isinstance(value, Mapping):
        named = {key: x for key, x in value.items() if key != "name"}
        if not isinstance(value.get("name"), str):
            raise ValueError('schedule: write name = "buffered" beside the arguments')
        value = str(Call(value["name"], (), named))
    if not isinstance(value, str):
        return value
    try:
        return text(replace_schedule(Algorithm(), value)).removeprefix("schedule:")
    except (TypeError, ValueError) as error:
        raise ValueError(f"schedule: {error}") from None


Positive = Annotated[float, Field(gt=0, le=1e6, strict=True)]
Count = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
Scalar = bool | int | float | str
PartitionText = Annotated[str, AfterValidator(canonical_text)]


_LATER = (
    "probability",
    "availability",
    "sampling",
    "failures",
    "init",
    "frozen",
    "task",
    "loss",
    "quarantine",
    "epsilon",
    "delta",
    "secure",
    "schedule",
    "durations",
)
"""Keys that are in the identity only if they are used: earlier versions did not have them."""
_UNCHANGING = ("engine", "output", "rounds", "stop_after", "target", "metrics", "goal")
"""Keys that are not in the identity: they decide where a run is trained, when it ends, and what is measured."""
_LATER_LOCAL = (
    "schedule",
    "step_schedule",
    "steps",
    "drop_last",
    "deadline",
    "speed",
    "precision",
    "together",
    "example_clip",
    "example_noise",
    "rank",
)

_PRESET: tuple[tuple[str, Any], ...] = (("method", "fedavg"), ("arguments", {}), ("local", {}))
"""The keys that a preset sets, and what they are when not given."""


_OPTIMIZER = (
    'a local optimizer is a part of the method: method = "fedavg + local-sgd(momentum=0.9)" or "fedavg + local-adam"'
)


def _local_arguments(value: Any, info: ValidationInfo) -> Any:
    """The table `local` as arguments of `Local`: a preset gives way to its values, an open cosine ends with the run."""
    values = asdict(value) if isinstance(value, Local) else value
    if not isinstance(values, Mapping):
        return values
    if "preset" in values:
        given = {key: value for key, value in values.items() if key != "preset"}
        try:
            values = asdict(Local.preset(str(values["preset"]))) | given
        except ValueError as error:
            raise ValueError(f"preset: {error}") from None
    schedule = values.get("schedule")
    with suppress(ValueError):  # `Local` refuses it by its name
        if isinstance(schedule, str):
            return {**values, "schedule": str(Schedule.parse(schedule).ending(info.data.get("rounds", 1)))}
    return values


def _whole_run(local: Local, info: ValidationInfo) -> Local:
    """The settings with functions by their references; raises if a round has no learning rate."""
    local.check_rates(0, info.data.get("rounds", 1))
    return replace(local, **{name: portable(f"Local: {name}", getattr(local, name)) for name in AMOUNTS})


class OutputConfig(Strict):
    """What is measured and stored; this does not affect results."""

    evaluate_every: Count = 1
    personal_every: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] | None = None
    checkpoint_every: Count = 1
    keep: Annotated[int, Field(ge=1, le=1000, strict=True)] = 2
    keep_best: bool = False
    track: Annotated[tuple[Literal["tensorboard", "mlflow", "wandb"], ...], LISTED] = ()
    lens_every: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] = 5
    lens_clients: Annotated[int, Field(ge=2, le=10_000_000, strict=True)] = 4
    lens: Annotated[tuple[Literal["spectrum", "divergence", "heterogeneity"], ...], LISTED] = ("spectrum", "divergence")
    lens_filter: str | None = None
    max_idle: Count = 10

    @model_validator(mode="before")
    @classmethod
    def _rename_patience(cls, values: Any) -> Any:
        """Read `patience`, the name that `max_idle` had before; stored settings have it with its default."""
        if not isinstance(values, Mapping) or "patience" not in values:
            return values
        if "max_idle" in values:
            raise ValueError("output.patience is the old name of output.max_idle; leave patience out")
        if values["patience"] != cls.model_fields["max_idle"].default:
            warnings.warn("output.patience is now output.max_idle; patience goes with 0.4", DeprecationWarning, 2)
        return {"max_idle" if key == "patience" else key: value for key, value in values.items()}

    @model_validator(mode="after")
    def _filters(self) -> Self:
        if self.lens_filter is not None:
            try:
                read_filter(self.lens_filter)
            except (ValueError, TypeError) as error:
                raise ValueError(f"output.lens_filter: {error}") from None
        return self


class Config(Strict):
    """A run.

    Args:
        method: an algorithm's name from `undrift list`, with its arguments in `arguments`; or a composition such as
            "scaffold + sam(rho=0.05)", which includes its arguments; or a reference to your own,
            "mypackage.methods:mymethod", with its arguments in either way.
        preset: not a field, but a key: a paper whose values the method's arguments and the local settings have that
            are not given. It is replaced by these values.
        data: a data set's name, a path or a reference, or a table with `name` and arguments of `load` such as `resize`;
            `partition` is how it is split over `clients`: if None 100, fewer for small data, or all clients of a
            natural partition or of lists. Data whose argument `owner` names a column have the partition "natural".
        model: a model's name, or a table with `name` and the model's arguments; None chooses one that fits the data
            and the method.
        init: where the initial weights come from, see `read_weights`; a text or a table with `name` and `match`; None
            draws them from the seed.
        frozen: name patterns of the parameters that do not train, such as "features.*".
        cohort: clients in a round: an int is their number, a float a ratio of all clients; None takes 10.
        probability: instead of a cohort, each client takes part in a round with this probability.
        schedule: when the server steps, "buffered(10)", or a table with `name` and arguments; None is the method's own.
        durations: how long a client's task takes in virtual time: see `undrift.core.tasks.durations`.
        availability: who can take part when: "file:trace.json" or a reference to a function of a client and a round.
        sampling: "uniform", "examples" draws clients by their numbers of examples, or a list has one weight per client.
        failures: "reject" continues without a client whose training fails, "raise" ends the run.
        rounds: rounds in all, at most.
        stop_after: end the run after so many rounds without a better value of what judges it; 0 trains all rounds.
        seed: fixes everything random.
        weights: "paper" keeps the method's own weights; "examples" and "uniform" override them, see `replace_weights`.
        augment: "none", "flip", "crop" or "flip+crop", with arguments as in "flip+crop(padding=8, probability=0.5)".
        holdout: fraction of every client's data that is held out for its own test.
        proxy: how many training examples, balanced over the classes, the server keeps as proxy data: for methods that
            evaluate models on the server (FedLAW). Set it for all methods of a comparison.
        task: instead of data, partition and model, a task of one's own: "package.module:function", a function that
            returns it or the task itself, or a table with `name` and the function's arguments.
        loss: "cross-entropy", "mse", "l1", "bce" or a reference; None takes what fits the data's targets.
        metrics: what is measured on the test set besides: names or references.
        goal: the metric by which the run is judged, with "max" or "min" before it if its name does not tell.
        target: accuracy to reach, or a list of them; the summary has the first round that reaches each. With `task`,
            `loss`, `metrics` or `goal`, the value of the metric that judges.
        bound: largest norm of a client's displacement, and of a round's; None allows any.
        quarantine: a table with the fields of `undrift.Quarantine`; None leaves out no client.
        epsilon: the privacy budget of a method with a private sum; rounds that would spend more are refused.
        delta: the probability that epsilon does not cover; None is population^-1.1.
        secure: true, or a table with the fields of `undrift.Secure`, adds uploads by a protocol in which the server
            sees their sum alone, with the same result; None adds them as they are.
    """

    shorthands = ("preset", "local.preset")
    elsewhere = dict.fromkeys(("local.optimizer", "local.momentum", "local.nesterov", "local.betas"), _OPTIMIZER)

    method: str = "fedavg"
    arguments: dict[str, Scalar] = Field(default_factory=dict)
    data: Named = "fashion-mnist"
    partition: PartitionText = "dirichlet(0.1)"
    clients: Count | None = None
    cohort: int | float | None = None
    probability: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    schedule: Annotated[str | None, BeforeValidator(_schedule_text)] = None
    durations: Annotated[float | str | tuple[float, ...] | None, BeforeValidator(_duration_values)] = None
    availability: Annotated[str, AfterValidator(pin_trace)] | None = None
    sampling: Literal["uniform", "examples"] | tuple[float, ...] = "uniform"
    failures: Failures = "reject"
    rounds: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] = 20
    stop_after: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    model: NamedOrNone = None
    init: Init = None
    frozen: Frozen = ()
    weights: Weights = "paper"
    augment: Annotated[str, AfterValidator(lambda text: str(Augment.parse(text)))] = "none"
    holdout: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.0
    proxy: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    task: TaskText = None
    loss: LossText = None
    metrics: MetricTexts = None
    goal: Goal = None
    target: Annotated[float | tuple[float, ...] | None, BeforeValidator(run_numbers)] = None
    bound: Positive | None = None
    quarantine: Quarantine | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1, strict=True)] | None = None
    secure: Annotated[Secure | None, BeforeValidator(read_secure)] = None
    local: Annotated[Local, BeforeValidator(_local_arguments), AfterValidator(_whole_run)] = Local()
    engine: EngineConfig = EngineConfig()
    output: OutputConfig = OutputConfig()

    @field_validator("cohort", mode="before")
    @classmethod
    def _number_or_ratio(cls, value: Any) -> Any:
        count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000_000
        if value is None or count or (isinstance(value, float) and 0 < value <= 1):
            return value
        raise ValueError(
            "cohort: write a number of clients, 1 or more (cohort = 10), or a ratio of them in (0, 1] "
            f"(cohort = 0.1), got {str(value)[:80]!r}"
        )

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        """Replace the preset by its values; those that are given override them, and so does a preset of `local`."""
        if not isinstance(values, Mapping) or "preset" not in values:
            return values
        given = {key: value for key, value in values.items() if key != "preset"}
        method, arguments, local = (given.get(key, empty) for key, empty in _PRESET)
        if not (isinstance(method, str) and isinstance(arguments, Mapping) and isinstance(local, Mapping)):
            return given
        if (name := values["preset"]) not in tuple(PAPERS):
            raise ValueError(f"preset: no preset is named {name!r}; {suggest(str(name), PAPERS)}")
        found = resolve(name, method, arguments)
        own = local if "preset" in local else {**found.local, **local}
        return {**given, "method": found.method, "arguments": found.arguments, "local": own}

    @model_validator(mode="before")
    @classmethod
    def _keep_owners(cls, values: Any) -> Any:
        """Data whose column of owners is named are split by it, unless a partition is given."""
        if isinstance(values, Mapping) and "partition" not in values and names_owner(values.get("data")):
            return {**values, "partition": "natural"}
        return values

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.cohort is not None and self.probability is not None:
            raise ValueError(
                f"probability: give cohort or probability, not both, got {self.cohort} and {self.probability}"
            )
        check_task(dict(self), {name: field.default for name, field in type(self).model_fields.items()})
        if self.clients and isinstance(self.cohort, int) and self.cohort > self.clients:
            raise ValueError(f"cohort: {self.cohort} clients per round, but there are only {self.clients} clients")
        try:
            algorithm = self.algorithm()
        except (TypeError, ValueError) as error:
            raise ValueError(self._explanation(error)) from error
        self._check_participation(algorithm)
        if algorithm.needs.proxy and not self.proxy and self.task is None:
            raise ValueError(f"proxy: {self.method} needs proxy data at the server; set proxy = 200")
        if self.secure is not None and (why := self._why_not_secure(algorithm)):
            raise ValueError(f"secure: {why}")
        return self

    def _check_participation(self, algorithm: Algorithm) -> None:
        """Raise if lists do not fit the number of clients, or if such a cohort cannot be drawn or selected."""
        if self.probability is not None and self.sampling != "uniform":
            raise ValueError("sampling: weights need a cohort of fixed size; give cohort instead of probability")
        if isinstance(self.cohort, int) or self.probability is not None:
            check_cohort(algorithm.selection, self.cohort if isinstance(self.cohort, int) else None)
        if self.clients is not None:
            self.local.check_population(self.clients)
            check_population("sampling", self.sampling, self.clients)

    def _why_not_secure(self, algorithm: Algorithm) -> str:
        """Why the run cannot have secure sums; "" if it can."""
        if self.engine.name != "local":
            return f'the {self.engine.name} engine adds uploads where they are trained; set engine.name = "local"'
        if self.output.lens_every:
            return "the lens reads uploads of single clients, which a secure sum hides; set output.lens_every = 0"
        return why_not_secure(algorithm, self.local)

    def _explanation(self, error: TypeError | ValueError) -> str:
        """Why the method cannot be built; an argument with the name of a setting is taken for that setting."""
        text = str(error)
        for key in self.arguments:
            refused = self._is_composition or f"unexpected keyword argument {key!r}" in text
            if refused and (found := find_setting(type(self), key)):
                return f"{key}: unknown setting; did you mean {found!r}?"
            if refused and text.endswith("it takes no arguments"):
                return f"{key}: unknown setting, and {self.method} takes no arguments; see undrift show {self.method}"
        if isinstance(error, TypeError):
            return f"{'method' if self._is_composition else f'arguments of {self.method}'}: {text}"
        return text if text.startswith(("method", "arguments", "weights")) else f"method: {text}"

    @classmethod
    def read(cls, path: Path) -> "Config":
        """A run from a TOML file, or from the folder of a run."""
        file = path / "config.toml" if path.is_dir() else path
        return cls.build(read_toml(file), str(file))

    @classmethod
    def build(cls, values: Mapping[str, Any], source: str = "the settings") -> "Config":
        """A run from a mapping; raises a `ConfigError` that names every invalid key."""
        return validate(cls, values, source)

    def algorithm(self) -> Algorithm:
        """The method, with the weights that `weights` selects."""
        if self._is_composition:
            algorithm = parse(with_arguments(self.method, self.arguments))
        else:
            algorithm = make(self.method, preset=None, **self.arguments)
        return replace_schedule(replace_weights(algorithm, self.weights), self.schedule)

    @property
    def _is_composition(self) -> bool:
        """Whether the method is a composition rather than a name."""
        return is_composition(self.method)

    def identity(self) -> str:
        """The SHA-256 of everything the result depends on, except the number of rounds; not of where it runs."""
        unused = {name for name in _LATER if getattr(self, name) == type(self).model_fields[name].default}
        values = self.model_dump(exclude={*_UNCHANGING, *unused})
        values["partition"] = identity_text(self.partition)
        unused = {k for k in _LATER_LOCAL if values["local"][k] == getattr(Local, k)}
        values["local"] = {k: x for k, x in values["local"].items() if k not in unused}
        values["local"] |= {k: identity_amount(x) for k, x in values["local"].items() if k in AMOUNTS}
        return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def toml(self) -> str:
        """All settings as TOML, for `read`."""
        return tomli_w.dumps(drop_data_settings(self.model_dump(exclude_none=True)))

    @property
    def subject(self) -> str:
        """What it trains on: its task, or its data."""
        return self.task or self.data
