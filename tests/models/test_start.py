"""Pretrained weights: what is taken and what is refused; frozen parts are constants to the bit."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from support.rounds import part_of
from undrift import Local, Simulation, TensorTask, make
from undrift.algorithms import ALGORITHMS
from undrift.core.server.wire import fingerprint
from undrift.models import Started, fit, freeze, hash_weights, read_weights
from undrift.testing import blobs

FROZEN = ("body.*", "norm.bias")


class Net(nn.Module):
    """A body, a batch norm, a projection and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 6)
        self.norm = nn.BatchNorm1d(6)
        self.projection = nn.Linear(6, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.projection(torch.tanh(self.norm(self.body(x))))))
        return out


def net() -> nn.Module:
    return Net().double()


def constants() -> nn.Module:
    """The same model, in which the frozen tensors are constants: buffers that are no part of its state."""
    module = net()
    for name in ("body.weight", "body.bias", "norm.bias"):
        owner, _, last = name.rpartition(".")
        part = module.get_submodule(owner)
        value = getattr(part, last).detach()
        delattr(part, last)
        part.register_buffer(last, value, persistent=False)
    return module


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("name", [x for x in ALGORITHMS if x != "fedlaw" and not make(x).needs.model])
def test_frozen_parts_are_constants_to_the_bit(name: str) -> None:
    """FedLAW needs proxy data, some methods a model of their own kind."""
    task = replace(blobs((8, 6, 4, 7, 6, 8, 10)), make=net)
    local = Local(lr=0.1, weight_decay=1e-3, clip=0.5, epochs=2, batch_size=4)
    algorithm = make(name)
    states = {}
    for key, build in (("frozen", Started(net, frozen=FROZEN)), ("constant", constants)):
        simulation = Simulation(algorithm, replace(task, make=build), local, failures="raise")
        states[key] = simulation.run(3)
        module: Any = simulation.module(states[key])
        first: Any = task.model()
        assert torch.equal(module.body.weight, first.body.weight)
        assert not torch.equal(module.projection.weight, first.projection.weight)
        if not algorithm.keeps_buffers(local):
            assert not torch.equal(module.norm.running_mean, first.norm.running_mean)
    assert fingerprint(states["frozen"]) == fingerprint(states["constant"])


def test_frozen_parts_get_no_gradient_and_do_not_travel() -> None:
    task = replace(blobs(), make=Started(net, frozen=FROZEN))
    simulation = Simulation("scaffold", task)
    state, record = next(simulation.rounds(1))
    sizes = sum(
        p.numel() for name, p in net().named_parameters() if not name.startswith("body") and name != "norm.bias"
    )
    assert len(state.params) == len(part_of(state, "drift").c) == sizes
    assert record.visits
    assert set(simulation.module(state).state_dict()) == set(net().state_dict())


def test_a_pattern_must_match_and_leave_something() -> None:
    with pytest.raises(ValueError, match=r"no parameter is named 'bodi\.\*'; the model has body\.weight, body\.bias"):
        freeze(net(), ["bodi.*"])
    with pytest.raises(ValueError, match=r"no parameter is named 'body'; write 'body\.\*'"):
        freeze(net(), ["body"])
    with pytest.raises(ValueError, match="leaves nothing to train; freeze fewer"):
        freeze(net(), ["*"])


def test_every_source_gives_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = net().state_dict()
    (tmp_path / "run").mkdir()
    save_file(weights, tmp_path / "w.safetensors")
    save_file(weights, tmp_path / "run" / "model.safetensors")
    torch.save(weights, tmp_path / "w.pt")
    torch.save({"state_dict": weights, "epoch": 3}, tmp_path / "lightning.pt")
    (tmp_path / "ownweights.py").write_text(
        "import torch\nstate = torch.load('w.pt', weights_only=True)\n"
        "def returned(): return state\n"
        "def changed(model): model.load_state_dict(state)\n"
        "def module(model):\n    model.load_state_dict(state)\n    return model\n"
        "nothing = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ownweights", raising=False)
    references = [f"ownweights:{name}" for name in ("state", "returned", "changed", "module")]
    for source in ("w.safetensors", "run", "w.pt", "lightning.pt", *references):
        found = read_weights(source, net)
        assert hash_weights(found) == hash_weights(weights), source
        assert torch.equal(Started(net, found)().body.weight, weights["body.weight"])  # type: ignore[arg-type, union-attr]
    with pytest.raises(ValueError, match="expected a state dict, names with tensors, got int"):
        read_weights("ownweights:nothing")
    with pytest.raises(ValueError, match="it takes a model, and there is none here"):
        read_weights("ownweights:changed")
    sys.path.remove(str(tmp_path))


def test_a_source_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    (tmp_path / "bad.pt").write_bytes(b"nothing")
    for source, reason in (
        (tmp_path / "none.pt", "there is no such file; give a .safetensors or .pt file, a run, or"),
        (tmp_path, "has no model.safetensors; give a run that is finished"),
        (tmp_path / "bad.safetensors", "not a safetensors file"),
        (tmp_path / "bad.pt", "not a state dict saved with torch.save"),
    ):
        with pytest.raises(ValueError, match=reason):
            read_weights(source)


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    torch.save(net(), tmp_path / "whole.pt")  # a pickled module
    with pytest.raises(ValueError, match="not a state dict saved with"):
        read_weights(tmp_path / "whole.pt")


@pytest.mark.quick
def test_each_difference_is_named() -> None:
    weights = dict(net().state_dict())
    weights["head.weight"] = torch.zeros(7, 4)
    weights["extra"] = torch.zeros(1)
    del weights["body.bias"]
    with pytest.raises(ValueError, match=r"missing body\.bias; unexpected extra; head\.weight has shape \(7, 4\) inst"):
        fit(net(), weights)
    module: Any = net()
    before = module.head.weight.clone()
    taken = fit(module, weights, "shapes")
    assert sorted(set(module.state_dict()) - set(taken)) == ["body.bias", "head.weight"]
    assert torch.equal(module.head.weight, before) and torch.equal(module.body.weight, weights["body.weight"])
    with pytest.raises(ValueError, match="no tensor of the weights"):
        fit(net(), {"other": torch.zeros(1)}, "shapes")
    with pytest.raises(ValueError, match="match must be"):
        fit(net(), weights, "some")  # type: ignore[arg-type]


def test_buffers_are_taken() -> None:
    weights = net().state_dict()
    weights["norm.running_mean"] += 3
    weights["norm.num_batches_tracked"] += 5
    simulation = Simulation("fedavg", replace(blobs(), make=Started(net, weights)))
    assert float(simulation.start().buffers[0]) == 3 and int(simulation.start().counts[0]) == 5


def test_a_tensor_with_two_names_is_needed_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.two.weight = self.one.weight

    module = Tied()
    assert fit(module, {"one.weight": torch.ones(2, 2)}) == ["one.weight"]
    assert torch.equal(module.two.weight, torch.ones(2, 2))


def test_peft_trains_and_sends_the_adapters_only() -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=6)

    def build() -> nn.Module:
        base = transformers.GPT2LMHeadModel(config)
        out: nn.Module = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
        return out

    class Words(TensorTask):
        def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            out: Tensor = model(input_ids=batch[0], labels=batch[0]).loss
            return out

    words = torch.randint(11, (8, 6), generator=torch.Generator().manual_seed(0))
    task = Words(build, words, words, [torch.arange(4), torch.arange(4, 8)])
    simulation = Simulation("fedavg", task, Local(lr=0.5, batch_size=2), failures="raise")
    state, first = simulation.run(2), task.model()
    adapters = sum(p.numel() for p in first.parameters() if p.requires_grad)
    assert len(state.params) == adapters == 2 * 8 + 24 * 2
    trained, before = simulation.module(state).state_dict(), first.state_dict()
    moved = {name for name in before if not torch.equal(before[name], trained[name])}
    assert moved and all("lora_" in name for name in moved)


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    torch.save(nn.Linear(1, 1).state_dict(), tmp_path / "w.pt")
    assert list(read_weights("~/w.pt")) == ["weight", "bias"]
