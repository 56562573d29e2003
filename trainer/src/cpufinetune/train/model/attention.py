"""Attention with dropout for training on CPU, in place of the one that PyTorch falls back to.

PyTorch's fused CPU kernel has no dropout, so training takes its generic path: scores in fp32, a full
(samples, heads, tokens, tokens) mask, three passes to find rows without any key. Here the mask stays one row a
sample, the scale goes into the queries, and each large tensor is passed over as few times as possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, eager_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.train.model.dropout import DropoutStream

NAME = "cpufinetune"


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None,
        keep: torch.Tensor | None,
        scaling: float,
        scale: float,
    ) -> torch.Tensor:
        scores = torch.matmul(query * scaling, key.transpose(-1, -2))
        if bias is not None:
            scores.add_(bias)
        weights = torch.softmax(scores, dim=-1)
        dropped = weights if keep is None else weights.mul(keep.to(weights.dtype)).mul_(scale)
        ctx.save_for_backward(query, key, value, weights, keep)
        ctx.scaling, ctx.scale = scaling, scale
        return torch.matmul(dropped, value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, weights, keep = ctx.saved_tensors
        d_weights = torch.matmul(gradient, value.transpose(-1, -2))
        dropped = weights
        if keep is not None:
            factor = keep.to(weights.dtype).mul_(ctx.scale)
            dropped = weights * factor
            d_weights.mul_(factor)
        d_value = torch.matmul(dropped.transpose(-1, -2), gradient)
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)  # noqa: SLF001 - softmax's own
        d_query = torch.matmul(d_scores, key).mul_(ctx.scaling)
        d_key = torch.matmul(d_scores.transpose(-1, -2), query).mul_(ctx.scaling)
        return d_query, d_key, d_value, None, None, None, None


class SampleAttention:
    """The attention function of one model: holds the stream that dropout draws from."""

    def __init__(self, stream: DropoutStream, probability: float | None) -> None:
        self.stream = stream
        self.probability = probability

    def __call__(  # noqa: PLR0917 - transformers' signature
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """Attend; shapes (samples, heads, tokens, features), result (samples, tokens, heads, features)."""
        p = dropout if self.probability is None or not module.training else self.probability
        keep = None
        if p > 0:
            shape = torch.Size((*query.shape[:3], key.shape[2]))
            keep = self.stream.keep(shape, 1 - p)
        bias = None if attention_mask is None else attention_mask.to(query.dtype)
        scaling = query.size(-1) ** -0.5 if scaling is None else scaling
        mixed = _Attention.apply(query, key, value, bias, keep, scaling, 1 / (1 - p))
        return mixed.transpose(1, 2).contiguous(), None


def padding_bias(
    *,
    mask_function: Callable[..., Any],
    attention_mask: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    **rest: Any,
) -> torch.Tensor | None:
    """Return the additive mask of an encoder, (samples, 1, 1, keys): 0 for tokens, the lowest number for padding.

    Anything but plain padding (sliding windows, say) gets transformers' full (samples, 1, queries, keys) mask.
    """
    if mask_function is not bidirectional_mask_function:
        full: torch.Tensor | None = eager_mask(
            mask_function=mask_function, attention_mask=attention_mask, dtype=dtype, **rest
        )
        return full
    if attention_mask is None or bool(attention_mask.all()):
        return None
    return torch.where(attention_mask.bool(), 0.0, torch.finfo(dtype).min).to(dtype)[:, None, None, :]


def use_sample_attention(model: Any, stream: DropoutStream, probability: float | None) -> bool:
    """Give `model` this attention where its code can be given one; return whether it was."""
    configuration = model.config
    if not getattr(model, "_supports_attention_backend", False) or getattr(configuration, "is_decoder", False):
        return False
    AttentionInterface.register(NAME, SampleAttention(stream, probability))
    AttentionMaskInterface.register(NAME, padding_bias)
    model.set_attn_implementation(NAME)
    return True
