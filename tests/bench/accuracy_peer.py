"""Accuracy at the same number of steps, after a whole epoch of Reuters R8: ours against Hugging Face `Trainer`."""

from __future__ import annotations

from dataclasses import replace

import corpora
from contest import Case, ours, peer

from cpufinetune import cores

STEPS = 170  # one epoch of 5,485 documents in batches of 32


def main() -> None:
    """Train both once and print test accuracy and speed."""
    case = Case("Reuters R8", corpora.DEMO / "minilm", corpora.DEMO / "reuters-r8", ("text",), STEPS, test=True)
    case = replace(case, mean_tokens=corpora.mean_tokens(case.data, case.text, case.max_length))
    precisions = ("Float32", "Auto") if cores.read().isa.native_bf16 else ("Float32",)
    for name, outcome in [*((f"ours in {one}", ours(case, one)) for one in precisions), ("peer", peer(case))]:
        print(f"{name}: test accuracy {outcome.accuracy:.4f}, {outcome.samples_per_second:.1f} samples/s", flush=True)


if __name__ == "__main__":
    main()
