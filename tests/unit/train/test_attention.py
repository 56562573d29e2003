from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers.masking_utils import bidirectional_mask_function

from cpufinetune.train.model.attention import SampleAttention, _Attention, padding_bias
from cpufinetune.train.model.dropout import DropoutStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.train.data.store import Split

SAMPLES, HEADS, TOKENS, FEATURES = 3, 2, 5, 4
LENGTHS = [5, 2, 4]
SHAPE = (SAMPLES, HEADS, TOKENS, FEATURES)

Tensors = list[torch.Tensor]


def inputs(dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(SHAPE, dtype=dtype, generator=generator).requires_grad_() for _ in range(3)]


def padding(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    blocked = torch.arange(TOKENS) >= torch.tensor(LENGTHS)[:, None]
    return torch.zeros(SAMPLES, TOKENS, dtype=dtype).masked_fill(blocked, torch.finfo(dtype).min)[:, None, None, :]


def kept(seed: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(SAMPLES, HEADS, TOKENS, TOKENS, generator=generator) < 0.7).to(torch.uint8)


def plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> torch.Tensor:
    """Attention as in the textbook."""
    bias, keep, scaling = options["bias"], options["keep"], options["scaling"]
    scores = query @ key.transpose(-1, -2) * scaling
    weights = torch.softmax(scores if bias is None else scores + bias, dim=-1)
    dropped = weights if keep is None else weights * keep * options["scale"]
    return dropped @ value


def outcome(attend: Callable[[Tensors], torch.Tensor], dtype: torch.dtype) -> Tensors:
    """The result, and the gradients of query, key and value."""
    tensors = inputs(dtype)
    mixed = attend(tensors)
    weights = torch.randn(mixed.shape, dtype=dtype, generator=torch.Generator().manual_seed(3))
    return [mixed.detach(), *torch.autograd.grad((mixed * weights).sum(), tensors)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("masked", [pytest.param(True, id="with padding"), pytest.param(False, id="without padding")])
@pytest.mark.parametrize("drops", [pytest.param(True, id="with dropout"), pytest.param(False, id="without dropout")])
@pytest.mark.parametrize("scaling", [0.5, 0.1])
def test_result_and_gradients_are_those_of_plain_attention(
    dtype: torch.dtype, tolerance: float, scaling: float, *, masked: bool, drops: bool
) -> None:
    bias, keep, scale = padding(dtype) if masked else None, kept() if drops else None, 1 / 0.7 if drops else 1.0
    found = outcome(lambda tensors: _Attention.apply(*tensors, bias, keep, scaling, scale), dtype)
    expected = outcome(lambda tensors: plain(*tensors, bias=bias, keep=keep, scaling=scaling, scale=scale), dtype)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_gradients_are_finite_differences() -> None:
    def attend(*tensors: torch.Tensor) -> torch.Tensor:
        return _Attention.apply(*tensors, padding(), kept(), 0.5, 1 / 0.7)  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(attend, tuple(inputs()))


def test_padding_gets_no_weight_and_no_gradient() -> None:
    bias = padding()
    _, _, d_key, d_value = outcome(lambda tensors: _Attention.apply(*tensors, bias, None, 0.5, 1.0), torch.float64)
    for sample, length in enumerate(LENGTHS):
        assert not d_key[sample, :, length:].any()
        assert not d_value[sample, :, length:].any()


def test_bf16_comes_close_under_autocast() -> None:
    tensors = inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        halves = [tensor * 1 for tensor in tensors]
        mixed = _Attention.apply(*[half.bfloat16() for half in halves], padding(torch.bfloat16), kept(), 0.5, 1 / 0.7)
    gradients = torch.autograd.grad(mixed.float().sum(), tensors)
    reference = inputs(torch.float32)
    expected = plain(*reference, bias=padding(torch.float32), keep=kept(), scaling=0.5, scale=1 / 0.7)
    assert mixed.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.float(), expected, rtol=0.05, atol=0.05)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected.sum(), reference), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.1)


@pytest.fixture
def stream(split_of: Callable[..., Split]) -> DropoutStream:
    stream = DropoutStream(1)
    stream.enter(0, split_of(LENGTHS).batch(np.arange(SAMPLES), pad_token=0))
    return stream


@pytest.mark.parametrize(
    ("own", "passed", "training", "p"),
    [
        pytest.param(None, 0.4, True, 0.4, id="the model's probability"),
        pytest.param(0.25, 0.4, True, 0.25, id="the job's probability instead"),
        pytest.param(0.25, 0.0, True, 0.25, id="the job's probability where the model has none"),
        pytest.param(0.0, 0.4, True, 0.0, id="no dropout, as the job says"),
        pytest.param(0.25, 0.0, False, 0.0, id="no dropout while evaluating"),
    ],
)
def test_dropout_is_drawn_from_the_stream(
    stream: DropoutStream, own: float | None, passed: float, p: float, *, training: bool
) -> None:
    tensors = inputs(torch.float32)
    query, key, value = tensors
    attend = SampleAttention(stream, own)
    mixed, weights = attend(nn.Module().train(training), query, key, value, padding(), dropout=passed)
    fresh = DropoutStream(1)
    fresh._generators, fresh._lengths = [np.random.SFC64([1, 0, sample]) for sample in range(SAMPLES)], stream._lengths
    keep = fresh.keep(torch.Size((SAMPLES, HEADS, TOKENS, TOKENS)), 1 - p) if p else None
    options: dict[str, Any] = {
        "bias": padding(torch.float32),
        "keep": keep,
        "scaling": 1 / math.sqrt(FEATURES),
        "scale": 1 / (1 - p),
    }
    assert weights is None
    assert mixed.shape == (SAMPLES, TOKENS, HEADS, FEATURES)
    assert mixed.is_contiguous()
    torch.testing.assert_close(mixed, plain(*tensors, **options).transpose(1, 2))


def bias_of(mask: torch.Tensor | None, dtype: torch.dtype = torch.float32) -> torch.Tensor | None:
    return padding_bias(mask_function=bidirectional_mask_function, attention_mask=mask, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_becomes_one_row_a_sample(dtype: torch.dtype) -> None:
    bias = bias_of(torch.tensor([[1, 1, 0], [1, 1, 1]]), dtype)
    assert bias is not None
    assert bias.shape == (2, 1, 1, 3)
    assert bias.dtype == dtype
    assert bias.flatten().tolist() == [0, 0, torch.finfo(dtype).min, 0, 0, 0]


@pytest.mark.parametrize("mask", [None, torch.ones(2, 3, dtype=torch.int64)], ids=["no mask", "nothing masked"])
def test_without_padding_there_is_no_mask(mask: torch.Tensor | None) -> None:
    assert bias_of(mask) is None
