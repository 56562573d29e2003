"""Where the time of a step goes, and how near useful work comes to the machine's own rate of matrix products."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import corpora
import torch
from torch.profiler import ProfilerActivity, profile

from cpufinetune.job.parse import parse
from cpufinetune.train import precision
from cpufinetune.train.batching import BatchPlan
from cpufinetune.train.data import prepare
from cpufinetune.train.data.batches import Schedule
from cpufinetune.train.evaluate import forward
from cpufinetune.train.model import source
from cpufinetune.train.model.build import build, parameter_groups

BATCH = 32
STEPS, PROFILED = 14, 6
WARM_UP = 3
ROWS = 14
# A product of a size at which libraries do well, as a yardstick: (rows, inner, columns).
YARDSTICK = (2048, 768, 3072)


class Steps:
    """Training steps of MiniLM on R8 in this process, one rank, all cores."""

    def __init__(self, chosen: precision.Chosen, scratch: Path) -> None:
        folder, data = corpora.DEMO / "minilm", corpora.DEMO / "reuters-r8"
        job = parse(document(folder, data))
        tokenizer = source.load_tokenizer(folder)
        prepared = prepare.prepare(
            job.spec, data, tokenizer=tokenizer, tokenizer_key="bench", scratch=scratch, beat=lambda: None
        )
        split = prepared.split("train")
        assert split is not None
        self.split = split
        self.chosen = chosen
        self.built = build(folder, prepared.labels.names, job.spec.training, weights=True, agree=bool)
        self.built.model.train()
        self.optimizer = torch.optim.AdamW(parameter_groups(self.built.model, 0.01), lr=2e-5, fused=True)
        self.plan = BatchPlan(split, Schedule(len(split), BATCH, 3.0), 42, 0, 1, BATCH)

    def run(self, step: int) -> tuple[int, float, float]:
        """Train one step; return useful tokens, sum of squared lengths and seconds."""
        started = time.perf_counter()
        share = self.plan.share(step)
        batch = self.split.batch(share.micro_batches[0], 0)
        self.built.stream.enter(step, batch)
        with self.chosen.context():
            logits = forward(self.built.model, batch)
        loss = torch.nn.functional.cross_entropy(logits.float(), batch.labels, reduction="sum") / BATCH
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.built.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return share.tokens, float((batch.lengths**2).sum()), time.perf_counter() - started


def document(folder: Path, data: Path) -> dict[str, Any]:
    """The job of the profile."""
    spec = {
        "model": {"path": str(folder)},
        "dataset": {"path": str(data), "files": {"train": "train.csv"}, "validationFraction": 0.01},
        "task": {"text": ["text"], "label": "label", "maxLength": 128},
        "training": {"batchSize": BATCH},
    }
    return {
        "apiVersion": "cpufinetune.dev/v1alpha1",
        "kind": "CpuFineTune",
        "metadata": {"name": "profile"},
        "spec": spec,
    }


def useful_flops(configuration: Any, tokens: int, squares: float) -> float:
    """Operations of matrix products on real tokens, forward and twice as many backward."""
    width, inner, layers = configuration.hidden_size, configuration.intermediate_size, configuration.num_hidden_layers
    linear = 2 * tokens * (4 * width**2 + 2 * width * inner)
    attention = 2 * 2 * squares * width
    return float(3 * layers * (linear + attention))


def product_rate(dtype: torch.dtype) -> float:
    """Operations a second of the yardstick product, median of 15."""
    rows, inner, columns = YARDSTICK
    one, two = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype)
    times = []
    for _ in range(15):
        started = time.perf_counter()
        torch.mm(one, two)
        times.append(time.perf_counter() - started)
    return 2.0 * rows * inner * columns / statistics.median(times)


def report(*, native_bf16: bool) -> list[str]:
    """Profile fp32, and bf16 where the CPU has it; return markdown."""
    lines = ["## Where a step goes (MiniLM, R8, batch 32, 2 threads)", ""]
    for name, dtype in (("Float32", torch.float32), ("BFloat16", torch.bfloat16)):
        if dtype == torch.bfloat16 and not native_bf16:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            lines += _report_one(name, dtype, Path(scratch))
    print("\n".join(lines), flush=True)
    return lines


def _report_one(name: str, dtype: torch.dtype, scratch: Path) -> list[str]:
    steps = Steps(precision.Chosen(name, "asked for"), scratch)
    shares, rates = [], []
    for step in range(STEPS):
        product = product_rate(dtype)
        tokens, squares, seconds = steps.run(step)
        if step >= WARM_UP:
            rates.append(useful_flops(steps.built.model.config, tokens, squares) / seconds)
            shares.append(rates[-1] / product)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for step in range(STEPS, STEPS + PROFILED):
            steps.run(step)
    rows = sorted(profiled.key_averages(), key=lambda row: -row.self_cpu_time_total)
    total = sum(row.self_cpu_time_total for row in rows)
    return [
        f"### {name}",
        "",
        f"Useful work {statistics.median(rates) / 1e9:.0f} GFLOP/s, {statistics.median(shares):.0%} "  # noqa: ISC004
        f"({min(shares):.0%}-{max(shares):.0%}) of a plain {'x'.join(map(str, YARDSTICK))} product measured in turn.",
        "",
        "| operator | share | calls a step |",
        "| --- | --- | --- |",
        *(f"| {row.key} | {row.self_cpu_time_total / total:.1%} | {row.count / PROFILED:.0f} |" for row in rows[:ROWS]),
        "",
    ]
