"""What the API server refuses, in which words, and that the offline side refuses the same for the same field."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from cpufinetune.job.problems import InvalidJob
from cpufinetune.job.schema import Schema, structural_schema
from cpufinetune.job.validate import validate
from cpufinetune.job.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localcluster.cluster import Cluster
    from tests.api.conftest import Api, Build

HEX = "0123456789abcdef0123456789abcdef01234567"
FILES = "files: {train: a.csv}"
UNKNOWN, MISSING, KINDS = "unknown field", "Required value", "must be of type "

# What is changed, the field that both sides name, and words of the API server.
REFUSED = {
    "a misspelt field": (["training.learningRat=1e-4"], "spec.training.learningRat", UNKNOWN),
    "a field in snake case": (["training.batch_size=8"], "spec.training.batch_size", UNKNOWN),
    "a field in the wrong place": (["epochs=3"], "spec.epochs", UNKNOWN),
    "a pod template": (["template={}"], "spec.template", UNKNOWN),
    "code from the hub": (["model.trustRemoteCode=true"], "spec.model.trustRemoteCode", UNKNOWN),
    "a field of an entry": (["placement.tolerations=[{k: a}]"], "spec.placement.tolerations[0].k", UNKNOWN),
    "an unknown field of metadata": (["metadata.nam=a"], "metadata.nam", UNKNOWN),
    "no spec": (["spec=null"], "spec", MISSING),
    "no model": (["model=null"], "spec.model", MISSING),
    "no task": (["task=null"], "spec.task", MISSING),
    "a task without text": (["task={label: a}"], "spec.task.text", MISSING),
    "a task without a label": (["task={text: [a]}"], "spec.task.label", MISSING),
    "splits without training": (["dataset.splits={test: a}"], "spec.dataset.splits.train", MISSING),
    "adapters without targets": (["training.lora={rank: 4}"], "spec.training.lora.targets", MISSING),
    "a volume without a size": (["output={volume: {}}"], "spec.output.volume.size", MISSING),
    "no name": (["metadata={}"], "metadata.name", "name or generateName is required"),
    "a name that is too long": ([f"metadata.name={'a' * 41}"], "metadata.name", "at most 40 characters"),
    "a name with a dot": (["metadata.name=a.b"], "metadata.name", "hold no dots"),
    "a name that starts with a digit": (["metadata.name=1a"], "metadata.name", "must start with a letter"),
    "a name in upper case": (["metadata.name=MRPC"], "metadata.name", "a lowercase RFC 1123 subdomain"),
    "a label with a blank": (["metadata.labels={a b: c}"], "metadata.labels", "name part must consist of"),
    "an annotation with two slashes": (
        ["metadata.annotations={a/b/c: d}"],
        "metadata.annotations",
        "a valid label key must",
    ),
    "a model from two places": (
        [f"model={{name: a, revision: {HEX}, claim: b}}"],
        "spec.model",
        "exactly one of: name",
    ),
    "a model from nowhere": (["model={}"], "spec.model", "exactly one of: name with revision"),
    "a hub model without a revision": (["model={name: a}"], "spec.model", "model.name needs model.revision"),
    "a claim with a revision": ([f"model={{claim: a, revision: {HEX}}}"], "spec.model", "belongs to model.name"),
    "a model at the root": (["model={claim: a, path: /b}"], "spec.model", "remove the leading slash"),
    "a model outside its claim": (["model={claim: a, path: b/../../c}"], "spec.model", "stay inside the claim"),
    "a branch": (["model.revision=main"], "spec.model.revision", "at least 40 chars long"),
    "a revision in upper case": ([f"model.revision={HEX.upper()}"], "spec.model.revision", "should match"),
    "a revision without quotes": ([f"model.revision={'1' * 40}"], "spec.model.revision", f"{KINDS}string"),
    "a claim with two dots": (["model={claim: a..b}"], "spec.model.claim", "should match"),
    "a path over two lines": (['model={path: "a\\nb"}'], "spec.model.path", "should match"),
    "a dataset from two places": (
        [f"dataset={{name: a, revision: {HEX}, claim: b, {FILES}}}"],
        "spec.dataset",
        "exactly one of: name with revision, claim with files",
    ),
    "a dataset without a revision": (["dataset={name: a}"], "spec.dataset", "dataset.name needs dataset.revision"),
    "files with a configuration": ([f"dataset={{path: a, config: b, {FILES}}}"], "spec.dataset", "config and splits"),
    "a claim without files": (["dataset={claim: a}"], "spec.dataset", "dataset.files goes with dataset.claim"),
    "a dataset at the root": ([f"dataset={{claim: a, path: /b, {FILES}}}"], "spec.dataset", "leading slash"),
    "a dataset outside its claim": ([f"dataset={{claim: a, path: .., {FILES}}}"], "spec.dataset", "inside the claim"),
    "evaluation on the training split": (
        ["dataset.splits={train: a, validation: a}"],
        "spec.dataset.splits",
        "the training split must not be",
    ),
    "evaluation on the training file": (
        ["dataset={path: a, files: {train: a.csv, test: a.csv}}"],
        "spec.dataset.files",
        "the training file must not be",
    ),
    "a file outside its folder": (
        ["dataset={path: a, files: {train: ../b.csv}}"],
        "spec.dataset.files.train",
        "should match",
    ),
    "a file of an unknown format": (["dataset={path: a, files: {train: b.xml}}"], "spec.dataset.files.train", "match"),
    "nothing held out": (["dataset.validationFraction=0"], "spec.dataset.validationFraction", "greater than 0"),
    "most of it held out": (["dataset.validationFraction=0.6"], "spec.dataset.validationFraction", "equal to 0.5"),
    "no columns": (["task.text=[]"], "spec.task.text", "should have at least 1 items"),
    "three columns": (["task.text=[a, b, c]"], "spec.task.text", "must have at most 2 items"),
    "the same column twice": (["task.text=[a, a]"], "spec.task", "must name two different columns"),
    "the label as text": (["task.label=sentence2"], "spec.task", "must not be one of the columns"),
    "text that is no list": (["task.text=sentence"], "spec.task.text", f"{KINDS}array"),
    "a label that YAML reads as a truth value": (["task.label=no"], "spec.task.label", f"{KINDS}string"),
    "an unknown task": (["task.type=Regression"], "spec.task.type", 'supported values: "TextClassification"'),
    "an unknown metric": (["task.metric=AUC"], "spec.task.metric", '"Accuracy", "MacroF1", "F1"'),
    "no epochs": (["training.epochs=0"], "spec.training.epochs", "should be greater than 0"),
    "a number in quotes": (["training.learningRate='2e-5'"], "spec.training.learningRate", f"{KINDS}number"),
    "a fraction of a batch": (["training.batchSize=1.5"], "spec.training.batchSize", f"{KINDS}integer"),
    "a batch beyond all memory": (
        ["training.batchSize=65537"],
        "spec.training.batchSize",
        "less than or equal to 65536",
    ),
    "a micro batch above the batch": (["training.microBatchSize=64"], "spec.training", "exceed training.batchSize"),
    "an enum in lower case": (["training.schedule=linear"], "spec.training.schedule", '"Linear", "Cosine", "Constant"'),
    "all of it dropped out": (["training.dropout=1"], "spec.training.dropout", "should be less than 1"),
    "a truth value as a number": (["training.seed=true"], "spec.training.seed", f"{KINDS}integer"),
    "an unknown moment": (["training.evaluateEvery=Steps"], "spec.training.evaluateEvery", "must be Epoch, Never or"),
    "zero steps": (["training.evaluateEvery=0"], "spec.training.evaluateEvery", "a number of steps from 1"),
    "half a step": (["training.evaluateEvery=0.5"], "spec.training.evaluateEvery", f"{KINDS}integer"),
    "a target twice": (["training.lora={targets: [a, a]}"], "spec.training.lora.targets", 'Duplicate value: "a"'),
    "no nodes": (["nodes=0"], "spec.nodes", "greater than or equal to 1"),
    "ranks in words": (["node.ranks=Many"], "spec.node.ranks", "must be Auto or a number from 1 to 256"),
    "more ranks than CPUs": (["node={cpu: 2, ranks: 3}"], "spec.node", "node.ranks must not exceed node.cpu"),
    "memory as a number": (["node.memory=64"], "spec.node.memory", f"{KINDS}string"),
    "memory in the wrong unit": (["node.memory=64GB"], "spec.node.memory", "should match"),
    "an unknown backend": (["node.backend=MPI"], "spec.node.backend", '"Auto", "CCL", "Gloo"'),
    "a feature in lower case": (["placement.features=[avx2]"], "spec.placement.features[0]", "should match"),
    "a selector by number": (["placement.nodeSelector={a: 1}"], "spec.placement.nodeSelector.a", f"{KINDS}string"),
    "a selector with a blank": (["placement.nodeSelector={a b: c}"], "spec.placement.nodeSelector", "name of a label"),
    "a toleration of nothing": (["placement.tolerations=[{}]"], "spec.placement.tolerations[0]", "without a key"),
    "a toleration of any value of one": (
        ["placement.tolerations=[{key: a, value: b, operator: Exists}]"],
        "spec.placement.tolerations[0]",
        "with operator Exists must have no value",
    ),
    "a toleration for a while without effect": (
        ["placement.tolerations=[{key: a, tolerationSeconds: 3}]"],
        "spec.placement.tolerations[0]",
        "needs effect NoExecute",
    ),
    "output to two places": (["output={claim: a, ephemeral: true}"], "spec.output", "exactly one of: volume"),
    "output to nowhere": (["output={}"], "spec.output", "exactly one of: volume"),
    "output at the root": (["output={claim: a, path: /b}"], "spec.output", "leading slash"),
    "output outside its claim": (["output={claim: a, path: ../b}"], "spec.output", "inside the claim"),
    "suspend in words": (["runPolicy.suspend='yes'"], "spec.runPolicy.suspend", f"{KINDS}boolean"),
    "a stall limit in words": (["runPolicy.stallSeconds=Never"], "spec.runPolicy.stallSeconds", "must be Auto or"),
    "pods that go by halves": (["runPolicy.cleanPods=Some"], "spec.runPolicy.cleanPods", '"Always", "OnSuccess"'),
    "a plain value for a mapping": (["training=fast"], "spec.training", f"{KINDS}object"),
    "an empty image": (["image=''"], "spec.image", "should be at least 1 chars long"),
    "an image with a blank": (["image=a b"], "spec.image", "should match"),
    "a Secret that is not named for jobs": (["hubTokenSecret=hub-credentials"], "spec.hubTokenSecret", "should match"),
    "nothing but the Secret's ending": (["hubTokenSecret=x-hub-token."], "spec.hubTokenSecret", "should match"),
}

# Where the two sides differ: what is changed, who takes it, and why that is left so.
DEVIATIONS = {
    "a whole number with a fraction of a billionth": (["nodes=1.000000001"], "server", "it compares with a tolerance"),
    "a selector without a value": (["placement.nodeSelector={a: null}"], "server", "it drops the key before it looks"),
    "a name to be made up": (["metadata={generateName: a}"], "server", "without a server, nobody makes one up"),
    "a status of another version": (["metadata.name=a"], "offline", "it never looks at status"),
    "a whole number with a point where a rule reads it": (["node.ranks=2.0"], "offline", "kubectl sends it as 2"),
}


def named(field: str, message: str) -> bool:
    """Whether the message names this very field, not one below it or above it."""
    return re.search(rf"(?<![\w.]){re.escape(field)}(?![\w.])", message) is not None


def rules(node: Schema) -> Iterator[str]:
    """Messages of all rules about a document on its own."""
    for rule in node.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"]:
            yield rule["message"]
    children = [*node.get("properties", {}).values(), node.get("items"), node.get("additionalProperties")]
    for child in children:
        yield from rules(child) if child else ()


@pytest.mark.parametrize(("changes", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_both_sides_refuse(changes: list[str], field: str, words: str, api: Api, document: Build) -> None:
    answer = api.try_out(document(*changes))
    assert answer.refused
    assert words in answer.message
    assert named(field, answer.message), answer.message
    assert field in {problem.path for problem in validate(document(*changes))}


def test_every_rule_speaks_in_the_same_words_on_both_sides(api: Api, document: Build) -> None:
    unsaid = set(rules(structural_schema()))
    for changes, _, _ in REFUSED.values():
        message = api.try_out(document(*changes)).message
        said = {rule for rule in unsaid if rule in message}
        assert not any(f"<nil>: Invalid value: {rule}" in message for rule in said), message
        if said:
            assert said <= {f"{problem.message}; {problem.fix}" for problem in validate(document(*changes))}
        unsaid -= said
    assert unsaid == set()


def test_the_api_server_names_a_label_that_is_no_text_less_exactly(api: Api, document: Build) -> None:
    given = document("metadata.labels={a: 1}")
    assert "number into Go struct field ObjectMeta.labels of type string" in api.try_out(given).message
    assert [problem.path for problem in validate(given)] == ["metadata.labels.a"]


@pytest.mark.parametrize(("changes", "taker", "why"), DEVIATIONS.values(), ids=DEVIATIONS)
def test_the_sides_differ_about(changes: list[str], taker: str, why: str, api: Api, document: Build) -> None:
    given = document(*changes)
    if "status" in why:
        given["status"] = {"attempts": 3}
    assert (api.try_out(given).refused, bool(validate(given))) == (taker != "server", taker != "offline"), why


def test_kubectl_names_all_that_is_wrong_and_takes_the_rest(api: Api, document: Build, apiserver: Cluster) -> None:
    wrong = {"a": "nodes=0", "b": "model={}", "c": "training.epoch=1", "d": "nodes=3"}
    documents = [document(f"metadata.name={name}", change) for name, change in wrong.items()]
    text = "\n---\n".join(json.dumps(one) for one in documents)
    apply = ("--namespace", api.namespace, "apply", "--dry-run=server", "-f", "-")
    done = apiserver.kubectl.attempt(*apply, stdin=text)
    assert done.returncode == 1
    assert done.stdout == "cpufinetune.cpufinetune.dev/d created (server dry run)\n"
    first, second, third = (line for line in done.stderr.splitlines() if line)
    assert '"a" is invalid: spec.nodes: Invalid value: 0: spec.nodes in body should be greater' in first
    assert '"b" is invalid: spec.model: Invalid value: model must be exactly one of' in second
    assert third.endswith('strict decoding error: unknown field "spec.training.epoch"')


def test_kubectl_takes_the_last_of_two_values_where_the_offline_side_refuses(api: Api, apiserver: Cluster) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: b\n  a: c\n"
    create = ("--namespace", api.namespace, "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.data.a}")
    assert apiserver.kubectl(*create, stdin=text) == "c"
    with pytest.raises(InvalidJob, match="given twice"):
        read_yaml(text, "test")
