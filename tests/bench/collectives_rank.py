"""One rank of `collectives.py`: times all-reduces, or training steps, and prints a JSON line on rank 0."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from datetime import timedelta
from statistics import median
from typing import Any

import torch
from torch import distributed
from transformers import AutoModelForSequenceClassification, BertConfig

from cpufinetune.comms.ccl import backend, environment, locate
from cpufinetune.comms.ccl import compile as compiling
from cpufinetune.comms.choice import OURS, SINGLE, Choice
from cpufinetune.comms.gradients import GradientSync

TOKENS = 30522
LENGTH = 128
WARM, STEPS = 2, 6


def main() -> None:
    """Join, measure what the settings ask for, print."""
    settings = json.loads(sys.argv[1])
    if settings["backend"] == "none":
        settings = {**settings, "size": 1}
    rank, size = settings["rank"], settings["size"]
    os.sched_setaffinity(0, {settings["core"]})
    torch.set_num_threads(1)
    os.environ.update(settings["environment"])
    choice = _join(settings) if size > 1 else SINGLE
    found = _all_reduces(settings) if settings["what"] == "all_reduce" else _steps(settings, choice)
    if rank == 0:
        print(json.dumps(found), flush=True)
    if size > 1:
        distributed.destroy_process_group()


def _join(settings: dict[str, Any]) -> Choice:
    rank, size, kind = settings["rank"], settings["size"], settings["backend"]
    os.environ["GLOO_SOCKET_IFNAME"] = settings["interface"]
    choice = Choice("gloo", "asked for")
    if kind == "ccl":
        variables = environment.variables(
            locate.find(),
            interface=settings["interface"],
            local_rank=settings["local_rank"],
            local_world_size=settings["local_size"],
            workers=settings["workers"],
        )
        backend.register(compiling.ensure(), variables)
        choice = Choice("ccl", "asked for", OURS)
    store = distributed.TCPStore(  # type: ignore[attr-defined]  # exported at run time only
        settings["address"], settings["port"], size, rank == 0, timeout=timedelta(seconds=60)
    )
    distributed.init_process_group(kind, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120))
    return choice


def _all_reduces(settings: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for size in settings["sizes"]:
        data = torch.rand(size // 4)
        found[f"float32 {size}"] = _time(lambda data=data: distributed.all_reduce(data), settings["repeats"])
        half = torch.rand(size // 2).to(torch.bfloat16)
        found[f"bfloat16 {size}"] = _time(lambda half=half: distributed.all_reduce(half), settings["repeats"])
        if settings["backend"] == "ccl":
            found[f"compressed {size}"] = _time(
                lambda data=data: backend.all_reduce_compressed(data).wait(), settings["repeats"]
            )
    if settings["backend"] == "ccl":
        found["topology"] = backend.topology()
    return found


def _time(call: Any, repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        distributed.barrier()
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times)


def _steps(settings: dict[str, Any], choice: Choice) -> dict[str, Any]:
    """Train a model of MiniLM's shape on random tokens; return the median step and what of it was waiting."""
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=TOKENS, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model: Any = AutoModelForSequenceClassification.from_config(shape)  # type: ignore[no-untyped-call]
    model.train()
    sync = GradientSync(model, settings["size"], choice, compress=settings["compress"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    generator = torch.Generator().manual_seed(1)
    shared = torch.randint(TOKENS, (settings["batch"] * settings["size"], LENGTH), generator=generator)
    mine = shared[settings["rank"] % settings["size"] :: settings["size"]]
    vocabulary = torch.unique(shared)
    precision = torch.autocast("cpu", dtype=torch.bfloat16) if settings["bf16"] else nullcontext()
    seconds, waits = [], []
    for _ in range(WARM + STEPS):
        started = time.perf_counter()
        with sync.accumulate(last=settings["overlap"]):
            with precision:
                loss = sync.wrapped(input_ids=mine, labels=torch.zeros(len(mine), dtype=torch.long)).loss
            loss.backward()
        waits.append(sync.finish(vocabulary) if settings["overlap"] else _average(model, settings["size"]))
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        seconds.append(time.perf_counter() - started)
    return {"step": median(seconds[WARM:]), "exposed": median(waits[WARM:]), **sync.describe()}


def _average(model: Any, size: int) -> float:
    """Average all gradients when backward is over: what a loop without overlap does."""
    started = time.perf_counter()
    if size > 1:
        flat = torch.cat([parameter.grad.view(-1) for parameter in model.parameters()])
        distributed.all_reduce(flat)
        flat.div_(size)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
