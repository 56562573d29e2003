"""Files, overrides, and the way to a `Job` and back."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from cpufinetune.job import InvalidJob, Job, load, parse, to_document
from cpufinetune.job.document import Dataset, Lora, Model, Node, Output, Spec, Splits, Task, Toleration, Training
from cpufinetune.job.load import override
from cpufinetune.job.yaml_text import read_yaml

if TYPE_CHECKING:
    import pathlib

    from tests.unit.job.conftest import Build

HEAD = "apiVersion: cpufinetune.dev/v1alpha1\nkind: CpuFineTune\nmetadata: {name: mrpc}\n"
SPEC = (
    "spec:\n  model: {path: ./minilm}\n  dataset: {path: ./data, files: {train: train.csv}}\n"
    "  task: {text: [a, b], label: c}\n"
)


@pytest.fixture(name="file")
def fixture_file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "finetune.yaml"
    path.write_text(HEAD + SPEC, encoding="utf-8")
    return path


def problems_of(path: pathlib.Path, *overrides: str) -> list[str]:
    with pytest.raises(InvalidJob) as caught:
        load(path, overrides)
    return [str(problem).replace(f"{path.parent}/", "") for problem in caught.value.problems]


def test_a_file_becomes_a_job_with_defaults(file: pathlib.Path) -> None:
    assert load(file) == Job(
        name="mrpc",
        spec=Spec(
            model=Model(path="./minilm"),
            dataset=Dataset(path="./data", files=Splits(train="train.csv")),
            task=Task(text=("a", "b"), label="c"),
        ),
    )


def test_overrides_reach_everything(file: pathlib.Path) -> None:
    job = load(
        file,
        [
            "metadata.name=other",
            "spec.training.epochs=1",
            "training.learningRate=1e-4",
            "task.text.0=x",
            "task.text[1]=y",
            "output={path: ./out}",
            "node.ranks=2",
            r"placement.nodeSelector.kubernetes\.io/arch=amd64",
            "placement.tolerations=[{key: a, operator: Exists}]",
            "training.lora.targets=[q]",
        ],
    )
    assert (job.name, job.spec.task.text, job.spec.output) == ("other", ("x", "y"), Output(path="./out"))
    assert job.spec.training == Training(epochs=1.0, learning_rate=1e-4, lora=Lora(targets=("q",)))
    assert job.spec.node == Node(ranks=2)
    assert job.spec.placement.node_selector == {"kubernetes.io/arch": "amd64"}
    assert job.spec.placement.tolerations == (Toleration(key="a", operator="Exists"),)


def test_an_override_with_null_takes_a_field_away(file: pathlib.Path) -> None:
    assert load(file, ["training.epochs=9", "training.epochs=null"]).spec.training.epochs == 3.0


BAD_OVERRIDES = {
    "without a value": ("training.epochs", "is not of the form field.path=value"),
    "without a field": ("=3", "is not of the form field.path=value"),
    "with an empty part": ("training..epochs=3", "is not of the form field.path=value"),
    "beyond the end of a list": ("task.text.5=a", "use an index from 0 to 2"),
    "by name into a list": ("task.text.first=a", "spec.task.text.first is no entry of the list"),
    "below a plain value": ("task.label.x=a", "spec.task.label.x is below a plain value"),
    "that is not YAML": ("task.label=[", "--set task.label:1: "),
    "of an unknown field": ("training.epoch=3", "did you mean 'epochs'?"),
}


@pytest.mark.parametrize(("text", "words"), BAD_OVERRIDES.values(), ids=BAD_OVERRIDES)
def test_refuses_an_override(text: str, words: str, file: pathlib.Path) -> None:
    (problem,) = problems_of(file, text)
    assert words in problem


def test_all_bad_overrides_are_named_at_once(file: pathlib.Path) -> None:
    assert len(problems_of(file, "a", "b", "nodes=2")) == 2


BAD_FILES = {
    "empty": (b"", "finetune.yaml: holds no document"),
    "only comments": (b"# nothing\n", "finetune.yaml: holds no document"),
    "a list": (b"- a\n", "finetune.yaml:1: must be a mapping of fields"),
    "two documents": (b"a: 1\n---\nb: 2\n", "finetune.yaml:2: a second document starts here"),
    "not YAML": (b"a: 1\nb: [\n", "finetune.yaml:3: "),
    "indented with tabs": (b"a:\n\tb: 1\n", "finetune.yaml:2: YAML does not allow tabs"),
    "not UTF-8": (b"a: 1\nb: \xff\n", "finetune.yaml:2: is not UTF-8"),
    "with a control character": (b"a: \x07\n", "finetune.yaml: is not YAML"),
    "with a key given twice": (b"spec:\n  nodes: 1\n  nodes: 2\n", "finetune.yaml:3: key 'nodes' is given twice"),
    "with a list as a key": (b"? [a]\n: b\n", "finetune.yaml:1: a key must be a word"),
    "with nothing as a key": (b"~: b\n", "finetune.yaml:1: a key must be a word"),
    "with a Python object": (
        b"a: !!python/object:os.system {}\n",
        "finetune.yaml:1: could not determine a constructor",
    ),
    "nested without end": (b"a: " + b"[" * 100_000, "finetune.yaml: is nested too deeply"),
    "huge": (b"#" * (1 << 21), "finetune.yaml: is larger than"),
}


@pytest.mark.parametrize(("data", "words"), BAD_FILES.values(), ids=BAD_FILES)
def test_refuses_a_file_that_is(data: bytes, words: str, file: pathlib.Path) -> None:
    file.write_bytes(data)
    (problem,) = problems_of(file)
    assert problem.startswith(words)


def test_refuses_a_missing_file_and_a_folder(tmp_path: pathlib.Path) -> None:
    assert problems_of(tmp_path / "absent")[0].startswith("absent: cannot be read: No such file")
    assert "cannot be read: Is a directory" in problems_of(tmp_path)[0]


def test_a_byte_order_mark_does_no_harm(file: pathlib.Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load(file).name == "mrpc"


SCALARS = {
    "2e-5": 2e-5,
    "1.0e+3": 1000.0,
    "1E3": 1000.0,
    ".5": 0.5,
    "7": 7,
    "-7": -7,
    "0x10": 16,
    "010": 8,
    "1_000": 1000,
    "12:30:45": "12:30:45",
    "2026-01-01": "2026-01-01",
    ".inf": ".inf",
    "yes": True,
    "~": None,
    "": None,
    "64Gi": "64Gi",
    "12e": "12e",
    "{1: a, yes: b, 0x10: c}": {"1": "a", "true": "b", "16": "c"},
    "{a: &x {b: 1}, c: {<<: *x, d: 2}}": {"a": {"b": 1}, "c": {"b": 1, "d": 2}},
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items(), ids=SCALARS)
def test_yaml_is_read_as_kubernetes_reads_it(text: str, value: object) -> None:
    read = read_yaml(text, "test")
    assert (read, type(read)) == (value, type(value))


LAUGHS = "{a0: &a0 [x], " + ", ".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)) + "}"
BOMBS = {"that repeats itself endlessly": LAUGHS, "within itself": "&a {b: *a}"}


@pytest.mark.parametrize("value", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("field", ["metadata.labels", "task", "x"])
def test_refuses_an_anchor(value: str, field: str, file: pathlib.Path) -> None:
    (problem,) = problems_of(file, f"{field}={value}")
    assert "repeats its anchors too often" in problem


def test_a_number_beyond_all_types_is_one_problem(file: pathlib.Path) -> None:
    (problem,) = problems_of(file, f"training.seed={'9' * 400}")
    assert problem.startswith("spec.training.seed: must be at most 4294967295")


ROUND_TRIPS = {
    "the smallest job": [],
    "a job with everything": [
        "metadata.namespace=team",
        "dataset.splits={train: train, test: test}",
        "training={epochs: 0.5, maxSteps: 7, evaluateEvery: 5, dropout: 0, lora: {targets: [q, v], alpha: 4}}",
        "nodes=4",
        "node={cpu: 8, memory: 16Gi, ranks: 2, backend: Gloo}",
        "placement={features: [AVX512F], nodeSelector: {a: b}, tolerations: [{key: a, value: b}]}",
        "output={volume: {size: 1Gi}}",
        "runPolicy={suspend: true, stallSeconds: 60, ttlSecondsAfterFinished: 0}",
    ],
}


@pytest.mark.parametrize("changes", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_a_job_survives_the_way_out_and_in(changes: list[str], document: Build) -> None:
    job = parse(document(*changes))
    assert parse(to_document(job)) == job
    assert parse(read_yaml(yaml.safe_dump(to_document(job)), "test")) == job
    assert to_document(parse(to_document(job))) == to_document(job)


def test_defaults_of_the_schema_are_those_of_the_classes(document: Build) -> None:
    spec = parse(document()).spec
    assert spec == Spec(model=spec.model, dataset=spec.dataset, task=spec.task)
    assert isinstance(spec.training.epochs, float)


def test_numbers_get_the_type_of_their_field(document: Build) -> None:
    training = parse(document("training={epochs: 2, batchSize: 16.0, evaluateEvery: 3.0}")).spec.training
    numbers = (training.epochs, training.batch_size, training.evaluate_every)
    assert [(number, type(number)) for number in numbers] == [(2, float), (16, int), (3, int)]


def test_an_object_of_the_api_server_can_be_parsed(document: Build) -> None:
    admitted = {
        **document("metadata={name: a, namespace: b, uid: c, managedFields: []}"),
        "status": {"phase": "Running"},
    }
    assert parse(admitted, rules=False).namespace == "b"


def test_parsing_leaves_the_document_as_it_is(document: Build) -> None:
    original = document()
    parse(original)
    assert original == document()


def test_an_override_makes_the_mappings_on_its_way() -> None:
    made: dict[str, object] = {}
    assert override(made, "training.lora.rank=4") is None
    assert made == {"spec": {"training": {"lora": {"rank": 4}}}}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, cpufinetune.job; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    heavy = {"torch", "kubernetes", "celpy", "jsonschema", "numpy", "transformers"}
    assert not heavy & set(run.stdout.split())
