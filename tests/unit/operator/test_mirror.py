"""What is known of the API server's objects, whatever the order in which news arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator import kinds
from cpufinetune_operator.mirror import Mirror
from cpufinetune_operator.plan import objects

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

KEY = ("ml", "mrpc")


def raw_pod(index: int = 0, version: str = "1", job: str = "mrpc") -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"mrpc-{index}",
            "namespace": "ml",
            "uid": f"pod-{index}",
            "resourceVersion": version,
            "labels": {"cpufinetune.dev/job": job},
        }
    }


def test_objects_are_found_by_job(make: Make) -> None:
    mirror = Mirror()
    assert mirror.put(kinds.JOB, make.raw_job()) == KEY
    assert mirror.put(kinds.SERVICE, make.stored(objects.service(make.job()), "s")) == KEY
    assert mirror.put(kinds.POD, raw_pod(1)) == KEY
    assert mirror.put(kinds.POD, raw_pod(0)) == KEY
    assert mirror.keys() == (KEY,)
    assert set(mirror.children(KEY)) == {"Service"}
    assert [pod.name for pod in mirror.pods(KEY)] == ["mrpc-0", "mrpc-1"]


@pytest.mark.parametrize(("version", "news"), [("6", True), ("10", True), ("5", False), ("4", False), ("", True)])
def test_only_newer_news_are_any(version: str, news: bool, make: Make) -> None:  # noqa: FBT001
    mirror = Mirror()
    mirror.put(kinds.JOB, make.raw_job(status={"phase": "Running"}))
    put = mirror.put(kinds.JOB, make.raw_job(status={"phase": "Pending"}, resourceVersion=version))
    assert (put is not None) is news


def test_what_was_deleted_does_not_come_back(make: Make) -> None:
    mirror = Mirror()
    mirror.put(kinds.JOB, make.raw_job())
    assert mirror.drop(make.uid) == KEY
    assert mirror.put(kinds.JOB, make.raw_job(resourceVersion="99")) is None
    assert mirror.job(KEY) is None
    assert mirror.drop(make.uid) is None


def test_a_list_is_news_the_first_time_only(make: Make) -> None:
    mirror = Mirror()
    assert mirror.put(kinds.JOB, make.raw_job()) == KEY
    assert mirror.put(kinds.JOB, make.raw_job()) is None
    assert mirror.job(KEY) is not None


LABELS_PUT_BACK: dict[str, tuple[str, bool]] = {
    "a higher version is taken": ("11", True),
    "a version with more digits is taken": ("100", True),
    "the version of the removal is not": ("10", False),
    "a lower version is not": ("9", False),
    "an unknown version is not": ("", False),
}


@pytest.mark.parametrize(("version", "taken"), LABELS_PUT_BACK.values(), ids=LABELS_PUT_BACK)
def test_of_an_object_that_lost_its_labels_and_got_them_back(version: str, taken: bool) -> None:  # noqa: FBT001
    mirror = Mirror()
    mirror.put(kinds.POD, raw_pod(version="5"))
    assert mirror.drop("pod-0", "10") == KEY
    assert (mirror.put(kinds.POD, raw_pod(version=version)) == KEY) is taken
    assert len(mirror.pods(KEY)) == int(taken)


def test_an_object_may_lose_its_labels_again() -> None:
    mirror = Mirror()
    for put, gone in (("5", "6"), ("7", "8"), ("9", "10")):
        assert mirror.put(kinds.POD, raw_pod(version=put)) == KEY
        assert mirror.drop("pod-0", gone) == KEY
        assert mirror.put(kinds.POD, raw_pod(version=put)) is None
    assert mirror.pods(KEY) == ()


def test_a_removal_from_before_our_own_write_is_no_news(make: Make) -> None:
    mirror = Mirror()
    mirror.put(kinds.SERVICE, make.stored(objects.service(make.job()), "s"))  # version 7
    assert mirror.drop("s", "6") is None
    assert set(mirror.children(KEY)) == {"Service"}


def test_what_a_list_did_not_have_may_be_in_a_later_one() -> None:
    mirror = Mirror()
    mirror.put(kinds.POD, raw_pod(version="5"))
    assert mirror.sweep(kinds.POD, None, set(), "20") == [KEY]
    assert mirror.put(kinds.POD, raw_pod(version="20")) is None
    assert mirror.put(kinds.POD, raw_pod(version="21")) == KEY


def test_a_namesake_may_come_before_the_old_one_is_known_to_be_gone(make: Make) -> None:
    mirror = Mirror()
    mirror.put(kinds.JOB, make.raw_job())
    mirror.put(kinds.JOB, make.raw_job(uid="new", resourceVersion="8"))
    assert mirror.drop(make.uid) == KEY
    job = mirror.job(KEY)
    assert job is not None
    assert job.uid == "new"


def test_a_child_of_the_same_name_replaces_the_old_one(make: Make) -> None:
    mirror = Mirror()
    manifest = objects.service(make.job())
    mirror.put(kinds.SERVICE, make.stored(manifest, "old"))
    mirror.put(kinds.SERVICE, make.stored(manifest, "new"))
    mirror.drop("old")
    assert mirror.children(KEY)["Service"].uid == "new"
    mirror.drop("new")
    assert mirror.children(KEY) == {}


def test_a_pod_whose_labels_were_changed_moves() -> None:
    mirror = Mirror()
    mirror.put(kinds.POD, raw_pod())
    mirror.put(kinds.POD, raw_pod(version="2", job="other"))
    assert mirror.pods(KEY) == ()
    assert len(mirror.pods(("ml", "other"))) == 1


def test_the_spec_is_read_once_a_generation(make: Make) -> None:
    mirror = Mirror()
    mirror.put(kinds.JOB, make.raw_job())
    first = mirror.job(KEY)
    mirror.put(kinds.JOB, make.raw_job(status={"phase": "Running"}, resourceVersion="6"))
    second = mirror.job(KEY)
    assert first is not None
    assert second is not None
    assert second.spec is first.spec
    assert second.status == {"phase": "Running"}


def test_a_list_tells_of_deletions_that_were_missed(make: Make) -> None:
    mirror = Mirror()
    mirror.put(kinds.JOB, make.raw_job())
    for index, version in ((0, "10"), (1, "11"), (2, "30")):
        mirror.put(kinds.POD, raw_pod(index, version))
    # Pod 2 is newer than the list, and jobs were not listed.
    assert mirror.sweep(kinds.POD, None, {"pod-0"}, "20") == [KEY]
    assert [pod.name for pod in mirror.pods(KEY)] == ["mrpc-0", "mrpc-2"]
    assert mirror.job(KEY) is not None


def test_a_list_of_one_namespace_tells_nothing_of_others() -> None:
    mirror = Mirror()
    mirror.put(kinds.POD, raw_pod())
    assert mirror.sweep(kinds.POD, "other", set(), "99") == []
    assert mirror.sweep(kinds.POD, "ml", set(), "99") == [KEY]
