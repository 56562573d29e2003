"""What is accepted, what is refused, and whether the words help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from celpy.adapter import json_to_cel

from cpufinetune.job import cel
from cpufinetune.job.schema import Schema, structural_schema, with_defaults
from cpufinetune.job.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.job.conftest import Build

HEX = "0123456789abcdef0123456789abcdef01234567"
FILES = "files: {train: train.csv}"

ACCEPTED = {
    "the smallest document": [],
    "a model of a claim's root": ["model={claim: models}"],
    "a model in a folder of a claim": ["model={claim: models, path: bert/tiny}"],
    "a local model": ["model={path: ../minilm}"],
    "an absolute local model": ["model={path: /srv/minilm}"],
    "hub splits by name": ["dataset.splits={train: train, validation: validation_matched}"],
    "the same split for validation and test": ["dataset.splits={train: train, validation: dev, test: dev}"],
    "files of a claim": [f"dataset={{claim: data, path: reviews, {FILES}}}"],
    "local files": ["dataset={path: ., files: {train: a/b.jsonl, validation: .hidden/c.parquet}}"],
    "one text column": ["task.text=[sentence]"],
    "a whole number for a real one": ["training.epochs=1"],
    "a real number that is whole for a whole one": ["training.batchSize=64.0"],
    "a learning rate without a dot": ["training.learningRate=2e-5"],
    "evaluation by steps": ["training.evaluateEvery=50"],
    "no evaluation": ["training.evaluateEvery=Never"],
    "a micro batch as large as the batch": ["training.batchSize=8", "training.microBatchSize=8"],
    "the extension in quotes": ["training.intel='On'"],
    "compressed gradients": ["training.gradientCompression=BFloat16"],
    "adapters": ["training.lora={targets: [q_lin, v_lin]}"],
    "ranks by number": ["node={cpu: 8, ranks: 8}"],
    "more ranks than one without a number of CPUs": ["node.ranks=4"],
    "a fraction of a unit of memory": ["node.memory=1.5Gi"],
    "a stall limit": ["runPolicy.stallSeconds=30"],
    "nulls where defaults are": ["training=null", "node={cpu: null, ranks: null}"],
    "a new volume": ["output={volume: {size: 10Gi, storageClassName: gp3}}"],
    "a claim for output": ["output={claim: results, path: mrpc}"],
    "a local folder for output": ["output={path: /tmp/out}"],
    "a toleration of everything": ["placement.tolerations=[{operator: Exists}]"],
    "a toleration for a while": [
        "placement.tolerations=[{key: a/b, value: c, effect: NoExecute, tolerationSeconds: 9}]"
    ],
    "a selector with dots in its key": [r"placement.nodeSelector.kubernetes\.io/arch=amd64"],
    "an empty priority class": ["placement.priorityClassName=''"],
    "metadata and status of the API server": ["metadata.uid=u", "metadata.labels={a: b}"],
    "an empty label": ["metadata.labels={a/b.c: null, d: ''}", "metadata.annotations=null"],
    "an annotation in upper case": ["metadata.annotations={A.B/C: 'd e'}"],
    "everything written out": [
        "training={epochs: 3, batchSize: 32, learningRate: 2e-5, schedule: Linear, warmupRatio: 0.06}",
        "training.weightDecay=0.01",
        "training.maxGradNorm=1.0",
        "training.lora={rank: 8, alpha: 16, targets: [q_lin, v_lin]}",
        "node={cpu: 32, memory: 64Gi, ranks: Auto, backend: Auto, sharedMemory: 2Gi}",
        "placement={cpu: Xeon, features: [AVX512BF16], spread: Node, nodeSelector: {}, tolerations: []}",
        "placement.priorityClassName=''",
        "output={volume: {size: 10Gi, storageClassName: gp3}}",
        "runPolicy={suspend: false, backoffLimit: 6, activeDeadlineSeconds: 86400, stallSeconds: Auto}",
        "runPolicy.ttlSecondsAfterFinished=604800",
    ],
    "a name of forty characters": [f"metadata.name={'a' * 40}"],
}

REFUSED = {
    "a misspelt field": (["training.learningRat=1e-4"], "spec.training.learningRat", "did you mean 'learningRate'?"),
    "a field in snake case": (["training.batch_size=8"], "spec.training.batch_size", "did you mean 'batchSize'?"),
    "a field in the wrong place": (["epochs=3"], "spec.epochs", "it belongs at spec.training.epochs"),
    "a field that nobody knows": (["training.xyzzy=3"], "spec.training.xyzzy", "or use one of epochs, maxSteps"),
    "a pod template": (["template={}"], "spec.template", "unknown field"),
    "no task": (["task=null"], "spec.task", "required field is missing"),
    "a task without columns": (["task={label: label}"], "spec.task.text", "add text: [sentence1, sentence2]"),
    "adapters without targets": (["training.lora={rank: 4}"], "spec.training.lora.targets", "required"),
    "a volume without a size": (["output={volume: {}}"], "spec.output.volume.size", "add size: 10Gi"),
    "a name that is too long": ([f"metadata.name={'a' * 41}"], "metadata.name", "at most 40 characters"),
    "a name with a dot": (["metadata.name=a.b"], "metadata.name", "hold no dots"),
    "a name in upper case": (["metadata.name=MRPC"], "metadata.name", "write it like mrpc"),
    "a name that ends in a newline": (['metadata.name="mrpc\\n"'], "metadata.name", "not written as it must be"),
    "no name": (["metadata={}"], "metadata.name", "add name: mrpc"),
    "a model from two places": ([f"model={{name: a, revision: {HEX}, claim: b}}"], "spec.model", "exactly one of"),
    "a model from nowhere": (["model={}"], "spec.model", "exactly one of"),
    "a hub model without a revision": (["model={name: a}"], "spec.model", "needs model.revision"),
    "a claim's model with a revision": (
        [f"model={{claim: a, revision: {HEX}}}"],
        "spec.model",
        "belongs to model.name",
    ),
    "a branch as revision": (["model.revision=main"], "spec.model.revision", "write it like 12040acc"),
    "a revision that reads as a number": ([f"model.revision={'1' * 40}"], "spec.model.revision", "put it in quotes"),
    "a model outside its claim": (["model={claim: a, path: b/../../c}"], "spec.model", "inside the claim"),
    "a model at an absolute path of a claim": (["model={claim: a, path: /b}"], "spec.model", "relative"),
    "a dataset from two places": (
        [f"dataset={{name: a, revision: {HEX}, claim: b, files: {{train: a.csv}}}}"],
        "spec.dataset",
        "exactly one of",
    ),
    "a hub dataset without a revision": (["dataset={name: a}"], "spec.dataset", "needs dataset.revision"),
    "a claim without files": (["dataset={claim: a}"], "spec.dataset", "dataset.files goes with"),
    "a hub dataset with files": ([f"dataset.{FILES.replace(': ', '=', 1)}"], "spec.dataset", "not with dataset.name"),
    "files with a configuration": (
        [f"dataset={{path: a, config: b, {FILES}}}"],
        "spec.dataset",
        "belong to dataset.name",
    ),
    "a dataset outside its claim": ([f"dataset={{claim: a, path: .., {FILES}}}"], "spec.dataset", "inside the claim"),
    "a dataset at an absolute path": ([f"dataset={{claim: a, path: /b, {FILES}}}"], "spec.dataset", "relative"),
    "a file outside the dataset": (
        ["dataset={path: a, files: {train: ../b.csv}}"],
        "spec.dataset.files.train",
        "train.csv",
    ),
    "a file of an unknown format": (
        ["dataset={path: a, files: {train: b.xml}}"],
        "spec.dataset.files.train",
        "train.csv",
    ),
    "evaluation on the training file": (
        ["dataset={path: a, files: {train: a.csv, test: a.csv}}"],
        "spec.dataset.files",
        "must not be the validation or test file",
    ),
    "evaluation on the training split": (
        ["dataset.splits={train: a, validation: a}"],
        "spec.dataset.splits",
        "must not be the validation or test split",
    ),
    "nothing held out": (
        ["dataset.validationFraction=0"],
        "spec.dataset.validationFraction",
        "more than 0 and at most 0.5",
    ),
    "three columns of text": (["task.text=[a, b, c]"], "spec.task.text", "at most 2 entries"),
    "no columns of text": (["task.text=[]"], "spec.task.text", "must not be empty"),
    "the same column twice": (["task.text=[a, a]"], "spec.task", "two different columns"),
    "the label as text": (["task.label=sentence2"], "spec.task", "must not be one of the columns"),
    "text that is no list": (["task.text=sentence"], "spec.task.text", "write a list: [sentence]"),
    "a label that YAML reads as a truth value": (["task.label=no"], "spec.task.label", "put it in quotes"),
    "an unknown task": (["task.type=Regression"], "spec.task.type", "must be one of TextClassification"),
    "no epochs": (["training.epochs=0"], "spec.training.epochs", "must be more than 0"),
    "endless epochs": (["training.epochs=1e999"], "spec.training.epochs", "must be at most 10000"),
    "epochs that are no number": (["training.epochs=.nan"], "spec.training.epochs", "must be a number"),
    "a number in quotes": (["training.learningRate='2e-5'"], "spec.training.learningRate", "without quotes"),
    "a fraction of a batch": (["training.batchSize=1.5"], "spec.training.batchSize", "must be a whole number"),
    "a truth value as a number": (["training.seed=true"], "spec.training.seed", "must be a whole number"),
    "on without quotes": (["training.intel=On"], "spec.training.intel", "must be text"),
    "an enum in lower case": (["training.schedule=linear"], "spec.training.schedule", "did you mean 'Linear'?"),
    "a micro batch above the batch": (
        ["training.microBatchSize=64"],
        "spec.training",
        "must not exceed training.batchSize",
    ),
    "an unknown moment to evaluate": (
        ["training.evaluateEvery=Steps"],
        "spec.training.evaluateEvery",
        "must be Epoch, Never",
    ),
    "evaluation every zero steps": (
        ["training.evaluateEvery=0"],
        "spec.training.evaluateEvery",
        "must be Epoch, Never",
    ),
    "evaluation every half step": (
        ["training.evaluateEvery=0.5"],
        "spec.training.evaluateEvery",
        "must be a whole number or",
    ),
    "a target twice": (["training.lora={targets: [a, a]}"], "spec.training.lora.targets", "anything twice"),
    "no nodes": (["nodes=0"], "spec.nodes", "choose a number at least 1 and at most 1024"),
    "ranks in words": (["node.ranks=Many"], "spec.node.ranks", "must be Auto or a number"),
    "more ranks than CPUs": (["node={cpu: 2, ranks: 3}"], "spec.node", "must not exceed node.cpu"),
    "memory as a number": (["node.memory=64"], "spec.node.memory", "put it in quotes, for example 64Gi"),
    "memory in the wrong unit": (["node.memory=64GB"], "spec.node.memory", "write it like 64Gi"),
    "a toleration of nothing": (["placement.tolerations=[{}]"], "spec.placement.tolerations[0]", "without a key"),
    "a toleration that compares all values": (
        ["placement.tolerations=[{key: a, value: b, operator: Exists}]"],
        "spec.placement.tolerations[0]",
        "must have no value",
    ),
    "a toleration for a while without effect": (
        ["placement.tolerations=[{key: a, tolerationSeconds: 3}]"],
        "spec.placement.tolerations[0]",
        "needs effect NoExecute",
    ),
    "a selector by number": (["placement.nodeSelector={a: 1}"], "spec.placement.nodeSelector.a", "put it in quotes"),
    "a selector with a blank in its key": (
        ["placement.nodeSelector={a b: c}"],
        "spec.placement.nodeSelector",
        "found {'a b': 'c'}); write it like pool",
    ),
    "a label by number": (["metadata.labels={a: 1}"], "metadata.labels.a", "put it in quotes, for example nlp"),
    "a label with a blank in its key": (["metadata.labels={a b: c}"], "metadata.labels", "write it like team"),
    "a label with a blank in its value": (["metadata.labels={a: b c}"], "metadata.labels.a", "write it like nlp"),
    "an annotation that is no text": (["metadata.annotations={a: [b]}"], "metadata.annotations.a", "must be text"),
    "labels in a list": (["metadata.labels=[a]"], "metadata.labels", "write it like {team: nlp}"),
    "a toleration of a key that no taint can have": (
        ["placement.tolerations=[{key: a..b/c}]"],
        "spec.placement.tolerations[0].key",
        "write it like dedicated",
    ),
    "a claim of a name that none can have": (["model={claim: a..b}"], "spec.model.claim", "write it like models"),
    "a Secret whose owner did not offer it": (["hubTokenSecret=token"], "spec.hubTokenSecret", "team-hub-token"),
    "output to two places": (["output={claim: a, ephemeral: true}"], "spec.output", "exactly one of"),
    "output to nowhere": (["output={}"], "spec.output", "exactly one of"),
    "output outside its claim": (["output={claim: a, path: ../b}"], "spec.output", "inside the claim"),
    "output at an absolute path of a claim": (["output={claim: a, path: /b}"], "spec.output", "relative"),
    "suspend in words": (["runPolicy.suspend='yes'"], "spec.runPolicy.suspend", "write true or false"),
    "a stall limit in words": (["runPolicy.stallSeconds=Never"], "spec.runPolicy.stallSeconds", "must be Auto or"),
    "a plain value for a mapping": (["training=fast"], "spec.training", "must be a mapping"),
    "an empty image": (["image=''"], "spec.image", "is not written as it must be"),
}


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_accepts(changes: list[str], document: Build) -> None:
    assert validate(document(*changes)) == ()


@pytest.mark.parametrize(("changes", "path", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses(changes: list[str], path: str, words: str, document: Build) -> None:
    (problem,) = validate(document(*changes))
    assert problem.path == path
    assert words in str(problem)
    assert "\n" not in str(problem)


def test_rules_can_be_left_to_the_api_server(document: Build) -> None:
    assert validate(document("model={}"), rules=False) == ()


def test_without_an_interpreter_the_rules_are_left_to_the_api_server(
    document: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cel._say_that_rules_are_not_checked.cache_clear()
    monkeypatch.setattr(cel, "available", lambda: False)
    assert validate(document("model={}")) == ()
    assert validate(document("model={}")) == ()
    assert caplog.messages == ["cel-python is not installed: rules across fields are checked by the API server only"]


def rules(node: Schema) -> Iterator[Schema]:
    yield from node.get("x-kubernetes-validations", [])
    children = [*node.get("properties", {}).values(), node.get("items"), node.get("additionalProperties")]
    for child in children:
        yield from rules(child) if child else ()


RULES = list(rules(structural_schema()))


def test_every_rule_refuses_one_of_the_examples(document: Build) -> None:
    said = {
        f"{problem.message}; {problem.fix}"
        for changes, _, _ in REFUSED.values()
        for problem in validate(document(*changes))
    }
    assert [rule["message"] for rule in RULES if "oldSelf" not in rule["rule"] and rule["message"] not in said] == []


def test_no_rule_fails_to_be_evaluated_on_a_document_of_the_right_types(document: Build) -> None:
    for changes in ACCEPTED.values():
        for check in cel.checks_of(with_defaults(document(*changes))):
            assert cel._program(check.rule).evaluate({"self": cel._as_cel(check.value, check.node)}) is not None


CHANGES = {
    "model": "model={claim: other}",
    "dataset": "dataset.config=rte",
    "task": "task.maxLength=64",
    "training": "training.seed=7",
}


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize(
    ("was", "is_now", "allowed"),
    [(False, False, False), (True, False, False), (False, True, False), (True, True, True)],
)
def test_fields_change_only_while_suspended(
    field: str, document: Build, *, was: bool, is_now: bool, allowed: bool
) -> None:
    (rule,) = (rule for rule in RULES if rule.get("fieldPath") == f".{field}")
    before = with_defaults(document(f"runPolicy.suspend={str(was).lower()}"))["spec"]
    after = with_defaults(document(f"runPolicy.suspend={str(is_now).lower()}", CHANGES[field]))["spec"]
    names = {"self": json_to_cel(after), "oldSelf": json_to_cel(before)}
    assert bool(cel._program(rule["rule"]).evaluate(names)) is allowed
    assert cel._program(rule["rule"]).evaluate({**names, "self": names["oldSelf"]})
