from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from cpufinetune.train.model.dropout import DropoutStream, SampleDropout, replace_dropout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cpufinetune.train.data.store import Split

FEATURES = 8
HEADS = 3
LENGTHS = [3, 5, 2, 4, 6]
KINDS = {
    "of pooled features": lambda _: (FEATURES,),
    "of token features": lambda tokens: (tokens, FEATURES),
    "of attention scores": lambda tokens: (HEADS, tokens, tokens),
}

Shape = tuple[int, ...]
Draw = Callable[..., dict[int, torch.Tensor]]


def real(mask: torch.Tensor, length: int) -> torch.Tensor:
    """The part of one sample's mask that belongs to its tokens."""
    if mask.ndim == 1:
        return mask
    return mask[:length] if mask.ndim == 2 else mask[:, :length, :length]


@pytest.fixture
def draw(split_of: Callable[..., Split]) -> Draw:
    """Draws two masks in a row for each sample of a batch; returns both, cut to real tokens, by sample."""
    split = split_of(LENGTHS)

    def build(
        samples: Sequence[int], kind: Callable[[int], Shape], *, seed: int = 1, step: int = 4, widen: int = 0
    ) -> dict[int, torch.Tensor]:
        stream = DropoutStream(seed)
        batch = split.batch(np.array(samples), pad_token=0)
        stream.enter(step, batch)
        shape = torch.Size((len(samples), *kind(batch.tokens.shape[1] + widen)))
        masks = [stream.keep(shape, 0.5) for _ in range(2)]
        return {
            sample: torch.stack([real(mask[row], LENGTHS[sample]) for mask in masks])
            for row, sample in enumerate(samples)
        }

    return build


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("samples", "widen"),
    [
        pytest.param([0], 0, id="alone"),
        pytest.param([0, 2], 0, id="with shorter samples"),
        pytest.param([4, 0, 1], 0, id="with longer samples"),
        pytest.param([1, 2, 0], 0, id="in another order"),
        pytest.param([0, 1], 7, id="with wider padding"),
    ],
)
def test_the_mask_of_a_sample_does_not_depend_on_its_batch(
    draw: Draw, kind: Callable[[int], Shape], samples: list[int], widen: int
) -> None:
    assert torch.equal(draw(samples, kind, widen=widen)[0], draw([0, 1, 2, 3, 4], kind)[0])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_masks_differ_by_seed_step_sample_and_draw(draw: Draw, kind: Callable[[int], Shape]) -> None:
    known = draw([4, 1], kind)
    assert not torch.equal(known[4], draw([4, 1], kind, seed=2)[4])
    assert not torch.equal(known[4], draw([4, 1], kind, step=5)[4])
    assert not torch.equal(known[4][0], known[4][1])
    assert not torch.equal(known[4][0].flatten()[:8], known[1][0].flatten()[:8])


@pytest.mark.parametrize("kind", list(KINDS.values())[1:], ids=list(KINDS)[1:])
def test_padding_is_kept(split_of: Callable[..., Split], kind: Callable[[int], Shape]) -> None:
    stream = DropoutStream(1)
    stream.enter(0, split_of([2, 6]).batch(np.array([0, 1]), pad_token=0))
    mask = stream.keep(torch.Size((2, *kind(6))), 0.1)[0].clone()
    real(mask, 2).fill_(1)
    assert mask.min() == 1


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9, 0.999, 1 / 3])
def test_the_share_of_kept_elements_is_the_probability(split_of: Callable[..., Split], probability: float) -> None:
    stream = DropoutStream(1)
    stream.enter(0, split_of([100] * 8).batch(np.arange(8), pad_token=0))
    mask = stream.keep(torch.Size((8, 100, 256)), probability)
    deviation = np.sqrt(probability * (1 - probability) / mask.numel())
    assert set(np.unique(mask.numpy()).tolist()) <= {0, 1}
    assert abs(float(mask.float().mean()) - probability) < 5 * deviation + 2**-17
    for axis in (0, 1, 2):
        means = mask.float().mean(dim=[other for other in range(3) if other != axis])
        assert float((means - probability).abs().max()) < 5.5 * deviation * np.sqrt(mask.shape[axis])


@pytest.mark.parametrize("probability", [1.0, 1 - 1e-9])
def test_a_probability_of_next_to_one_keeps_everything(split_of: Callable[..., Split], probability: float) -> None:
    stream = DropoutStream(1)
    stream.enter(0, split_of([4]).batch(np.array([0]), pad_token=0))
    assert stream.keep(torch.Size((1, 4, 10_000)), probability).min() == 1


def test_dropout_outside_a_batch_is_an_error(split_of: Callable[..., Split]) -> None:
    stream = DropoutStream(1)
    with pytest.raises(RuntimeError, match=r"dropout of shape \(2, 8\) outside a batch of 0 samples"):
        stream.keep(torch.Size((2, 8)), 0.5)
    stream.enter(0, split_of().batch(np.array([0, 1, 2]), pad_token=0))
    with pytest.raises(RuntimeError, match="outside a batch of 3 samples"):
        stream.keep(torch.Size((2, 8)), 0.5)


def test_values_and_gradients_pass_the_same_mask(split_of: Callable[..., Split]) -> None:
    stream = DropoutStream(1)
    batch = split_of(LENGTHS).batch(np.array([4, 1]), pad_token=0)
    stream.enter(0, batch)
    keep = stream.keep(torch.Size((2, 6, FEATURES)), 0.75)
    stream.enter(0, batch)
    values = torch.randn(2, 6, FEATURES, requires_grad=True)
    dropped = SampleDropout(0.25, stream)(values)
    weights = torch.randn(2, 6, FEATURES)
    (dropped * weights).sum().backward()
    assert 0 < int((keep == 0).sum()) < keep.numel()
    assert torch.allclose(dropped, values * keep / 0.75)
    assert values.grad is not None
    assert torch.allclose(values.grad, weights * keep / 0.75)


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True)])
def test_without_dropout_values_pass_and_nothing_is_drawn(p: float, *, training: bool) -> None:
    values = torch.randn(2, 3)
    assert SampleDropout(p, DropoutStream(1)).train(training)(values) is values


@pytest.mark.parametrize(("probability", "expected"), [(None, [0.1, 0.2]), (0.3, [0.3, 0.3]), (0.0, [0.0, 0.0])])
def test_every_dropout_of_a_model_is_replaced(probability: float | None, expected: list[float]) -> None:
    stream = DropoutStream(1)
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), nn.Sequential(nn.Dropout(0.2), nn.ReLU()))
    assert replace_dropout(model, stream, probability) == 2
    replaced = [module for module in model.modules() if isinstance(module, SampleDropout)]
    assert [module.p for module in replaced] == expected
    assert all(module.stream is stream for module in replaced)
    assert not any(isinstance(module, nn.Dropout) for module in model.modules())
