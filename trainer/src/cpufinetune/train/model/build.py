"""The model to train: pretrained encoder, new head, adapters, and the levers that make it fast on CPU."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from cpufinetune.errors import JobError
from cpufinetune.train.model.attention import use_sample_attention
from cpufinetune.train.model.dropout import DropoutStream, replace_dropout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cpufinetune.job.document import Lora, Training

TRIAL_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Built:
    """A model ready to train, the stream its dropout draws from, and what was done to it."""

    model: Any
    stream: DropoutStream
    levers: tuple[str, ...]


def build(
    folder: Path, labels: tuple[str, ...], training: Training, *, weights: bool, agree: Callable[[bool], bool]
) -> Built:
    """Build the classifier.

    Args:
        folder: the pretrained model.
        labels: class names in order.
        training: seed, dropout and adapters.
        weights: load the pretrained weights; without them parameters are random and must be received.
        agree: returns rank 0's answer to all ranks, so that they compute alike.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification  # noqa: PLC0415 - slow to import
    from transformers.utils import logging  # noqa: PLC0415

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(training.seed)
    try:
        configuration = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        configuration.id2label = dict(enumerate(labels))
        configuration.label2id = {name: number for number, name in enumerate(labels)}
        configuration.num_labels = len(labels)
        if weights:
            model = AutoModelForSequenceClassification.from_pretrained(
                str(folder),
                config=configuration,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
            )
        else:
            make: Any = AutoModelForSequenceClassification.from_config
            model = make(configuration, dtype=torch.float32, trust_remote_code=False)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise JobError("BadModel", f"{folder}: {error}", "use an encoder model that transformers knows") from error
    if training.lora is not None:
        model = _adapt(model, training.lora)
    return _speed_up(model, training, agree)


def _adapt(model: Any, lora: Lora) -> Any:
    from peft import LoraConfig, TaskType, get_peft_model  # noqa: PLC0415 - only for adapters

    names = {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    unknown = [target for target in lora.targets if target.rsplit(".", 1)[-1] not in names]
    if unknown:
        raise JobError(
            "UnknownTarget",
            f"spec.training.lora.targets: the model has no linear layer '{unknown[0]}'",
            f"it has {', '.join(sorted(names))}",
        )
    return get_peft_model(
        model,
        LoraConfig(
            task_type=TaskType.SEQ_CLS,
            r=lora.rank,
            lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft divides it, fractions work
            lora_dropout=lora.dropout,
            target_modules=list(lora.targets),
        ),
    )


def _speed_up(model: Any, training: Training, agree: Callable[[bool], bool]) -> Built:
    stream = DropoutStream(training.seed)
    before = _trial(model)
    levers = []
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    implementation = base.config._attn_implementation  # noqa: SLF001 - transformers has no public reader
    if use_sample_attention(base, stream, training.dropout):
        same = torch.allclose(_trial(model), before, rtol=TRIAL_TOLERANCE, atol=TRIAL_TOLERANCE, equal_nan=True)
        if agree(same):
            levers.append("sample attention")
        else:
            base.set_attn_implementation(implementation)
    if replace_dropout(model, stream, training.dropout):
        levers.append("sample dropout")
    return Built(model, stream, tuple(levers))


def _trial(model: Any) -> torch.Tensor:
    """Return logits of a small padded batch; tells whether a lever changes what the model computes."""
    was_training = model.training
    model.eval()
    tokens = torch.arange(2 * 12).reshape(2, 12) % min(1000, model.config.vocab_size)
    mask = torch.ones_like(tokens)
    mask[1, 7:] = 0
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=tokens, attention_mask=mask).logits
    model.train(was_training)
    return logits


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split trainable parameters: vectors (biases, norms) are not decayed, as in the models' own recipes."""
    decayed: list[torch.nn.Parameter] = []
    plain: list[torch.nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim > 1 else plain).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face model folder that plain `transformers` loads; adapters are merged into the weights."""
    whole = copy.deepcopy(model).merge_and_unload() if hasattr(model, "merge_and_unload") else model
    whole.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
