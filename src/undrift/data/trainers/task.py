"""Tasks from trainers of transformers and TRL."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from undrift.core.local.settings import Local
from undrift.core.tasks.as_tensors import one_each
from undrift.core.tasks.evaluation import Goal, Judged, Metrics
from undrift.core.tasks.metrics import perplexity
from undrift.core.tasks.tensor_task import logits
from undrift.data.tasks.batching import Collate, Source, check_one_each
from undrift.data.tasks.loader_task import LoaderTask
from undrift.data.tasks.rng_streams import Streams
from undrift.data.trainers.accumulated import CollateParts, Parts, accumulate
from undrift.data.trainers.settings import ORDERS, check_trainer, read_local, read_optimizer


class TrainerTask(LoaderTask):
    """A task from a `Trainer` of transformers or an `SFTTrainer` of TRL.

    A client's visit is what `Trainer.train` does with its data: the trainer's data collator, `compute_loss`, gradient
    accumulation and gradient checkpointing; with `local()` and `method(name)` also its learning rate, precision,
    clipping and optimizer, which are fresh in every visit. Corrections of methods act on gradients, before the
    optimizer. Held-out data are the trainer's `eval_dataset`. Its training loop is not used, so callbacks, logs and
    saved files are not either: the run folder has them.

    Every process builds the trainer once and keeps it, and all models of a process share its weights that do not train.

    Args:
        make: builds the trainer for the data of one client, its `train_dataset`. It is called under a fixed seed.
        clients: each client's data, as `by_column(dataset, "hospital")`. If the trainer prepares them, as an
            `SFTTrainer` does unless they are tokenised and `skip_prepare_dataset` is set, `make` is called for each.
        seed: seed of the initial weights, as far as `make` draws them before the trainer sets its own.
        client_tests: each client's own held-out data, like `clients`; None where a client has none.
        metrics: what is measured on held-out data besides the loss: see `named_metrics`.
        goal: the metric by which runs are judged, "f1" or ("f1", "max"); None takes accuracy or the first metric.
        name: what runs call it; empty takes the name of the class.
    """

    def __init__(
        self,
        make: Callable[[Any], Any],
        clients: Sequence[Any],
        *,
        seed: int = 0,
        client_tests: Sequence[Any] | None = None,
        metrics: Metrics = None,
        goal: Goal = None,
        name: str = "",
    ) -> None:
        if not callable(make) or hasattr(make, "train_dataset"):
            raise TypeError(
                "TrainerTask: make builds the trainer whenever it is called; give a function of a client's data, as in "
                f"lambda data: Trainer(model(), args, train_dataset=data), got {type(make).__name__}"
            )
        check_one_each(clients)
        clients = one_each(clients, "clients")
        self.build, self._first, self.seed = make, clients[0], seed
        self._trainer, self._unused = None, True
        trainer = self.trainer
        check_trainer(trainer)
        self._local, self._optimizer = read_local(trainer), read_optimizer(trainer)
        tests = [None if own is None else self._source(own) for own in client_tests] if client_tests else None
        held = None if trainer.eval_dataset is None else trainer.get_eval_dataloader()
        super().__init__(
            self._next_model,
            [self._source(own) for own in clients],
            seed=seed,
            test=None if held is None else Source(held.dataset, held.collate_fn, False, held.batch_size),
            client_tests=tests,
            metrics=metrics,
            goal=goal,
            name=name,
        )

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: not the trainer, which every process builds."""
        return super().__getstate__() | {"_trainer": None, "_unused": True}

    @property
    def trainer(self) -> Any:
        """The trainer of this process, of the first client's data."""
        if self._trainer is None:
            self._trainer = self._build(self._first)
        return self._trainer

    def local(self, **changes: Any) -> Local:
        """Local training with the trainer's settings: one visit is one call of its `train`.

        Args:
            changes: fields that differ.
        """
        return replace(self._local, **changes)

    def method(self, name: str) -> str:
        """A method with the trainer's optimizer on the clients, as runs record it.

        Args:
            name: of the method, as "scaffold".
        """
        return f"{name} + {self._optimizer}" if self._optimizer else name

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a step's batch, as the trainer computes it."""
        trainer = self.trainer
        given = batch.parts if isinstance(batch, Parts) else [batch]
        parameters = [p for p in model.parameters() if p.requires_grad]
        parts, items = trainer.get_batch_samples(iter(given), len(given), parameters[0].device)
        trainer.current_gradient_accumulation_steps = len(parts)
        summed = trainer.compute_loss_func is not None or (trainer.model_accepts_loss_kwargs and items is not None)

        def share(part: Any) -> Tensor:
            loss: Tensor = trainer.compute_loss(model, {**part}, num_items_in_batch=items)
            return loss if summed else loss / len(parts)

        return accumulate(share, parts, parameters) if len(parts) > 1 else share(parts[0])

    def _judge(self, model: nn.Module, batch: Any) -> Judged:
        loss = self.loss(model, batch)
        if all(metric is perplexity for metric in self.metrics.values()):
            return Judged(loss)
        return Judged(loss, logits(model(**batch)), batch.get("labels"))

    def _build(self, data: Any) -> Any:
        """A new trainer; the global random streams are left as they were."""
        with Streams(self.seed):
            trainer = self.build(data)
        args = trainer.args
        if args.gradient_checkpointing:
            kwargs = dict(args.gradient_checkpointing_kwargs or {})
            own = {name: kwargs.pop(name) for name in ("every_n_layers", "offload") if name in kwargs}
            trainer.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs or None, **own)
        return trainer

    def _next_model(self) -> nn.Module:
        """The trainer's model at first, then new ones with its frozen weights."""
        first, self._unused = self._unused, False
        base: nn.Module = self.trainer.model
        if first:
            return base
        model: nn.Module = self._build(self._first).model
        held = {name: p for name, p in base.named_parameters() if not p.requires_grad}
        for name, parameter in model.named_parameters():
            if name in held and held[name].device == parameter.device:
                parameter.data = held[name].data
        return model

    def _source(self, data: Any) -> Source:
        """What is kept of a client's data: as given if the trainer leaves them so, else as it prepares them."""
        trainer = self.trainer
        if trainer.train_dataset is self._first:
            trainer = copy(trainer)
            trainer.train_dataset = data
        elif data is not self._first:
            trainer = self._build(data)
        loader, args = trainer.get_train_dataloader(), trainer.args
        size, parts = args.per_device_train_batch_size, args.gradient_accumulation_steps
        collate: Collate = loader.collate_fn if parts == 1 else CollateParts(loader.collate_fn, size)
        return Source(loader.dataset, collate, ORDERS[args.train_sampling_strategy], size * parts)
