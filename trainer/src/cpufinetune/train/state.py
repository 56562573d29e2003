"""What a checkpoint holds of a run, and how the other ranks get it from rank 0."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(slots=True)
class RunState:
    """Everything but tensors: `step` optimizer steps are done. Batches and dropout follow from it and the seed.

    `unevaluated` says that the evaluation due after them was cut short.
    """

    step: int = 0
    best_metric: float | None = None
    best_step: int | None = None
    best_metrics: dict[str, float] = field(default_factory=dict)
    intel: bool | None = None
    unevaluated: bool = False

    def document(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def read(cls, document: dict[str, Any]) -> RunState:
        """Read what `document` gave; other keys are the store's, and older checkpoints lack the newer ones."""
        return cls(**{name: document[name] for name in cls.__slots__ if name in document})


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that training changes, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def moments(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the optimizer's tensors by name."""
    return {
        f"{moment}.{name}": optimizer.state[parameter][moment]
        for name, parameter in trainable(model).items()
        for moment in MOMENTS
        if moment in optimizer.state[parameter]
    }


def allocate_moments(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, names: Collection[str], step: int
) -> None:
    """Give the optimizer zeroed tensors as after `step` steps, to be filled from a checkpoint or by rank 0.

    Parameters that no gradient ever reached have none: `names` says which were saved.
    """
    for name, parameter in trainable(model).items():
        if f"{MOMENTS[0]}.{name}" in names:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(step)),
                **{moment: torch.zeros_like(parameter) for moment in MOMENTS},
            }


def copy_into(target: dict[str, Any], source: dict[str, torch.Tensor]) -> None:
    """Copy tensors by name.

    Raises:
        ValueError: the names or shapes differ: the checkpoint is of another model.
    """
    if target.keys() != source.keys():
        odd = sorted(target.keys() ^ source.keys())
        raise ValueError(f"tensors differ, for example {odd[0]}")
    with torch.no_grad():
        for name, tensor in target.items():
            if tensor.shape != source[name].shape:
                raise ValueError(f"{name} has shape {tuple(source[name].shape)} instead of {tuple(tensor.shape)}")
            tensor.copy_(source[name])


def broadcast(tensors: Iterable[torch.Tensor]) -> None:
    """Send rank 0's tensors to all ranks, in place."""
    pending = [distributed.broadcast(tensor.detach(), src=0, async_op=True) for tensor in tensors]
    for work in pending:
        if work is not None:
            work.wait()


def gather(values: Sequence[float], rank: int, world_size: int) -> list[list[float]]:
    """Return the values of each rank, in order, on all of them."""
    table = torch.zeros((world_size, len(values)), dtype=torch.float64)
    table[rank] = torch.tensor(values, dtype=torch.float64)
    if world_size > 1:
        distributed.all_reduce(table)
    return table.tolist()


def broadcast_json(value: Any) -> Any:
    """Send rank 0's JSON value to all ranks and return it. PyTorch's own way for objects would unpickle it."""
    if not distributed.is_initialized():
        return value
    data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    size = torch.tensor([len(data)])
    distributed.broadcast(size, src=0)
    text = data if distributed.get_rank() == 0 else torch.empty(int(size), dtype=torch.uint8)
    distributed.broadcast(text, src=0)
    return json.loads(text.numpy().tobytes())
