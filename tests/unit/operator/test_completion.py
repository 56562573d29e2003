"""How a job's end is told from what its pods left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator.model import Report
from cpufinetune_operator.plan import completion, report

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

RESULT = {"path": "model", "metrics": {"accuracy": 0.9}, "bytes": 10}
FAILURE = {"reason": "MissingColumn", "message": "column labell is not there", "fix": "write label"}


@pytest.mark.parametrize("state", ["it parks", "it is being removed", "it has not come back yet"])
def test_node_0_says_that_the_job_is_complete_while(state: str, make: Make) -> None:
    last = make.exit(0, make.word(0, result=RESULT, progress={"step": 5}), reason="Completed", ago=9)
    first = make.pod(exit=last, running=state == "it parks", deleting=state == "it is being removed")
    ended = completion.ending(make.active(pods=(first,)))
    assert ended is not None
    assert (ended.type, ended.reason, ended.at) == ("Complete", "Trained", make.at(-9))
    assert ended.report is not None
    assert ended.report.result == RESULT
    assert ended.report.progress == {"step": 5}


OUTPUTS = {
    "a claim": (["output={claim: results}"], "PersistentVolumeClaim results, folder model"),
    "a volume of its own": (["output={volume: {size: 1Gi}}"], "PersistentVolumeClaim output-mrpc-0, folder model"),
    "nowhere": ([], "was not kept"),
}


@pytest.mark.parametrize(("changes", "words"), OUTPUTS.values(), ids=OUTPUTS)
def test_a_complete_job_says_where_its_model_is_in(changes: list[str], words: str, make: Make) -> None:
    first = make.pod(exit=make.exit(0, make.word(0, result=RESULT)))
    ended = completion.ending(make.active(*changes, pods=(first,)))
    assert ended is not None
    assert words in ended.message


FAILURES: dict[str, tuple[int, dict[str, Any], str, str]] = {
    "bad data": (2, {"failure": FAILURE}, "MissingColumn", "column labell is not there; write label"),
    "bad data without words": (2, {}, "BadInput", "no message was left"),
    "too many attempts": (1, {"restarts": 7, "failure": FAILURE}, "BackoffLimitExceeded", "after 7 restarts"),
    "the deadline": (3, {}, "DeadlineExceeded", "activeDeadlineSeconds"),
}


@pytest.mark.parametrize(("code", "fields", "reason", "words"), FAILURES.values(), ids=FAILURES)
def test_node_0_says_that_the_job_failed_for(
    code: int, fields: dict[str, Any], reason: str, words: str, make: Make
) -> None:
    ended = completion.ending(make.active(pods=(make.pod(exit=make.exit(code, make.word(code, **fields))),)))
    assert ended is not None
    assert (ended.type, ended.reason) == ("Failed", reason)
    assert words in ended.message


GOING_ON = {
    "a launcher that was evicted": (143, '{"schema": 1, "uid": "%s", "code": 143}'),
    "a launcher that wants another life": (75, '{"schema": 1, "uid": "%s", "code": 75}'),
    "a launcher that ran out of memory": (137, ""),
    "a crash": (1, "Traceback (most recent call last):\nImportError: torch"),
    "a container that parked and was told to go": (0, ""),
    "the last word of another job": (0, '{"schema": 1, "uid": "other", "code": 0}'),
    "a word of another schema": (0, '{"schema": 2, "uid": "%s", "code": 0}'),
}


@pytest.mark.parametrize(("code", "message"), GOING_ON.values(), ids=GOING_ON)
def test_a_job_goes_on_after(code: int, message: str, make: Make) -> None:
    pod = make.pod(exit=make.exit(code, message.replace("%s", make.uid)))
    assert completion.ending(make.active(pods=(pod,))) is None


def test_the_last_word_counts_even_if_the_launcher_was_killed_on_its_way_out(make: Make) -> None:
    pod = make.pod(exit=make.exit(137, make.word(0, result=RESULT)))
    ended = completion.ending(make.active(pods=(pod,)))
    assert ended is not None
    assert ended.type == "Complete"


def test_node_0_is_waited_for_when_another_node_has_heard_that_it_is_over(make: Make) -> None:
    word = make.exit(0, make.word(0, node=1), ago=2)
    observed = make.active("nodes=2", pods=(make.pod(0), make.pod(1, exit=word)))
    assert completion.ending(observed) is None
    assert completion.look_again(observed) is not None
    late = replace(observed, now=make.at(60))
    ended = completion.ending(late)
    assert ended is not None
    assert ended.type == "Complete"


def test_node_0_tells_better_why_a_job_failed_than_the_node_that_it_failed_on(make: Make) -> None:
    other = make.pod(1, exit=make.exit(2, make.word(2, node=1)))
    first = make.pod(0, exit=make.exit(2, make.word(2, failure=FAILURE)))
    assert completion.ending(make.active("nodes=2", pods=(make.pod(0), other))) is None
    ended = completion.ending(make.active("nodes=2", pods=(first, other)))
    assert ended is not None
    assert ended.reason == "MissingColumn"


def test_a_launcher_that_could_not_even_read_its_document_fails_the_job(make: Make) -> None:
    pod = make.pod(1, exit=make.exit(2, "reading\nerror: spec.model: unknown field\n"))
    ended = completion.ending(make.active("nodes=2", pods=(make.pod(0), pod)))
    assert ended is not None
    assert (ended.reason, "mrpc-1: error: spec.model: unknown field" in ended.message) == ("BadInput", True)


def test_a_fetch_that_needs_a_human_fails_the_job(make: Make) -> None:
    pod = make.pending(fetch_exit=make.exit(2, "error: no such revision"))
    ended = completion.ending(make.active(pods=(pod,)))
    assert ended is not None
    assert (ended.reason, "no such revision" in ended.message) == ("FetchFailed", True)


def test_a_fetch_that_may_do_better_next_time_does_not(make: Make) -> None:
    assert completion.ending(make.active(pods=(make.pending(fetch_exit=make.exit(75, "hub is away")),))) is None


def test_a_report_of_the_result_counts_if_the_pod_is_gone_with_its_last_word(make: Make) -> None:
    said = Report(state="Finished", result=RESULT)
    assert completion.ending(make.active(report=said)) is None
    ended = completion.ending(make.active(report=said, pods=()))
    assert ended is not None
    assert ended.type == "Complete"


def test_what_is_written_is_not_judged_again(make: Make) -> None:
    ended = completion.recorded(make.ended_status("Complete", ago=30))
    assert ended is not None
    assert (ended.type, ended.at) == ("Complete", make.at(-30))
    assert completion.recorded(make.running_status()) is None
    assert completion.recorded({}) is None


def test_reports_are_read_by_the_same_rules_everywhere(make: Make) -> None:
    assert report.read(make.word(0, attempt=3), make.uid) == Report(code=0, attempt=3)
