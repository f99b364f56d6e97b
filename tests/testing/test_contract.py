"""Every block and algorithm keeps the contract, and the contract catches those that do not."""

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch

from support.refusals import BAD, Bad
from support.registry import BLOCKS, HOSTS, SCHEDULES, SPECTRAL
from undrift import Algorithm, blocks
from undrift.algorithms import ALGORITHMS
from undrift.blocks import SAM, Scaffold
from undrift.core.method.aggregation import Robust
from undrift.core.method.block import AnyBlock, Correction, Personalization, Perturbation
from undrift.core.model.flat_model import Vector
from undrift.core.records.types import Array
from undrift.testing import ContractError, check_algorithm, check_block, contract

PAIRS = [(slot, block) for slot, instances in BLOCKS.items() for block in instances]


@pytest.mark.quick(by=lambda slot, block: slot)
@pytest.mark.sweep(every=20)
@pytest.mark.parametrize(("slot", "block"), PAIRS, ids=str)
def test_block_keeps_the_contract(slot: str, block: AnyBlock) -> None:
    check_block(block, slot, HOSTS.get(type(block)))


@pytest.mark.quick
@pytest.mark.sweep(every=48)
@pytest.mark.parametrize("spectral", [s for s in SPECTRAL if isinstance(s, blocks.Filters)], ids=str)
def test_filter_keeps_the_contract(spectral: blocks.Filters) -> None:
    check_algorithm(Algorithm(perturbation=SAM(0.1), spectral=spectral))


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("schedule", SCHEDULES[:1], ids=str)
def test_schedule_keeps_the_contract(schedule: AnyBlock) -> None:
    check_block(schedule)


@pytest.mark.sweep(every=4)
def test_fednova_with_momentum_and_pull_keeps_the_contract() -> None:
    """Its rule is refused without them."""
    check_algorithm(ALGORITHMS["fednova"](0.5, 0.3))


@pytest.mark.sweep(every=32)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_keeps_the_contract(name: str) -> None:
    check_algorithm(ALGORITHMS[name]())


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.message[:40])
def test_bad_input_is_refused(bad: Bad) -> None:
    with pytest.raises(bad.error) as refused:
        bad.make(*bad.arguments)
    assert bad.message in str(refused.value)


def test_registry_holds_every_block() -> None:
    held = {type(block).__name__ for block in (*(block for _, block in PAIRS), *SCHEDULES)}
    filters = [f for s in SPECTRAL if isinstance(s, blocks.Filters) for f in (s.gradient, s.perturbation)]
    held |= {type(f).__name__ for f in filters if f is not None}
    assert held | {"Filter", "Filters"} == set(blocks.__all__)


class Memory(NamedTuple):
    """A tree of one vector."""

    v: Vector


class Number(NamedTuple):
    """A tree of one number."""

    n: float


class Piece(NamedTuple):
    """A tree of some values of a model."""

    values: Array


@dataclass(frozen=True)
class Undeclared(Correction[None, None, None, Memory]):
    """Uploads what it did not declare in the right type."""

    def finish(self, state: Any, end: Any) -> Any:
        return (end.delta.clone(),), None


@dataclass(frozen=True)
class WrongLength(Correction[None, None, None, Memory]):
    """Uploads a vector that is too short."""

    def finish(self, state: Any, end: Any) -> Any:
        return Memory(end.delta[:3].clone()), None


@dataclass(frozen=True)
class Scribbler(Correction[Memory, None, Memory]):
    """Changes what the server sent."""

    def init_server(self, w: Any) -> Any:
        return Memory(torch.zeros_like(w))

    def send(self, view: Any) -> Any:
        return view.state

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        sent.v.add_(1.0)
        return sent


@dataclass(frozen=True)
class Forgetful(Correction[None, Memory]):
    """Keeps state on its class, where no checkpoint sees it."""

    memory = {"calls": 0}  # noqa: RUF012

    def init_client(self, w: Any) -> Any:
        return Memory(torch.zeros_like(w))

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        self.memory["calls"] += 1
        return grad.mul_(1.0 + self.memory["calls"] * 1e-3)

    def finish(self, state: Any, end: Any) -> Any:
        return None, state


@dataclass(frozen=True)
class Divider(Perturbation):
    """Divides by a norm that may be zero."""

    gradients = 1

    def perturb(self, state: Any, step: Any) -> Any:
        gradient = step.gradient()
        return 0.1 * gradient / torch.linalg.vector_norm(gradient)


@dataclass(frozen=True)
class OrderDependent(Robust):
    """Combines in a way that depends on the order of uploads it has seen."""

    def gather(self, uploads: Any, ups: Any, view: Any) -> Any:
        total = torch.zeros_like(uploads[0].delta)
        for upload in sorted(uploads, key=id):
            total = total * 0.9 + upload.delta
        return total, None


class NotFrozen(Correction):
    """A block that is no dataclass of its own, and cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]


class _Kept:
    """What a faulty block keeps within a visit."""

    gradient: Vector | None = None


@dataclass(frozen=True)
class KeepsGradient(Perturbation[None, None, None, None, _Kept]):
    """Keeps step.gradient() without a clone until the next gradient has overwritten it."""

    gradients = 1

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return _Kept()

    def perturb(self, state: Any, step: Any) -> Any:
        state.gradient = step.gradient()
        return 0.1 * state.gradient

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        return grad.mul(0.5).add_(state.gradient, alpha=0.5)


@dataclass(frozen=True)
class KeepsDirection(Correction[None, None, None, None, _Kept]):
    """Keeps the buffer handed to `adjust` as if it were a momentum."""

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return _Kept()

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        out = grad if state.gradient is None else grad.add_(state.gradient, alpha=0.1)
        state.gradient = out
        return out


@dataclass(frozen=True)
class WritesModel(Correction):
    """Moves the model itself."""

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        step.w.sub_(grad, alpha=0.01)
        return grad


@dataclass(frozen=True)
class WritesDelta(Correction):
    """Scales the displacement that is uploaded."""

    def finish(self, state: Any, end: Any) -> Any:
        end.delta.mul_(0.5)
        return None, None


@dataclass(frozen=True)
class WritesDecorated(Correction):
    """Moves the model itself, in a hook with a decorator."""

    @torch.no_grad()
    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        step.w.sub_(grad, alpha=0.01)
        return grad


@dataclass(frozen=True)
class KeepsModel(Correction[None, Memory]):
    """Keeps the worker's model instead of a copy."""

    def init_client(self, w: Any) -> Any:
        return Memory(w.clone())

    def finish(self, state: Any, end: Any) -> Any:
        return None, Memory(end.w)


@dataclass(frozen=True)
class UploadsDelta(Correction[None, None, None, Memory]):
    """Uploads the displacement itself, which the next client overwrites while a rule holds all uploads."""

    def finish(self, state: Any, end: Any) -> Any:
        return Memory(end.delta[:]), None


@dataclass(frozen=True)
class KeepsDelta(KeepsModel):
    """Keeps the worker's displacement instead of a copy."""

    def finish(self, state: Any, end: Any) -> Any:
        return None, Memory(end.delta)


@dataclass(frozen=True)
class SendsModel(Correction[None, None, None, Memory]):
    """Uploads the worker's model instead of a copy."""

    def finish(self, state: Any, end: Any) -> Any:
        return Memory(end.w), None


@dataclass(frozen=True)
class UncountedSAM(Perturbation):
    """Computes a gradient that it does not declare."""

    def perturb(self, state: Any, step: Any) -> Any:
        return 0.1 * step.gradient()


@dataclass(frozen=True)
class ChangesRate(Correction):
    """Changes the learning rate of the round."""

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        step.lr = 0.5 * step.lr
        return grad


@dataclass(frozen=True)
class ForcesRate(Correction):
    """The same past the frozen view."""

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        object.__setattr__(step, "lr", 0.5 * step.lr)
        return grad


@dataclass(frozen=True)
class DrawsFromTorch(Correction):
    """Draws from torch's global generator."""

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        return grad.add_(torch.randn_like(grad), alpha=0.01)


@dataclass(frozen=True)
class DrawsFromPython(Correction):
    """Draws from Python's global generator."""

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        return grad.mul_(1 + 0.01 * random.random())


@dataclass(frozen=True)
class KeepsOnSelf(Correction):
    """Counts its calls on itself, past the frozen dataclass."""

    calls: list[int] = field(default_factory=list, compare=False, hash=False)

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        self.calls.append(step.step)
        return grad


COUNTED: list[float] = []


@dataclass(frozen=True)
class DependsOnOthers(Correction[None, None, None, Number]):
    """Uploads how many clients were trained before it."""

    def finish(self, state: Any, end: Any) -> Any:
        COUNTED.append(1.0)
        return Number(float(len(COUNTED))), None


@dataclass(frozen=True)
class Leaks(Personalization[None, None, None, Piece]):
    """Keeps the head private and uploads it in an array of its own, scaled."""

    scale: float = 1.0

    def shared(self, layout: Any) -> Any:
        return layout.mask(lambda name, _: not name.startswith("head"))

    def sizes(self) -> Any:
        return {"values": 4}

    def finish(self, state: Any, end: Any) -> Any:
        return Piece(self.scale * end.w[~self.shared(end.layout)][:4]), None


@dataclass(frozen=True)
class ReadsUndeclared(Correction):
    """Looks at another slot without saying so."""

    def adjust(self, grad: Any, state: Any, step: Any) -> Any:
        step.peer("momentum", object)
        return grad


@dataclass(frozen=True)
class CountsUndeclared(Correction):
    """Counts labels without saying so."""

    def finish(self, state: Any, end: Any) -> Any:
        end.label_counts()
        return None, None


@dataclass(frozen=True)
class Reports(Correction):
    """Reports whatever it is given, under the one name it declares or another."""

    value: object = 1.0
    name: str = "norm"

    reports = ("norm",)

    def finish(self, state: Any, end: Any) -> Any:
        end.report(self.name, self.value)
        return None, None


@dataclass(frozen=True)
class ReportsUndeclared(Correction):
    """Reports without declaring any name."""

    def receive(self, delta: Any, up: Any, view: Any) -> Any:
        view.report("norm", 1.0)
        return delta, view.state


@dataclass(frozen=True)
class ReportChanges(Correction[Memory, None, Memory]):
    """Changes what it holds, which is what all clients were sent."""

    reports = ("norm",)

    def init_server(self, w: Any) -> Any:
        return Memory(torch.zeros_like(w))

    def send(self, view: Any) -> Any:
        return view.state

    def begin(self, sent: Any, kept: Any, start: Any) -> Any:
        return sent

    def finish(self, state: Any, end: Any) -> Any:
        end.report("norm", state.v.add_(1.0).norm())
        return None, None


@dataclass(frozen=True)
class ReportsWhileGathering(Robust):
    """Reports in gather what it did not declare."""

    def gather(self, uploads: Any, ups: Any, view: Any) -> Any:
        view.report("chosen", [1.0 for _ in uploads])
        return uploads[0].delta.double(), None


@pytest.mark.quick
@pytest.mark.parametrize(
    ("block", "slot", "promise"),
    [
        (
            Reports(name="other"),
            "drift",
            r"drift=Reports.finish reports 'other': declare it, reports = \('other', ...\)",
        ),
        (Reports(float("nan")), "drift", r"Reports.finish reports nan as 'norm': leave out what is not finite"),
        (Reports("3"), "drift", r"Reports.finish reports '3' as 'norm': report numbers, or tensors of one element"),
        (
            ReportsUndeclared(),
            "drift",
            r"drift=ReportsUndeclared.receive reports 'norm': declare it, reports = \('norm', ...\)",
        ),
        (
            ReportChanges(),
            "drift",
            r"drift=ReportChanges changed what was sent or kept while it trained: .* let begin clone",
        ),
        (ReportsWhileGathering(), None, r"aggregation=ReportsWhileGathering.gather reports 'chosen': declare it"),
        (ReadsUndeclared(), "drift", r'reads the momentum slot: declare Needs\(reads=\("momentum",\)\)'),
        (CountsUndeclared(), "drift", r"counts labels: declare Needs\(labels=True\)"),
        (Undeclared(), "drift", "drift must be a Memory|part"),
        (WrongLength(), "drift", "rejected|length|vector"),
        (Scribbler(), "drift", r"drift=Scribbler.begin changed sent: all clients share it; clone it first"),
        (Forgetful(), "drift", r"Forgetful.adjust changed self: a block is immutable .* return state from begin"),
        (Divider(), None, "not finite|rejected|value is not finite"),
        (OrderDependent(), None, "another order .* combine uploads in a fixed order|two runs with one seed differ"),
        (NotFrozen(), "drift", "immutable"),
        (KeepsGradient(), None, "perturbation=KeepsGradient keeps a gradient or .*: clone what you keep"),
        (KeepsDirection(), "drift", "drift=KeepsDirection keeps a gradient or a direction .*: clone what you keep"),
        (WritesModel(), "drift", r"WritesModel.adjust changed step.w: the loop moves the model; return a direction"),
        (WritesDecorated(), "drift", r"WritesDecorated.adjust changed step.w: the loop moves the model"),
        (KeepsModel(), "drift", r"KeepsModel.finish returns end.w itself, .*: return end.w.clone\(\)"),
        (KeepsDelta(), "drift", r"KeepsDelta.finish returns end.delta itself, .*: return end.delta.clone\(\)"),
        (UploadsDelta(), "drift", r"UploadsDelta.finish returns end.delta itself, .*: return end.delta.clone\(\)"),
        (SendsModel(), "drift", r"SendsModel.finish returns end.w itself, .*: return end.w.clone\(\)"),
        (UncountedSAM(), None, r"perturb computes 1 gradients in a step and declares 0, .* gradients return 1"),
        (WritesDelta(), "drift", r"WritesDelta.finish changed end.delta: the upload is the loop's"),
        (ChangesRate(), "drift", "'lr': a view is frozen; settings are the loop's; scale the gradient instead"),
        (ForcesRate(), "drift", r"ForcesRate.adjust changed step.lr: settings are the loop's; scale the gradient"),
        (DrawsFromTorch(), "drift", r"drew from torch's global generator: draw from view.random\(purpose\)"),
        (DrawsFromPython(), "drift", r"drew from Python's global generator: draw from view.random\(purpose\)"),
        (KeepsOnSelf(), "drift", r"KeepsOnSelf.adjust changed self: a block is immutable"),
        (
            DependsOnOthers(),
            "drift",
            "keeps something else when other clients train before it: keep nothing",
        ),
        (Leaks(0.1), None, "values carries values of a client's private part: upload only what personalization.share"),
        (Leaks(), None, "values carries values of a client's private part: upload only what personalization.share"),
    ],
    ids=lambda x: type(x).__name__ if hasattr(x, "home") else "",
)
@pytest.mark.sweep(every=2)
def test_contract_catches(block: AnyBlock, slot: str | None, promise: str) -> None:
    with pytest.raises(ContractError, match=promise):
        check_block(block, slot)


@dataclass(frozen=True)
class Unsized(Correction[None, None, None, Piece]):
    """Uploads an array whose length it does not declare."""

    def finish(self, state: Any, end: Any) -> Any:
        return Piece(end.delta[:4]), None


def test_an_array_without_a_length_is_refused_when_the_algorithm_is_built() -> None:
    message = (
        r"drift=Unsized: Piece.values is an Array: declare its length in sizes\(\), .* return {'values': 10}, or send "
        "an Array of this name"
    )
    with pytest.raises(TypeError, match=message):
        Algorithm(drift=Unsized())
    with pytest.raises(TypeError, match=message):
        check_block(Unsized())


@dataclass(frozen=True)
class Misspelt(Correction[None, None, None, None]):
    """Means `correct`."""

    def ajust(self, state: None, g: Vector, step: object) -> Vector:
        return g


def test_a_misspelt_hook_is_named() -> None:
    with pytest.raises(ContractError, match=r"Misspelt.ajust is no hook and is never called; is adjust meant\?"):
        check_block(Misspelt())


@pytest.mark.sweep(every=4)
def test_what_was_checked_is_printed(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    check_block(Scaffold())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "drift=Scaffold keeps the contract; 13 checks passed:" and len(lines) == 14
    about = "Stopping, writing everything down and going on equals going on, bit for bit."
    assert lines[6].split(maxsplit=1) == ["resume", about]
    assert not caplog.records  # nothing about the odd clients of the checks


def test_all_checks_compute_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation takes one for a small model by itself; visits outside of it had torch's, and so other bits."""
    found = []
    monkeypatch.setattr(contract, "_checks", lambda: (lambda *_: found.append(torch.get_num_threads()),))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        check_block(SAM(0.1))
        assert (found, torch.get_num_threads()) == ([1], 3)
    finally:
        torch.set_num_threads(before)
