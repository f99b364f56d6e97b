"""Trainers of transformers and TRL as tasks: one client and one round are the trainer alone; refusals by name."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support.hugging_face import instructions, llama, need, tokenised, tokenizer
from undrift import Local, Simulation
from undrift.data.tasks.rng_streams import Streams
from undrift.data.trainers.accumulated import CollateParts, accumulate
from undrift.hf import TrainerError, TrainerTask, by_column

need("transformers", "datasets", "peft")
pytestmark = pytest.mark.xdist_group("trainers")

Factory = Callable[[Any], Any]
LORA: dict[str, Any] = {"r": 4, "target_modules": ["q_proj", "v_proj"]}
ARGS = {"learning_rate": 0.01, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "report_to": []}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Other packages' warnings and progress are theirs."""
    import datasets

    datasets.disable_progress_bars()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    datasets.enable_progress_bars()


def plain(folder: Path, **settings: Any) -> Factory:
    """A factory of plain trainers for token ids: LoRA, padded batches."""
    held = tokenised(6).remove_columns("who")

    def make(data: Any) -> Any:
        from peft import LoraConfig, get_peft_model
        from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

        args = TrainingArguments(str(folder), per_device_train_batch_size=4, **{**ARGS, **settings})
        adapted = get_peft_model(llama(), LoraConfig(**LORA))
        collator = DataCollatorForSeq2Seq(tokenizer())
        return Trainer(adapted, args, collator, data, held)

    return make


def instructed(folder: Path, **settings: Any) -> Factory:
    """A factory of TRL's trainers for instructions."""
    trl = pytest.importorskip("trl")

    def make(data: Any) -> Any:
        from peft import LoraConfig

        args = trl.SFTConfig(str(folder), per_device_train_batch_size=4, **{**ARGS, "bf16": False, **settings})
        return trl.SFTTrainer(llama(), args, None, data, processing_class=tokenizer(), peft_config=LoraConfig(**LORA))

    return make


def trained(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def gap(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    """The largest difference of two models."""
    assert list(one) == list(two)
    return max(float((one[name] - two[name]).abs().max()) for name in one)


CASES = {
    "adamw": (plain, {}),
    "accumulated": (plain, {"gradient_accumulation_steps": 2, "weight_decay": 0.1, "num_train_epochs": 2}),
    "sgd": (plain, {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "cosine", "max_steps": 5}),
    "checkpointed": (plain, {"gradient_checkpointing": True, "max_grad_norm": 0.01, "num_train_epochs": 1}),
    "smoothed": (plain, {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 3, "num_train_epochs": 1}),
    "instructed": (instructed, {"num_train_epochs": 2}),
    "instructed, bf16": (instructed, {"bf16": True, "gradient_accumulation_steps": 2, "num_train_epochs": 1}),
}


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("case", CASES)
def test_one_client_and_one_round_are_the_trainer_alone(case: str, tmp_path: Path) -> None:
    kind, settings = CASES[case]
    make = kind(tmp_path, train_sampling_strategy="sequential", **settings)  # type: ignore[arg-type]
    data = (instructions if kind is instructed else tokenised)(14).remove_columns("who")
    task = TrainerTask(make, [data])
    simulation = Simulation(task.method("fedavg"), task, task.local(), failures="raise")
    ours = trained(simulation.module(simulation.run(1)))
    with Streams(task.seed):
        trainer = make(data)
    before = trained(trainer.model)
    trainer.train()
    theirs = trained(trainer.model)
    assert gap(before, theirs) > 1e-3
    assert gap(ours, theirs) < 1e-5


@pytest.mark.sweep(every=4)
def test_three_lines_train_with_a_correction(tmp_path: Path) -> None:
    task = TrainerTask(instructed(tmp_path), by_column(instructions(30), "who"))
    simulation = Simulation(task.method("scaffold-i"), task, task.local(lr=0.05), failures="raise")
    before = [task.loss(task.model().eval(), batch) for batch in first_batches(task)]
    model = simulation.module(simulation.run(3)).eval()
    after = [task.loss(model, batch) for batch in first_batches(task)]
    assert task.population == 3 and all(x < y for x, y in zip(after, before, strict=True))


def first_batches(task: TrainerTask) -> list[Any]:
    return [next(task.batches(i, task.batch_size or 1, torch.Generator().manual_seed(0))) for i in range(3)]


@pytest.mark.parametrize("kind", [plain, instructed])
def test_prompts_are_masked(kind: Callable[..., Factory], tmp_path: Path) -> None:
    rows = (instructions if kind is instructed else tokenised)(9)
    batch = first_batches(TrainerTask(kind(tmp_path), by_column(rows, "who")))[0]
    ids, labels = batch["input_ids"], batch["labels"]
    said = labels.ne(-100)
    assert torch.equal(labels[said], ids[said]) and 0 < said.sum() < ids.ne(0).sum()
    assert not said[:, :2].any()


def test_models_of_a_process_share_the_base_and_start_alike(tmp_path: Path) -> None:
    task = TrainerTask(plain(tmp_path), by_column(tokenised(9), "who"))
    one, two = (dict(task.model().named_parameters()) for _ in range(2))
    for name, p in one.items():
        assert torch.equal(p, two[name])
        assert (p.data_ptr() == two[name].data_ptr()) is not p.requires_grad
    cloudpickle = pytest.importorskip("cloudpickle")
    other = dict(cloudpickle.loads(cloudpickle.dumps(task)).model().named_parameters())
    assert all(torch.equal(p, other[name]) and p.data_ptr() != other[name].data_ptr() for name, p in one.items())


def test_settings_are_those_of_the_trainer(tmp_path: Path) -> None:
    kind = plain(tmp_path, gradient_accumulation_steps=3, adam_beta2=0.99, max_grad_norm=0, num_train_epochs=2)
    task = TrainerTask(kind, by_column(tokenised(9), "who"), metrics=["perplexity"])
    assert task.local() == Local(lr=0.01, epochs=2, batch_size=12, step_schedule="linear")
    assert task.local(steps=3) == replace(task.local(), steps=3)
    assert task.method("fedprox") == "fedprox + local-adamw(beta1=0.9, beta2=0.99, eps=1e-08)"
    found = task.evaluate(task.model())
    assert found["perplexity"] == pytest.approx(torch.tensor(found["test_loss"]).exp().item())
    assert found["test_loss"] == pytest.approx(task.trainer.evaluate()["eval_loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("where", "name", "value", "message"),
    [
        ("args", "fsdp", ["full_shard"], "a trainer with fsdp is not supported: the clients of a worker"),
        ("args", "deepspeed", "zero3.json", "a trainer with deepspeed is not supported: the clients of a worker"),
        ("args", "warmup_steps", 5, r"warmup_steps is not supported: .*schedule=\"warmup\(5\)\""),
        ("args", "gradient_checkpointing_kwargs", {"use_reentrant": True}, "set use_reentrant to False"),
        ("args", "train_sampling_strategy", "group_by_length", "choose random or sequential"),
        ("args", "optim", "adafactor", "optim Adafactor.* has no equal here; set optim to adamw_torch or sgd"),
        ("", "compute_metrics", len, "compute_metrics is not supported: give metrics to TrainerTask"),
        ("", "eval_dataset", {"a": [], "b": []}, "eval_dataset is not supported: give one data set"),
        ("", "optimizer", 1, "optimizers is not supported"),
    ],
)
def test_what_cannot_work_is_refused_by_name(where: str, name: str, value: Any, message: str, tmp_path: Path) -> None:
    def make(data: Any) -> Any:
        trainer = plain(tmp_path)(data)
        own = trainer.args if where else trainer
        object.__setattr__(own, name, type(own.optim)(value) if name == "optim" else value)
        return trainer

    with pytest.raises(TrainerError, match=message):
        TrainerTask(make, by_column(tokenised(9), "who"))


def test_an_own_training_step_and_a_decay_for_some_weights_are_refused(tmp_path: Path) -> None:
    from transformers import Trainer

    class Own(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            return super().training_step(*args, **kwargs)

    def other(data: Any) -> Any:
        trainer = plain(tmp_path)(data)
        trainer.__class__ = Own
        return trainer

    def whole(data: Any) -> Any:
        trainer = plain(tmp_path, weight_decay=0.1)(data)
        trainer.model.requires_grad_(True)
        return trainer

    clients = by_column(tokenised(9), "who")
    with pytest.raises(TrainerError, match="training_step is not supported: Own has its own"):
        TrainerTask(other, clients)
    with pytest.raises(TrainerError, match=r"weight_decay is 0.1, but a Trainer leaves .*layernorm.weight without"):
        TrainerTask(whole, clients)
    with pytest.raises(TypeError, match="make builds the trainer whenever it is called"):
        TrainerTask(plain(tmp_path)(clients[0]), clients)
    with pytest.raises(TypeError, match="is one data set"):
        TrainerTask(plain(tmp_path), tokenised(9))


def test_parts_have_the_gradient_of_their_sum() -> None:
    weights = [torch.tensor([0.5, -1.5, 2.0], requires_grad=True), torch.ones(2, requires_grad=True)]
    batch = CollateParts(lambda rows: torch.tensor(rows), 2)([[1.0, 2.0, 3.0], [2.0, 0.0, 1.0], [4.0, 1.0, 1.0]])

    def share(part: torch.Tensor) -> torch.Tensor:
        return (part @ weights[0]).square().sum()

    total = accumulate(share, batch.parts, weights)
    expected = sum(share(part) for part in batch.parts)
    assert len(batch.parts) == 2 and len(batch.examples) == 3 and torch.allclose(total, expected)  # type: ignore[arg-type]
    found = torch.autograd.grad(3 * total, weights, allow_unused=True)
    assert torch.allclose(found[0], torch.autograd.grad(3 * expected, weights[0])[0]) and found[1] is None  # type: ignore[arg-type]
    with torch.no_grad():
        assert torch.allclose(accumulate(share, batch.parts, weights), expected)
