"""Adapters of peft on tiny Roberta, Llama and GPT-2: pairs, orientation, exact aggregation, heads and bytes."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.hugging_face import need
from support.peft_models import LOCAL, MODELS, gpt2, task
from undrift import Simulation
from undrift.algorithms import make
from undrift.blocks import Folded
from undrift.compose.grammar import parse
from undrift.core.model.flat_model import Layout, bind
from undrift.core.model.pairs import find_pairs, mask_of
from undrift.core.tasks.model_factory import initial_model
from undrift.lens import client_vectors
from undrift.models import add_cores, fold_cores, open_base
from undrift.runs.reading.pretrained import write_pretrained

need("transformers", "peft")


def merged(name: str, layout: Layout, v: Tensor, base: bool) -> dict[str, Tensor]:
    """The weights of the model that peft merges, at a vector."""
    model = initial_model(partial(MODELS[name], base), task(name).seed)
    bound = bind(model)
    assert bound.layout.names == layout.names
    bound.place(v)
    whole: Any = deepcopy(model)
    return {key: x.detach().clone() for key, x in whole.merge_and_unload().state_dict().items()}


def layout_of(name: str, base: bool = False) -> tuple[Layout, Tensor]:
    bound = bind(initial_model(partial(MODELS[name], base), task(name).seed))
    return bound.layout, bound.w.clone()


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("name", MODELS)
def test_pairs_have_the_products_of_peft(name: str) -> None:
    """W + s B A by our orientation and scale is what peft merges."""
    layout, w = layout_of(name, base=True)
    found = merged(name, layout, w, True)
    tensors = layout.split(w)
    pairs = find_pairs(layout)
    assert len(pairs) == {"roberta": 4, "llama": 7, "gpt2": 4}[name]
    for pair in pairs:
        assert pair.base is not None
        b, a = pair.factors(tensors)
        key = next(key for key in found if pair.layer.endswith(key.removesuffix(".weight")) and key.endswith("weight"))
        torch.testing.assert_close(tensors[pair.base] + 2.0 * pair.stored(b @ a), found[key], rtol=1e-6, atol=1e-9)
        embedding = "embed" in pair.layer
        assert pair.transposed == (name == "gpt2" or embedding) and pair.zero == (pair.a if embedding else pair.b)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("method", ["fedex-lora(scale=2.0)", "flora(scale=2.0)"])
@pytest.mark.parametrize("name", MODELS)
def test_the_aggregated_model_is_the_mean_of_the_clients_models(name: str, method: str) -> None:
    """Every merged weight of the global model is the weighted mean of the clients' merged weights."""
    simulation = Simulation(parse(method), task(name, True), LOCAL, failures="raise")
    state = simulation.start()
    layout, _ = layout_of(name, True)
    base = mask_of(layout, "base")
    moves = client_vectors(simulation, state, range(3), "update").masked_fill(base, 0.0)
    each = [merged(name, layout, state.params + move, True) for move in moves]
    got = merged(name, layout, simulation.round(state)[0].params, True)
    shares = torch.tensor([4, 5, 7], dtype=torch.float64) / 16
    for key, x in got.items():
        if x.is_floating_point():
            mean = torch.stack([p * one[key].double() for p, one in zip(shares, each, strict=True)]).sum(0)
            torch.testing.assert_close(x.double(), mean, rtol=1e-6, atol=1e-8, msg=lambda m, key=key: f"{key}: {m}")  # type: ignore[misc]
    assert any(not torch.allclose(one[key].double(), got[key].double(), atol=1e-6) for one in each for key in got)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "method", ["ffa-lora", "rolora", "fedsvd", "fedrot-lora", "flexlora", "lora-fair", "fedsa-lora"]
)
def test_every_method_trains_models_of_peft(name: str, method: str) -> None:
    """Heads travel, and a second process would find the same bits."""
    paths = []
    for _ in range(2):
        simulation = Simulation(make(method), task(name), LOCAL, failures="raise")
        state = simulation.start()
        layout, _ = layout_of(name)
        first = state.params.clone()
        for _ in range(2):
            state, _ = simulation.round(state)
        paths.append(state.params)
        moved = layout.named(state.params != first)
        heads = [x.any() for key, x in moved.items() if "classifier" in key]
        assert all(heads) != (method == "fedsa-lora" and name == "roberta") or not heads
        frozen = mask_of(layout, "other") if method == "ffa-lora" else torch.zeros(layout.size, dtype=torch.bool)
        assert not (state.params != first)[frozen].any() and (state.params != first).any()
    assert torch.equal(*paths)


@pytest.mark.parametrize(("name", "method"), [("roberta", "ravan"), ("gpt2", "ravan"), ("gpt2", "fed-sb(scale=2.0)")])
def test_cores_in_models_of_peft(name: str, method: str, tmp_path: Path) -> None:
    """Of GPT-2 the weight is stored the other way round; the exported adapter and the merged model compute the same."""
    from peft import PeftModel

    base = "fed-sb" in method

    def make_model() -> nn.Module:
        return add_cores(MODELS[name](base), heads=1 if base else 2).double()

    found = task(name, make=make_model)
    simulation = Simulation(parse(method), found, LOCAL, failures="raise")
    state = simulation.start()
    layout, first = bind(initial_model(make_model, found.seed)).layout, state.params.clone()
    for _ in range(3):
        before, (state, _) = state, simulation.round(state)
    moved = layout.named(state.params != before.params)
    assert all(
        x.any()
        for key, x in moved.items()
        if key.endswith(("original0", "classifier.modules_to_save.default.out_proj.weight"))
    )
    assert not any(x.any() for key, x in moved.items() if ".frame" in key or "lora_A" in key or "base_layer" in key)
    assert (
        layout.named(first != state.params)["base_model.model.transformer.h.0.attn.c_attn.lora_A.default.weight"].any()
        if base
        else True
    )
    module: Any = simulation.module(state)
    module.eval()
    rows = torch.randint(3, 40, (2, 8), generator=torch.Generator().manual_seed(1))
    expected = module(input_ids=rows).logits
    whole: Any = deepcopy(module)
    whole = whole.merge_and_unload()
    torch.testing.assert_close(whole(input_ids=rows).logits, expected, rtol=1e-9, atol=1e-11)
    fold_cores(module)
    module.save_pretrained(tmp_path)
    plain: Any = initial_model(partial(MODELS[name], False), found.seed)
    again = PeftModel.from_pretrained(plain.unload(), tmp_path).eval()
    torch.testing.assert_close(again(input_ids=rows).logits, expected, rtol=1e-6, atol=1e-7)


BYTES: dict[str, tuple[Callable[..., int], Callable[..., int]]] = {
    "fedavg": (lambda r, i, o: r * (i + o), lambda r, i, o: r * (i + o)),
    "ffa-lora": (lambda r, i, o: r * o, lambda r, i, o: r * o),
    "fedsvd": (lambda r, i, o: r * (i + o), lambda r, i, o: r * o),
    "fedrot-lora": (lambda r, i, o: r * (i + o), lambda r, i, o: r * (i + o)),
    "flexlora": (lambda r, i, o: r * (i + o), lambda r, i, o: r * (i + o)),
    "lora-fair": (lambda r, i, o: r * (i + o), lambda r, i, o: r * (i + o)),
    "fedsa-lora": (lambda r, i, o: r * i, lambda r, i, o: r * i),
    "fedex-lora": (lambda r, i, o: r * (i + o) + i * o, lambda r, i, o: r * (i + o) + i * o),
}
"""Numbers that travel for a layer of d_in = i and d_out = o: down and up."""


@pytest.mark.parametrize("method", BYTES)
def test_what_travels_is_counted_by_the_formulas(method: str) -> None:
    """GPT-2: c_attn of 16 to 48, c_proj of 64 to 16, twice; no head."""
    layout, _ = layout_of("gpt2", base=method == "fedex-lora")
    for up in (False, True):
        mask = make(method).personalization.travels(layout, 0, up=up)
        formula = BYTES[method][int(up)]
        expected = 2 * (formula(2, 16, 48) + formula(2, 64, 16))
        assert (layout.size if mask is None else int(mask.sum())) == expected


def test_rolora_takes_turns_on_the_wire() -> None:
    layout, _ = layout_of("gpt2")
    counts = [int(make("rolora").personalization.travels(layout, round, up=True).sum()) for round in range(3)]  # type: ignore[union-attr]
    assert counts == [2 * 2 * (48 + 16), 2 * 2 * (16 + 64), 2 * 2 * (48 + 16)]


def test_a_quantised_base_cannot_be_opened() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_layer = nn.Linear(2, 2)
            self.base_layer.weight = nn.Parameter(torch.zeros(2, 2, dtype=torch.uint8), requires_grad=False)

    with pytest.raises(ValueError, match="a weight is quantised"):
        open_base(Packed())
    with pytest.raises(ValueError, match="no layer has an adapter"):
        open_base(nn.Linear(2, 2))
    assert Folded().scale == 1.0


def test_an_adapter_of_a_changed_base_is_not_exported(tmp_path: Path) -> None:
    """On the base as it was downloaded it would be another model."""
    with pytest.raises(ValueError, match="has changed the weights under the adapters"):
        write_pretrained(None, gpt2(base=True), tmp_path / "out", merged=False)  # type: ignore[arg-type]
