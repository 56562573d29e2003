"""Bad input is refused with what is wrong, where, and what to do; and leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = Path(sys.executable).with_name("cpufinetune")
BAD_INPUT = 2

TRAIN = "label,text\nsport,the match was won\ntrade,tariffs were raised\nsport,a new record\ntrade,exports fell\n"
TEST = "label,text\nsport,the race is on\ntrade,imports rose\n"
MIXED = '{"label": "sport", "text": "a"}\n{"label": 1, "text": "b"}\n{"label": "trade", "text": "c"}\n'
FILES = {"train": "train.csv", "test": "test.csv"}
VALIDATED = {"files": {**FILES, "validation": "validation.csv"}}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a handful of good rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.csv").write_text(TRAIN, encoding="utf-8")
    (folder / "test.csv").write_text(TEST, encoding="utf-8")
    return folder


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    """A copy of the small model, to be damaged."""
    return Path(shutil.copytree(small_model, tmp_path / "model"))


def words_of(outcome: Any) -> str:
    failure = outcome.one("Failure")
    assert failure.kind == "Permanent"
    return f"{failure.reason}: {failure.message} ({failure.fix})"


def assert_refused(outcome: Any, reason: str, words: tuple[str, ...]) -> None:
    said = words_of(outcome)
    assert outcome.code == BAD_INPUT
    assert said.startswith(f"{reason}: ")
    assert all(word in said for word in words), said
    assert not outcome.half_written()
    assert not list(outcome.output.rglob("*"))
    assert not list(outcome.scratch.glob("data-*"))


@pytest.mark.parametrize(
    ("files", "changes", "reason", "words"),
    [
        pytest.param(
            {"train.csv": "label,txt\nsport,a\ntrade,b\n"}, {},
            "MissingColumn", ("data/train.csv", "no column 'text'", "did you mean 'txt'?"), id="a missing column",
        ),
        pytest.param(
            {"test.csv": TEST + "crude,oil is up\n"}, {},
            "UnseenLabel", ("data/test.csv", "row 3", "'crude'", "'sport', 'trade'"), id="a label only tests have",
        ),
        pytest.param(
            {"validation.csv": "label,text\nships,a boat\n"}, {"dataset": VALIDATED},
            "UnseenLabel", ("data/validation.csv", "row 1", "'ships'", "'sport', 'trade'"),
            id="a label only validation has",
        ),
        pytest.param(
            {"train.csv": TRAIN + "sport, \n"}, {},
            "EmptyText", ("data/train.csv", "column 'text'", "row 5", "remove these rows"), id="an empty text",
        ),
        pytest.param(
            {"train.csv": ""}, {}, "EmptyFile", ("data/train.csv", "is empty", "write the rows"), id="an empty file",
        ),
        pytest.param(
            {"train.csv": "label,text\n"}, {},
            "EmptyFile", ("data/train.csv", "has no rows", "write the rows"), id="a header without rows",
        ),
        pytest.param(
            {"train.csv": TRAIN + "7,seven\n"}, {},
            "MixedLabels", ("data/train.csv", "column 'label'", "row 5 ('7') holds integers", "use one kind"),
            id="integers among text labels in csv",
        ),
        pytest.param(
            {"train.jsonl": MIXED}, {"dataset": {"files": {"train": "train.jsonl"}}},
            "MixedLabels", ("data/train.jsonl", "column 'label'", "row 2 ('1') holds integers", "use one kind"),
            id="integers among text labels in jsonl",
        ),
        pytest.param(
            {"train.csv": "label,text\nsport,a\nsport,b\n"}, {},
            "OneClass", ("data/train.csv", "column 'label'", "'sport'", "add others"), id="one class only",
        ),
        pytest.param(
            {"train.csv": TRAIN.encode() + "sport,caf\xe9\n".encode("latin-1")}, {},
            "NotUtf8", ("data/train.csv", "line 6, byte 10", "0xe9", "iconv"), id="text that is not UTF-8",
        ),
        pytest.param(
            {"train.csv": TRAIN + "sport,one,two\n"}, {},
            "MalformedFile", ("data/train.csv", "row 5 (line 6)", "3 fields", "quote fields"), id="a ragged row",
        ),
        pytest.param(
            {"train.csv": None}, {},
            "FileNotFound", ("data/train.csv", "no such file", "spec.dataset"), id="no training file",
        ),
        pytest.param(
            {"test.csv": None}, {},
            "FileNotFound", ("data/test.csv", "no such file", "spec.dataset"), id="no test file",
        ),
        pytest.param(
            {}, {"task": {"positiveLabel": "crude"}},
            "UnknownLabel", ("spec.task.positiveLabel", "'crude'", "use one of 'sport', 'trade'"),
            id="a positive label that is no class",
        ),
        pytest.param(
            {}, {"task": {"maxLength": 513}},
            "MaxLengthTooLong", ("spec.task.maxLength is 513", "at most 512", "set spec.task.maxLength to 512"),
            id="more tokens than the model has positions",
        ),
    ],
)  # fmt: skip
def test_bad_data_is_refused(  # noqa: PLR0917 - fixtures
    files: dict[str, str | bytes | None],
    changes: dict[str, Any],
    reason: str,
    words: tuple[str, ...],
    data: Path,
    small_model: Path,
    document: Callable[..., dict[str, Any]],
    train_here: Any,
    tmp_path: Path,
) -> None:
    for name, content in files.items():
        if content is None:
            (data / name).unlink()
        else:
            (data / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(train_here(document(small_model, data, **changes), tmp_path / "run"), reason, words)


def pickled(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


def without_configuration(model: Path) -> None:
    (model / "config.json").unlink()


def with_code(model: Path) -> None:
    file = model / "config.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "auto_map": {"AutoModel": "modeling.Model"}}), encoding="utf-8")


def without_padding(model: Path) -> None:
    file = model / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "padding": None}), encoding="utf-8")
    (model / "vocab.txt").unlink()
    content = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (model / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "reason", "words"),
    [
        pytest.param(pickled, "PickledWeights", ("pytorch_model.bin", "save_pretrained"), id="pickled weights only"),
        pytest.param(without_configuration, "ModelNotFound", ("no config.json", "name a"), id="no config.json"),
        pytest.param(with_code, "RemoteCode", ("config.json", "auto_map", "use a model"), id="code of its own"),
        pytest.param(without_padding, "NoPaddingToken", ("no padding token", "encoder"), id="no padding token"),
        pytest.param(shutil.rmtree, "ModelNotFound", ("no such model folder", "spec.model.path"), id="no folder"),
    ],
)
def test_a_bad_model_is_refused(  # noqa: PLR0917 - fixtures
    damage: Callable[[Path], None],
    reason: str,
    words: tuple[str, ...],
    model: Path,
    data: Path,
    document: Callable[..., dict[str, Any]],
    train_here: Any,
    tmp_path: Path,
) -> None:
    damage(model)
    assert_refused(train_here(document(model, data), tmp_path / "run"), reason, (str(model), *words))


def test_an_unknown_adapter_target_is_refused(
    small_model: Path, data: Path, document: Callable[..., dict[str, Any]], train_here: Any, tmp_path: Path
) -> None:
    content = document(small_model, data, training={"lora": {"targets": ["q_lin"]}})
    outcome = train_here(content, tmp_path / "run")
    assert outcome.code == BAD_INPUT
    said = words_of(outcome)
    assert said.startswith("UnknownTarget: spec.training.lora.targets: the model has no linear layer 'q_lin'")
    assert "it has classifier, dense, key, query, value" in said
    assert not outcome.half_written()
    assert not list(outcome.output.rglob("*"))


def command(folder: Path, content: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    called = [str(COMMAND), "run", "-f", str(file), "-o", str(folder / "output"), *arguments]
    return subprocess.run(called, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        pytest.param(
            {"nodes": 2, "node": {"ranks": 1}, "training": {"batchSize": 15}}, (),
            ("spec.training.batchSize 15 cannot be shared by 2 ranks", "use 14 or 16"),
            id="a batch that the ranks cannot share",
        ),
        pytest.param(
            {"training": {"batchsize": 16}}, (),
            ("job.yaml: spec.training.batchsize: unknown field", "did you mean 'batchSize'?"), id="an unknown field",
        ),
        pytest.param(
            {}, ("--set", "training.epoch=2"),
            ("spec.training.epoch: unknown field", "did you mean 'epochs'?"), id="--set of an unknown field",
        ),
        pytest.param(
            {}, ("--set", "training"), ("--set training", "field.path=value"), id="--set without a value",
        ),
        pytest.param(
            {}, ("--set", "model={claim: models}"),
            ("spec.model.claim 'models' exists in a cluster only", "--claim models=FOLDER"),
            id="a claim without a folder",
        ),
        pytest.param({}, ("-f", "nowhere.yaml"), ("nowhere.yaml", "cannot be read", "check"), id="no such document"),
    ],
)  # fmt: skip
def test_a_bad_command_is_refused_before_anything_is_written(  # noqa: PLR0917 - fixtures
    changes: dict[str, Any],
    arguments: tuple[str, ...],
    words: tuple[str, ...],
    data: Path,
    small_model: Path,
    document: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    ended = command(tmp_path, document(small_model, data, **changes), *arguments)
    assert ended.returncode == BAD_INPUT, ended.stderr
    assert all(word in ended.stderr for word in words), ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "output").exists()


def test_a_finished_model_is_not_replaced_unless_asked(
    small_model: Path, data: Path, document: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    kept = tmp_path / "output" / "model" / "model.safetensors"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"precious")
    ended = command(tmp_path, document(small_model, data))
    assert ended.returncode == BAD_INPUT
    assert f"{tmp_path / 'output'}: there is a model already (use another --output, or --overwrite)" in ended.stderr
    assert [path.name for path in (tmp_path / "output").rglob("*")] == ["model", "model.safetensors"]
    assert kept.read_bytes() == b"precious"


def test_the_version_is_told() -> None:
    ended = subprocess.run([str(COMMAND), "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.startswith("cpufinetune 0.")


def test_a_class_of_one_row_is_known_even_if_that_row_is_held_out(
    data: Path, small_model: Path, document: Callable[..., dict[str, Any]], train_here: Any, tmp_path: Path
) -> None:
    rows = [f"class {number},text {number}" for number in range(8)]
    (data / "train.csv").write_text("\n".join(["label,text", *rows, ""]), encoding="utf-8")
    dataset = {"files": {"train": "train.csv"}, "validationFraction": 0.5}
    outcome = train_here(document(small_model, data, dataset=dataset), tmp_path / "run")
    assert outcome.code == 0, outcome.events[-1]
    assert len(outcome.one("Setup").labels) == len(rows)
