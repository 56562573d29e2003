"""The pretrained model's folder: found, fetched from the hub if need be, and checked before anything is built."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from cpufinetune.errors import JobError, first_line

if TYPE_CHECKING:
    from cpufinetune.job.document import Model

# Weights as safetensors, configuration, tokenizers; nothing that could hold code or pickles.
PATTERNS = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model")
SAMPLE = 1 << 20  # bytes
LOCATED = "model-folder"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
# RoBERTa-like models keep this many positions for padding.
RESERVED_POSITIONS = {"roberta": 2, "xlm-roberta": 2, "camembert": 2, "longformer": 2}


def locate(model: Model, root: Path | None) -> Path:
    """Return the folder of the pretrained model.

    Args:
        model: the job's model.
        root: its folder, for models that are not on the hub.

    Raises:
        JobError: no such folder, revision, or connection; or not a safetensors model.
    """
    folder = root if root is not None else fetch(model)
    if not folder.is_dir():
        raise JobError("ModelNotFound", f"{folder}: no such model folder", "correct spec.model.path")
    configuration = folder / "config.json"
    if not configuration.is_file():
        raise JobError(
            "ModelNotFound", f"{folder}: no config.json in the model folder", "name a Hugging Face model folder"
        )
    if not list(folder.glob("*.safetensors")):
        pickles = [path.name for pattern in PICKLES for path in folder.glob(pattern)]
        if pickles:
            raise JobError(
                "PickledWeights",
                f"{folder}: weights are only there as {', '.join(pickles[:3])}, which may run code when loaded",
                "convert them once with model.save_pretrained(folder), which writes model.safetensors",
            )
        raise JobError("ModelNotFound", f"{folder}: no model.safetensors in the model folder", "copy the weights there")
    for weights in folder.glob("*.safetensors"):
        _check_weights(weights)
    if "auto_map" in read_configuration(folder):
        raise JobError(
            "RemoteCode",
            f"{folder}: config.json asks for code of its own (auto_map)",
            "use a model that transformers knows",
        )
    return folder


def remember(folder: Path, scratch: Path) -> None:
    """Leave a note for the ranks of this node: they need not ask the hub again."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / LOCATED).write_text(str(folder), encoding="utf-8")


def located(scratch: Path) -> Path:
    """Return the folder that `remember` was told."""
    return Path((scratch / LOCATED).read_text(encoding="utf-8"))


def _check_weights(path: Path) -> None:
    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise JobError(
            "BadModel", f"{path}: {error}", "copy the weights again; a pointer of git-lfs is not the file itself"
        ) from error


def weights_key(folder: Path) -> str:
    """Return what identifies the weights: size, head and tail of their files, which is quick and enough."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}".encode())
        with path.open("rb") as stream:
            digest.update(stream.read(SAMPLE))
            stream.seek(max(0, size - SAMPLE))
            digest.update(stream.read(SAMPLE))
    return digest.hexdigest()


def fetch(model: Model, folder: Path | None = None) -> Path:
    """Get a model of the hub; return its folder.

    Args:
        model: with name and revision.
        folder: where to put the files; None for the hub's own cache.

    Raises:
        JobError: it is neither cached nor to be had.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import, not needed for folders
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RevisionNotFoundError  # noqa: PLC0415

    where = f"model '{model.name}' at revision {model.revision}"
    try:
        found = snapshot_download(
            model.name or "",
            revision=model.revision,
            allow_patterns=list(PATTERNS),
            # Conversions for other runtimes.
            ignore_patterns=["*/*"],
            local_dir=folder,
        )
        return Path(found)
    except RevisionNotFoundError as error:
        raise JobError(
            "WrongRevision", f"{where}: no such revision", "copy the commit from the model's page"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise JobError(
            "ModelUnavailable",
            f"{where} is neither cached nor to be fetched: {first_line(error)}",
            "check name, revision and the connection to the hub, or give spec.model.path",
        ) from error


def read_configuration(folder: Path) -> dict[str, Any]:
    """Return config.json as it stands."""
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise JobError("BadModel", f"{folder / 'config.json'}: {error}", "copy the model again") from error
    return dict(content)


def check_length(folder: Path, max_length: int) -> None:
    """Refuse a `maxLength` in tokens that the model has no positions for."""
    configuration = read_configuration(folder)
    positions = configuration.get("max_position_embeddings")
    if not isinstance(positions, int):
        return
    longest = positions - RESERVED_POSITIONS.get(str(configuration.get("model_type")), 0)
    if max_length > longest:
        raise JobError(
            "MaxLengthTooLong",
            f"spec.task.maxLength is {max_length}, the model takes at most {longest} tokens",
            f"set spec.task.maxLength to {longest} or less",
        )


def tokenizer_key(folder: Path) -> str:
    """Return what identifies the tokenizer: a hash of its files."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*token*")) + sorted(folder.glob("vocab*")) + sorted(folder.glob("*.model")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def load_tokenizer(folder: Path) -> Any:
    """Load the folder's fast tokenizer; never code of its own."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - slow to import

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), use_fast=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise JobError("BadTokenizer", f"{folder}: {error}", "the folder needs a tokenizer.json") from error
    if tokenizer.pad_token_id is None:
        raise JobError("NoPaddingToken", f"{folder}: the tokenizer has no padding token", "use an encoder model")
    return tokenizer
