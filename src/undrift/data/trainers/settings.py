"""The settings of a `Trainer` as those of local training; what has no equal here is refused by name."""

from typing import Any

import torch

from undrift.core.local.settings import Local

SCHEDULES = {"constant": None, "linear": "linear", "cosine": "cosine"}
"""The learning rate over the steps of a visit, by `lr_scheduler_type`."""

ORDERS = {"random": True, "sequential": False}
"""Whether the examples are shuffled, by `train_sampling_strategy`."""


class TrainerError(ValueError):
    """A `Trainer` has something that cannot be trained federated in the same way."""


def check_trainer(trainer: Any) -> None:
    """Raise if a trainer has something that is not used here, or that cannot be.

    Args:
        trainer: of transformers or TRL.
    """
    args = trainer.args
    step, kwargs = type(trainer).training_step, args.gradient_checkpointing_kwargs or {}
    several = "the clients of a worker are trained in one process, and workers are those of the engine"
    found = {
        "fsdp": (args.fsdp, several),
        "deepspeed": (args.deepspeed, several),
        "world_size": (args.world_size > 1, several),
        "n_gpu": (args.n_gpu > 1, "show each process one GPU, with CUDA_VISIBLE_DEVICES"),
        "training_step": (
            not step.__module__.startswith(("transformers.", "trl.trainer.sft_trainer")),
            f"{type(trainer).__name__} has its own; put what it computes into compute_loss",
        ),
        "optimizers": (
            trainer.optimizer is not None or trainer.lr_scheduler is not None,
            "set optim and learning_rate",
        ),
        "optimizer_cls_and_kwargs": (trainer.optimizer_cls_and_kwargs, "set optim"),
        "compute_metrics": (trainer.compute_metrics, "give metrics to TrainerTask"),
        "neftune_noise_alpha": (trainer.neftune_noise_alpha, "its hooks belong to Trainer.train; leave it out"),
        "activation_offloading": (getattr(args, "activation_offloading", False), "use gradient_checkpointing"),
        "gradient_checkpointing_kwargs": (kwargs.get("use_reentrant"), "set use_reentrant to False"),
        "eval_dataset": (isinstance(trainer.eval_dataset, dict), "give one data set"),
        "train_sampling_strategy": (args.train_sampling_strategy not in ORDERS, f"choose {' or '.join(ORDERS)}"),
        "lr_scheduler_type": (args.lr_scheduler_type.value not in SCHEDULES, f"choose {', '.join(SCHEDULES)}"),
        "warmup_steps": (args.warmup_steps, 'give one over rounds, task.local(schedule="warmup(5)")'),
        "dataloader_drop_last": (
            args.dataloader_drop_last and args.gradient_accumulation_steps > 1,
            "it leaves out other examples under gradient_accumulation_steps",
        ),
        "fp16": (args.fp16 and args.gradient_accumulation_steps > 1, "with gradient_accumulation_steps take bf16"),
    }
    for name, (given, advice) in found.items():
        if given:
            raise TrainerError(f"TrainerTask: a trainer with {name} is not supported: {advice}")


def read_local(trainer: Any) -> Local:
    """Local training as a trainer has it: one visit of a client is what `train` does, without its logs and files.

    Args:
        trainer: of transformers or TRL.
    """
    args = trainer.args
    decayed = set(trainer.get_decay_parameter_names(trainer.model)) if args.weight_decay else set()
    for name, parameter in trainer.model.named_parameters() if args.weight_decay else ():
        if parameter.requires_grad and name not in decayed:
            raise TrainerError(
                f"TrainerTask: weight_decay is {args.weight_decay}, but a Trainer leaves {name} without decay, and "
                "here all that trains has the same; set it to 0, or train adapters only"
            )
    return Local(
        lr=float(args.learning_rate),
        weight_decay=float(args.weight_decay),
        clip=args.max_grad_norm or None,
        epochs=float(args.num_train_epochs),
        steps=args.max_steps if args.max_steps > 0 else None,
        batch_size=args.per_device_train_batch_size * args.gradient_accumulation_steps,
        step_schedule=SCHEDULES[args.lr_scheduler_type.value],
        drop_last=args.dataloader_drop_last,
        precision="bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    )


def read_optimizer(trainer: Any) -> str:
    """A trainer's optimizer as a term of a method; empty for SGD.

    Args:
        trainer: of transformers or TRL.
    """
    kind, values = trainer.get_optimizer_cls_and_kwargs(trainer.args, trainer.model)
    if kind is torch.optim.AdamW and set(values) <= {"lr", "betas", "eps", "fused"}:
        (beta1, beta2), eps = values["betas"], values["eps"]
        return f"local-adamw(beta1={beta1}, beta2={beta2}, eps={eps})"
    if kind is torch.optim.SGD and set(values) == {"lr"}:
        return ""
    others = ", ".join(f"{name}={x}" for name, x in values.items() if name != "lr")
    raise TrainerError(
        f"TrainerTask: optim {kind.__name__}({others}) has no equal here; set optim to adamw_torch or sgd, without "
        "optim_args, or name a local optimizer in the method"
    )
