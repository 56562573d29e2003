"""Names and texts of a job that end up in other objects: what the job may say, Kubernetes must take there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.job.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.api.conftest import Api, Build, Document

SETS = "/apis/apps/v1/namespaces/api/statefulsets"
CLAIMS = "/api/v1/namespaces/api/persistentvolumeclaims"
SECRETS = "/api/v1/namespaces/api/secrets"

WORDS = (
    *("a", "A", "1", "é", "~", "", ".", "..", "a b", "a\n", "a_b", "-a", "a-", "a.b", "a..b", "a.-b", "a-.b"),
    *("/a", "a/", "a/b", "A/b", "a/b/c", "a..b/c", "a.b/c", "a/../b", "a/.", "a//b", "a/B_1.x", "a\\..\\b"),
    *("a" * 63, "a" * 64, "a" * 253, "a" * 254, "a/" + "b" * 63, "a/" + "b" * 64, "a" * 253 + "/b", "a" * 254 + "/b"),
)
SIZES = (
    *("1", "1.5", "1.555Ki", "0", "0Gi", "1Gi", "1.5Gi", "1E", "1e3", "01Gi", "1 Gi", "1gi", "1GB", "100m", "1k", "1K"),
    *("9999999999999999P", "9999999999999999.999Pi", "99999999999999999"),
)


def stateful_set(**pod: object) -> Document:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}], **pod}}
    spec = {"serviceName": "a", "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a"}, "spec": spec}


def container(**fields: object) -> Document:
    return stateful_set(containers=[{"name": "a", "image": "a", **fields}], volumes=[{"name": "v", "emptyDir": {}}])


def claim(name: str = "a", size: str = "1Gi", **fields: object) -> Document:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **fields}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def secret(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


# What the user writes, and the object that it becomes a part of.
PLACES: dict[str, tuple[Callable[[str], Any], str, Callable[[str], Document]]] = {
    "key of a selector": (
        lambda word: {"placement": {"nodeSelector": {word: "a"}}},
        SETS,
        lambda word: stateful_set(nodeSelector={word: "a"}),
    ),
    "value of a selector": (
        lambda word: {"placement": {"nodeSelector": {"a": word}}},
        SETS,
        lambda word: stateful_set(nodeSelector={"a": word}),
    ),
    "key of a toleration": (
        lambda word: {"placement": {"tolerations": [{"key": word}]}},
        SETS,
        lambda word: stateful_set(tolerations=[{"key": word}]),
    ),
    "value of a toleration": (
        lambda word: {"placement": {"tolerations": [{"key": "a", "value": word}]}},
        SETS,
        lambda word: stateful_set(tolerations=[{"key": "a", "value": word}]),
    ),
    "priority class": (
        lambda word: {"placement": {"priorityClassName": word}},
        SETS,
        lambda word: stateful_set(priorityClassName=word),
    ),
    "image": (lambda word: {"image": word}, SETS, lambda word: container(image=word)),
    "folder of a claim": (
        lambda word: {"output": {"claim": "a", "path": word}},
        SETS,
        lambda word: container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": word}]),
    ),
    "claim": (lambda word: {"model": {"claim": word}}, CLAIMS, claim),
    "storage class": (
        lambda word: {"output": {"volume": {"size": "1Gi", "storageClassName": word}}},
        CLAIMS,
        lambda word: claim(storageClassName=word),
    ),
    "Secret": (
        lambda word: {"hubTokenSecret": f"{word}-hub-token"},
        SECRETS,
        lambda word: secret(f"{word}-hub-token"),
    ),
    "memory": (
        lambda size: {"node": {"memory": size}},
        SETS,
        lambda size: container(resources={"limits": {"memory": size}, "requests": {"memory": size}}),
    ),
    "size of a volume": (
        lambda size: {"output": {"volume": {"size": size}}},
        CLAIMS,
        lambda size: claim(size=size),
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_a_job_may_say_is_taken_as(place: str, api: Api, document: Build) -> None:
    spec, path, child = PLACES[place]
    job = document()
    words = SIZES if place in {"memory", "size of a volume"} else WORDS
    taken = set()
    for word in words:
        given = {**job, "spec": {**job["spec"], **spec(word)}}
        problems = validate(given, rules=False) or validate(given)  # rules are slow, and often not needed
        assert api.try_out(given).refused == bool(problems), (word, problems)
        if not problems:
            assert api.try_out(child(word), path).object
            taken.add(word)
    assert 0 < len(taken) < len(words)
