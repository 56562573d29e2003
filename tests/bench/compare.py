"""Speed against Hugging Face `Trainer`, paired in one run: `make bench`. Writes RESULTS.md beside this file.

Contestants take turns on the same machine; what counts are the ratios of neighbours, given as median and range.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import corpora
import profile_step
from contest import AVX2_ONLY, Case, Outcome, ours, peer, spread

from cpufinetune import cores
from cpufinetune.cli.run import versions

RESULTS = Path(__file__).with_name("RESULTS.md")
REPEATS = 3
LONG, SHORT = 80, 25  # steps


def main() -> None:
    """Run all comparisons and write the results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="one short repeat each; does not write RESULTS.md")
    quick = options.parse_args().quick
    cpu = cores.read()
    lines = [header()]
    with tempfile.TemporaryDirectory() as name:
        corpora.write_pairs(Path(name))
        model = corpora.DEMO / "minilm"
        r8 = Case("Reuters R8", model, corpora.DEMO / "reuters-r8", ("text",), LONG, test=True)
        pairs = Case("pairs of MRPC's lengths", model, Path(name), ("sentence1", "sentence2"), LONG, test=True)
        if quick:
            r8, pairs = r8.short(SHORT), pairs.short(SHORT)
        repeats = 1 if quick else REPEATS
        for case in (r8, pairs):
            lines += against_peer(case, "Float32", repeats)
            if cpu.isa.native_bf16:
                lines += against_peer(case, "Auto", repeats)
        if cpu.isa.native_bf16:
            limited = replace(r8, environment=tuple(AVX2_ONLY.items()))
            lines += against_peer(replace(limited, name="Reuters R8, both limited to AVX2"), "Float32", repeats)
        lines += two_ranks(r8.short(SHORT), repeats)
    lines += profile_step.report(native_bf16=cpu.isa.native_bf16)
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
        "model (all-MiniLM-L6-v2), data, global batch (32), learning rate, steps and threads (2). Both sides take turns;\n"
        "median (range) of the ratios of neighbours. Samples a second after 5 steps of warm-up, by wall time.\n"
    )


def against_peer(case: Case, precision: str, repeats: int) -> list[str]:
    """Compare one case, the first time with a test at the end."""
    pairs: list[tuple[Outcome, Outcome]] = []
    for repeat in range(repeats):
        this = case if repeat == 0 else case.short(SHORT)
        pairs.append((ours(this, precision), peer(this)))
    mine, other = ([pair[side].samples_per_second for pair in pairs] for side in (0, 1))
    ratios = [one / two for one, two in zip(mine, other, strict=True)]
    lines = [
        say(f"## {case.name}, ours in {precision}\n"),
        say(f"- ours {spread(mine)} samples/s, peer {spread(other)} samples/s: **{spread(ratios)} times**"),
    ]
    first_ours, first_peer = pairs[0]
    if first_ours.accuracy is not None and first_peer.accuracy is not None:
        line = (
            f"- test accuracy after {case.steps} steps: ours {first_ours.accuracy:.4f}, peer {first_peer.accuracy:.4f}"
        )
        lines.append(say(line))
    return [*lines, ""]


def two_ranks(case: Case, repeats: int) -> list[str]:
    """Compare 2 ranks of one core each with one rank of one core, at the same global batch."""
    case = replace(case, threads=1)
    lines = [say("## Two ranks x 1 core against one rank x 1 core, same global batch\n")]
    for precision in ("Float32", "Auto"):
        efficiency = []
        for _ in range(repeats):
            one, two = ours(case, precision), ours(case, precision, nodes=2)
            efficiency.append(two.samples_per_second / one.samples_per_second / 2)
        median = statistics.median(efficiency)
        lines.append(say(f"- {precision}: efficiency {median:.1%} ({min(efficiency):.1%}-{max(efficiency):.1%})"))
    return [*lines, ""]


if __name__ == "__main__":
    main()
