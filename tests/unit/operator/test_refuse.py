"""Which jobs are not started, and what they are told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cpufinetune_operator.model import Answers, Claim, NotYet, Stalled
from cpufinetune_operator.plan import refuse

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make


def check(make: Make, *changes: str, **answers: tuple[str, ...] | None) -> None:
    claims = {name: Claim(name=name, modes=modes) for name, modes in answers.items()}
    observed = make.observed(*changes, answers=Answers(claims=claims))
    settings = replace(make.settings, allow_images=(re.compile(r"ghcr\.io/example/.*"),))
    refuse.check(observed, settings)


ACCEPTED: dict[str, tuple[list[str], dict[str, tuple[str, ...] | None]]] = {
    "claims of one node": ([], {"models": ("ReadWriteOnce",)}),
    "claims that many can read": (["nodes=2"], {"models": ("ReadOnlyMany",), "data": ("ReadWriteMany",)}),
    "an output that many can write": (["nodes=2", "output={claim: results}"], {"results": ("ReadWriteMany",)}),
    "an image that the list matches": (["image=ghcr.io/example/trainer:2"], {}),
    "volumes of its own for many nodes": (["nodes=4", "output={volume: {size: 1Gi}}"], {}),
}


@pytest.mark.parametrize(("changes", "claims"), ACCEPTED.values(), ids=ACCEPTED)
def test_started_is(changes: list[str], claims: dict[str, tuple[str, ...] | None], make: Make) -> None:
    check(make, *changes, **claims)


REFUSED: dict[str, tuple[list[str], dict[str, tuple[str, ...] | None], str, str]] = {
    "a local model": (["model={path: /srv/minilm}"], {}, "LocalPath", "spec.model.path"),
    "a local output": (["output={path: here}"], {}, "LocalPath", "spec.output.path"),
    "an image that is not on the list": (["image=evil/trainer:1"], {}, "ImageNotAllowed", "evil/trainer:1"),
    "an image that the list matches in part": (["image=evil/ghcr.io/example/x"], {}, "ImageNotAllowed", "evil"),
    "the cluster's own priority": (
        ["placement.priorityClassName=system-node-critical"],
        {},
        "PriorityNotAllowed",
        "system-node-critical",
    ),
    "shared memory that leaves no memory": (["node={memory: 2Gi}"], {}, "SharedMemoryTooLarge", "2Gi"),
    "an output that one machine can mount": (
        ["nodes=2", "output={claim: results}"],
        {"results": ("ReadWriteOnce",)},
        "ClaimNotShared",
        "write to PersistentVolumeClaim results",
    ),
    "an output that many can only read": (
        ["nodes=2", "output={claim: results}"],
        {"results": ("ReadOnlyMany",)},
        "ClaimNotShared",
        "results",
    ),
    "data that one machine can mount": (["nodes=2"], {"data": ("ReadWriteOncePod",)}, "ClaimNotShared", "read"),
    "a claim that is not there": (["nodes=2"], {"models": None}, "ClaimMissing", "models"),
}


@pytest.mark.parametrize(("changes", "claims", "reason", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_is(
    changes: list[str], claims: dict[str, tuple[str, ...] | None], reason: str, words: str, make: Make
) -> None:
    with pytest.raises(Stalled, match=re.escape(words)) as caught:
        check(make, *changes, **claims)
    assert caught.value.reason == reason
    assert caught.value.message.endswith(".")


def test_what_runs_is_not_judged_again(make: Make) -> None:
    refuse.check(make.active("image=evil/trainer:1"), make.settings)


def test_claims_matter_only_if_several_pods_share_them(make: Make) -> None:
    one, two = make.job().spec, make.job("nodes=2", "output={claim: models}").spec
    assert one is not None
    assert two is not None
    assert refuse.claims(one) == ()
    assert refuse.claims(two) == ("models", "data")


def test_an_object_of_somebody_else_is_never_touched(make: Make) -> None:
    observed = make.observed()
    foreign = make.set(observed.job, owner_uid="somebody", owned_by_namesake=False)
    with pytest.raises(Stalled, match="StatefulSet mrpc") as caught:
        refuse.check(replace(observed, children={"StatefulSet": foreign}), make.settings)
    assert caught.value.reason == "NameConflict"


def test_what_a_deleted_job_of_the_name_left_behind_is_waited_for(make: Make) -> None:
    observed = make.observed()
    left = make.set(observed.job, owner_uid="before", owned_by_namesake=True)
    with pytest.raises(NotYet) as caught:
        refuse.check(replace(observed, children={"StatefulSet": left}), make.settings)
    assert caught.value.reason == "Leftovers"


def test_a_child_that_is_being_deleted_is_waited_for(make: Make) -> None:
    observed = make.observed()
    with pytest.raises(NotYet):
        refuse.check(replace(observed, children={"StatefulSet": make.set(observed.job, deleting=True)}), make.settings)
