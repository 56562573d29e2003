"""The training loop: batches in a fixed order, forward and backward, one update, now and then a look at the result."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from cpufinetune.comms import group
from cpufinetune.errors import Interrupted, JobError
from cpufinetune.report.events import Checkpointed, Evaluation, Heartbeat, Step
from cpufinetune.train import batching, state
from cpufinetune.train.evaluate import Evaluated, evaluate, forward
from cpufinetune.train.schedule import learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.comms.gradients import GradientSync
    from cpufinetune.job.document import Spec
    from cpufinetune.train.checkpoint.store import CheckpointStore
    from cpufinetune.train.data.prepare import Prepared
    from cpufinetune.train.emit import Emitter
    from cpufinetune.train.model.build import Built
    from cpufinetune.train.precision import Chosen

METRIC_NAMES = {"Accuracy": "accuracy", "MacroF1": "macroF1", "F1": "f1"}


@dataclass(slots=True)
class Trainer:
    """One rank of one attempt. `stop` is set by SIGTERM; all ranks agree on it after each step."""

    spec: Spec
    built: Built
    sync: GradientSync
    optimizer: torch.optim.Optimizer
    prepared: Prepared
    plan: batching.BatchPlan
    precision: Chosen
    checkpoints: CheckpointStore
    best: CheckpointStore
    emit: Emitter
    rank: int
    world_size: int
    job_key: str
    progress: state.RunState = field(default_factory=state.RunState)
    stop: bool = False
    _mark: float = 0.0

    def train(self) -> None:
        """Run all remaining steps.

        Raises:
            Interrupted: some rank was asked to stop; a checkpoint holds the state.
            JobError: loss or gradient is not a number any more; another attempt would end there too.
        """
        self.emit.phase("Train")
        self.sync.wrapped.train()
        self._mark = time.perf_counter()
        # An earlier attempt was stopped before or while it evaluated.
        stopping = self.progress.unevaluated and not self._validate()
        while not stopping and not self._done():
            stopping = self.take_step()
            self.progress.unevaluated = self._evaluation_due()
            if self.progress.unevaluated and not stopping:
                stopping = not self._validate()
            if stopping or self._done() or self._checkpoint_due():
                self._checkpoint()
        if stopping and (self.progress.unevaluated or not self._done()):
            raise Interrupted("Interrupted", f"stopped after step {self.progress.step}; a checkpoint was written")

    def take_step(self) -> bool:
        """Take one optimizer step; return whether some rank was asked to stop."""
        step = self.progress.step
        cpu = time.process_time()
        rate = learning_rate(self.spec.training, step, self.plan.schedule.total_steps)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        share = self.plan.share(step)
        # For dropout that is not ours: nothing random may depend on what was before this step.
        torch.manual_seed(hash((self.spec.training.seed, step, self.rank)))
        loss = 0.0
        for number, samples in enumerate(share.micro_batches):
            last = number == len(share.micro_batches) - 1
            loss += self._accumulate(step, samples, share, last=last)
        communication = self.sync.finish(torch.from_numpy(share.vocabulary))
        loss, stopping = self._agree(loss)
        norm = self._update(loss)
        self.progress.step += 1
        now = time.perf_counter()
        self.emit.send(
            Step,
            step=self.progress.step,
            epoch=self.progress.step / self.plan.schedule.steps_per_epoch,
            loss=loss,
            learning_rate=rate,
            grad_norm=norm,
            samples=share.samples,
            tokens=share.tokens,
            padded_tokens=share.padded_tokens,
            seconds=now - self._mark,
            communication_seconds=communication,
            cpu_seconds=time.process_time() - cpu,
        )
        self._mark = now
        return stopping

    def _accumulate(self, step: int, samples: Any, share: batching.Share, *, last: bool) -> float:
        batch = self.plan.split.batch(samples, self.prepared.pad_token)
        self.built.stream.enter(step, batch)
        with self.sync.accumulate(last=last):
            with self.precision.context():
                logits = forward(self.sync.wrapped, batch)
            summed = torch.nn.functional.cross_entropy(logits.float(), batch.labels, reduction="sum")
            # Ranks average their gradients; the loss is the mean over the whole batch, whoever holds how much of it.
            weight = self.world_size / share.batch_samples if share.samples else 0.0
            (summed * weight).backward()  # type: ignore[no-untyped-call]
        return float(summed.detach()) / share.batch_samples if share.samples else 0.0

    def _update(self, loss: float) -> float:
        """Take the step, unless it would ruin the weights; return the norm of the gradient before clipping."""
        # A limit of 0 means none; the norm is measured all the same.
        limit = self.spec.training.max_grad_norm or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.built.model.parameters(), limit))
        for name, value in (("loss", loss), ("gradient", norm)):
            if not math.isfinite(value):
                message = f"the {name} of step {self.progress.step + 1} is {value}"
                raise JobError("Diverged", message, "lower spec.training.learningRate")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.world_size == 1)
        return norm

    def _agree(self, loss: float) -> tuple[float, bool]:
        if self.world_size == 1:
            return loss, self.stop
        together = torch.tensor([loss, float(self.stop)], dtype=torch.float64)
        distributed.all_reduce(together)
        return float(together[0]), bool(together[1] > 0)

    def _done(self) -> bool:
        return self.progress.step == self.plan.schedule.total_steps

    def _evaluation_due(self) -> bool:
        every = self.spec.training.evaluate_every
        if every == "Never" or "validation" not in self.prepared.samples:
            return False
        steps = self.plan.schedule.steps_per_epoch if every == "Epoch" else int(every)
        return self._done() or self.progress.step % steps == 0

    def _checkpoint_due(self) -> bool:
        every = self.spec.training.checkpoint_every
        return every > 0 and self.progress.step % every == 0

    def measure(self, name: str, asked: Callable[[], bool] = lambda: False) -> Evaluated | None:
        """Evaluate the model as it is on all ranks; None if there is no such split, or some rank was asked to stop."""
        split = self.prepared.split(name)
        if split is None:
            return None
        return evaluate(
            self.built.model,
            split,
            classes=len(self.prepared.labels.names),
            positive=self._positive(),
            pad_token=self.prepared.pad_token,
            rank=self.rank,
            world_size=self.world_size,
            precision=self.precision.context,
            beat=lambda: self.emit.send(Heartbeat),
            asked=asked,
        )

    def _positive(self) -> int:
        wanted = self.spec.task.positive_label
        return self.prepared.labels.names.index(wanted) if wanted is not None else 1

    def _validate(self) -> bool:
        """Evaluate on the validation split and keep the best weights; return whether nobody was asked to stop."""
        self.emit.phase("Evaluate")
        found = self.measure("validation", lambda: group.asked_to_stop(mine=self.stop))
        if found is None:
            return False
        self.progress.unevaluated = False
        metrics = self.primary_first(found.metrics)
        value = next(iter(metrics.values()))
        best = self.progress
        # Of equal metrics the lower loss wins: small validation sets tie often.
        better = best.best_metric is None or (value, -metrics["loss"]) > (best.best_metric, -best.best_metrics["loss"])
        if better:
            self.progress.best_metric = value
            self.progress.best_step = self.progress.step
            self.progress.best_metrics = dict(metrics)
            self.emit.phase("Checkpoint")
            if self.rank == 0:
                self.best.write(self.progress.step, {"model": state.trainable(self.built.model)}, {"job": self.job_key})
            self._meet()
        self.report_evaluation("validation", found, best=better)
        self._resume_clock()
        return True

    def primary_first(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics with the one that chooses the best model in front."""
        name = METRIC_NAMES[self.spec.task.metric]
        if name not in metrics:
            name = "accuracy"
        return {name: metrics[name], **metrics}

    def report_evaluation(self, split: str, found: Evaluated, *, best: bool) -> None:
        """Send one evaluation from rank 0; a test is of the best step's weights."""
        if self.rank == 0:
            tested = self.progress.best_step if split == "test" else None
            self.emit.send(
                Evaluation,
                step=tested or self.progress.step,
                split=split,
                metrics=self.primary_first(found.metrics),
                samples=found.samples,
                seconds=found.seconds,
                best=best,
            )

    def _checkpoint(self) -> None:
        self.emit.phase("Checkpoint")
        if self.rank == 0:
            started = time.perf_counter()
            path = self.checkpoints.write(
                self.progress.step,
                {
                    "model": state.trainable(self.built.model),
                    "optimizer": state.moments(self.built.model, self.optimizer),
                },
                {**self.progress.document(), "job": self.job_key, "worldSize": self.world_size},
            )
            size = sum(file.stat().st_size for file in path.iterdir())
            seconds = time.perf_counter() - started
            self.emit.send(Checkpointed, step=self.progress.step, path=str(path), bytes=size, seconds=seconds)
        self._meet()
        self._resume_clock()

    def _meet(self) -> None:
        """Wait for rank 0's volume, in a phase in which waiting is no stall."""
        if self.world_size > 1:
            distributed.barrier()

    def _resume_clock(self) -> None:
        self.emit.resources()
        self.emit.phase("Train")
        self._mark = time.perf_counter()
