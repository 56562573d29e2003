"""Tokenised splits on disk: one safetensors file a split, memory-mapped and shared by the ranks of a node.

Tensors: `tokens` int32 (all tokens, concatenated), `offsets` int64 (samples + 1), `labels` int64 (samples), and
`segments` uint8 (token types) where the tokenizer gives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from cpufinetune.train.data.batches import Indices


@dataclass(frozen=True, slots=True)
class Batch:
    """A padded micro-batch: `tokens`, `mask` and `segments` are int64 (samples, longest); `labels` int64 (samples,)."""

    tokens: torch.Tensor
    mask: torch.Tensor
    segments: torch.Tensor | None
    labels: torch.Tensor
    lengths: NDArray[np.int64]
    samples: Indices

    @property
    def padded_tokens(self) -> int:
        """Tokens including padding."""
        return int(self.tokens.numel())


@dataclass(frozen=True, slots=True)
class Split:
    """One tokenised split, memory-mapped."""

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    labels: NDArray[np.int64]
    segments: NDArray[np.uint8] | None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample, shape (samples,)."""
        return np.diff(self.offsets)

    def vocabulary(self, samples: Indices, pad_token: int) -> NDArray[np.int64]:
        """Return the token ids that occur in `samples`, and the padding token, in ascending order."""
        spans = [self.tokens[self.offsets[sample] : self.offsets[sample + 1]] for sample in samples]
        return np.unique(np.concatenate([*spans, [pad_token]])).astype(np.int64)

    def batch(self, samples: Indices, pad_token: int) -> Batch:
        """Gather and pad `samples` to the longest of them."""
        lengths = self.offsets[samples + 1] - self.offsets[samples]
        shape = (len(samples), int(lengths.max()))
        tokens = np.full(shape, pad_token, dtype=np.int64)
        segments = np.zeros(shape, dtype=np.int64) if self.segments is not None else None
        for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
            span = slice(self.offsets[sample], self.offsets[sample] + length)
            tokens[row, :length] = self.tokens[span]
            if segments is not None and self.segments is not None:
                segments[row, :length] = self.segments[span]
        mask = (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)
        return Batch(
            tokens=torch.from_numpy(tokens),
            mask=torch.from_numpy(mask),
            segments=None if segments is None else torch.from_numpy(segments),
            labels=torch.from_numpy(self.labels[samples]),
            lengths=lengths,
            samples=samples,
        )


def write_split(
    path: Path,
    tokens: Sequence[NDArray[np.int32]],
    labels: Sequence[int],
    segments: Sequence[NDArray[np.uint8]] | None,
) -> None:
    """Write one split; `tokens[i]` are the tokens of sample i."""
    offsets = np.zeros(len(tokens) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in tokens], out=offsets[1:])
    arrays: dict[str, NDArray[Any]] = {
        "tokens": np.concatenate(tokens).astype(np.int32),
        "offsets": offsets,
        "labels": np.asarray(labels, dtype=np.int64),
    }
    if segments is not None:
        arrays["segments"] = np.concatenate(segments).astype(np.uint8)
    save_file(arrays, path)


def open_split(path: Path) -> Split:
    """Map one split into memory; pages are shared with other ranks."""
    with safe_open(path, framework="pt") as stored:
        names = set(stored.keys())
        arrays = {name: stored.get_tensor(name).numpy() for name in names}
    return Split(
        tokens=arrays["tokens"], offsets=arrays["offsets"], labels=arrays["labels"], segments=arrays.get("segments")
    )
