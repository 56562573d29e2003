from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from cpufinetune.train.precision import Chosen, choose

if TYPE_CHECKING:
    from cpufinetune.job.document import Precision


@pytest.mark.parametrize(
    ("wanted", "native", "name", "reason"),
    [
        ("Auto", True, "BFloat16", "the CPU has AVX512_BF16 or AMX"),
        ("Auto", False, "Float32", "the CPU has neither AVX512_BF16 nor AMX"),
        ("Float32", True, "Float32", "asked for"),
        ("Float32", False, "Float32", "asked for"),
        ("BFloat16", True, "BFloat16", "asked for"),
        ("BFloat16", False, "BFloat16", "asked for, although this CPU only emulates it"),
    ],
)
def test_bf16_is_chosen_where_it_is_native_or_asked_for(
    wanted: Precision, name: str, reason: str, *, native: bool
) -> None:
    assert choose(wanted, native_bf16=native) == Chosen(name, reason)


@pytest.mark.parametrize(("name", "dtype"), [("Float32", torch.float32), ("BFloat16", torch.bfloat16)])
def test_products_run_in_the_chosen_format(name: str, dtype: torch.dtype) -> None:
    weights = torch.ones(2, 2)
    with Chosen(name, "").context():
        assert torch.matmul(weights, weights).dtype == dtype
    assert torch.matmul(weights, weights).dtype == torch.float32
