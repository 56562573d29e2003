"""Speed against Hugging Face `Trainer`, paired in one run: `make bench`. Writes RESULTS.md beside this file.

Contestants take turns on the same machine; what counts are the ratios of neighbours, given as median and range.
"""

from __future__ import annotations

import argparse
import datetime as dt
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import corpora
import profile_step
from contest import AVX2_ONLY, Case, Outcome, ours, peer, spread

from cpufinetune import cores
from cpufinetune.launch.assembly import versions

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).with_name("RESULTS.md")
REPEATS = 3
LONG, SHORT = 50, 14  # steps


def main() -> None:
    """Run all comparisons and write the results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="one short repeat each; does not write RESULTS.md")
    quick = options.parse_args().quick
    bf16 = cores.read().isa.native_bf16
    precisions = ("Float32", "Auto") if bf16 else ("Float32",)
    repeats = 1 if quick else REPEATS
    lines = [header()]
    with tempfile.TemporaryDirectory() as name:
        corpora.write_pairs(Path(name))
        model = corpora.DEMO / "minilm"
        r8 = Case("Reuters R8", model, corpora.DEMO / "reuters-r8", ("text",), LONG, test=True)
        pairs = Case("Pairs of MRPC's lengths", model, Path(name), ("sentence1", "sentence2"), LONG, test=True)
        r8, pairs = (
            replace(case, mean_tokens=corpora.mean_tokens(case.data, case.text, case.max_length))
            for case in (r8, pairs)
        )
        for case in (r8, pairs):
            lines += against_peer(case.short(SHORT) if quick else case, precisions, repeats)
        if bf16:
            limited = replace(r8, name="Reuters R8, both limited to AVX2", environment=tuple(AVX2_ONLY.items()))
            lines += against_peer(limited.short(SHORT), ("Float32",), repeats)
        lines += two_ranks(r8.short(SHORT), precisions, repeats)
    lines += profile_step.report(native_bf16=bf16)
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def say(line: str) -> str:
    """Print a line and return it."""
    print(line, flush=True)
    return line


def header() -> str:
    """Machine, versions and command."""
    cpu = cores.read()
    found = versions()
    packages = ", ".join(f"{name} {found[name]}" for name in ("python", "torch", "transformers", "numpy"))
    return say(
        "# Speed\n\n"
        f"`make bench`, {dt.datetime.now(tz=dt.UTC):%Y-%m-%d}, on {cpu.model_name}, {len(cpu.cores)} cores,\n"
        f"{cpu.isa}; {packages}.\n\n"
        "Peer: Hugging Face `Trainer` with its defaults as run_glue uses it (fp32, padded to 128, fused AdamW). Same\n"
        "model (all-MiniLM-L6-v2), data, global batch (32), rate, steps and threads (2). Both sides take turns;\n"
        "median (range) of the ratios of neighbours. Samples a second after 5 steps of warm-up, by wall time.\n"
    )


def against_peer(case: Case, precisions: Sequence[str], repeats: int) -> list[str]:
    """Compare one case in each precision; the first repeat is longer and ends with a test."""
    mine: dict[str, list[Outcome]] = {precision: [] for precision in precisions}
    other: list[Outcome] = []
    for repeat in range(repeats):
        this = case if repeat == 0 else case.short(SHORT)
        for precision in precisions:
            mine[precision].append(ours(this, precision))
        other.append(peer(this))
    lines = [
        say(f"## {case.name} (mean {case.mean_tokens:.0f} tokens)\n"),
        say(f"- peer: {spread([one.samples_per_second for one in other])} samples/s"),
    ]
    for precision in precisions:
        speeds = [one.samples_per_second for one in mine[precision]]
        ratios = [one / two.samples_per_second for one, two in zip(speeds, other, strict=True)]
        lines.append(say(f"- ours in {precision}: {spread(speeds)} samples/s, **{spread(ratios)} times the peer**"))
    if other[0].accuracy is not None:
        figures = ", ".join(f"ours in {precision} {mine[precision][0].accuracy:.4f}" for precision in precisions)
        lines.append(say(f"- test accuracy after {case.steps} steps: peer {other[0].accuracy:.4f}, {figures}"))
    return [*lines, ""]


def two_ranks(case: Case, precisions: Sequence[str], repeats: int) -> list[str]:
    """Compare 2 ranks of one core each with one rank of one core, at the same global batch."""
    case = replace(case, threads=1)
    lines = [say("## Two ranks x 1 core against one rank x 1 core, same global batch\n")]
    for precision in precisions:
        efficiency = []
        for _ in range(repeats):
            one, two = ours(case, precision), ours(case, precision, nodes=2)
            efficiency.append(two.samples_per_second / one.samples_per_second / 2)
        lines.append(say(f"- {precision}: efficiency {spread(efficiency)}"))
    return [*lines, ""]


if __name__ == "__main__":
    main()
