"""Failed attempts: counted, told by cause, and one too many."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune_operator import names
from cpufinetune_operator.model import Report
from cpufinetune_operator.plan import completion, report, times
from cpufinetune_operator.plan.completion import Ending

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cpufinetune_operator.model import Exit, Observed, PodView

# Launchers that die this close to each other died of the same.
SAME_SECONDS = 5.0
# Clocks of two machines may differ by this much.
SKEW_SECONDS = 30.0
MOST_RANKS = 256
_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Attempts so far.

    Attributes:
        ranks: the last exit of every rank that is known to have ended, as the status keeps them.
        reason: why the newest failed attempt ended, as one word; empty if none failed.
        cause: the same in words.
        fresh: it failed since the status was written.
    """

    attempt: int
    restarts: int
    ranks: tuple[Mapping[str, Any], ...]
    reason: str = ""
    cause: str = ""
    fresh: bool = False


def recorded(status: Mapping[str, Any]) -> Tally:
    """The tally that the status states: of a job that has ended, nothing more is counted."""
    return _tally(int(status.get("attempt", 0)), int(status.get("restarts", 0)), _newest(status.get("ranks", ())))


def tally(observed: Observed, ending: Ending | None = None) -> Tally:
    """Count by what the status says, what node 0 says, and the launchers that died since.

    A rank's death is node 0's to count. A launcher's death (out of memory, a crash at start) shows in its pod even if
    no report can be read. Node 0 counts it as well, hence the largest of the numbers and not their sum.

    A death is counted by being later than all that are recorded, so what is recorded must never become older, whatever
    a report says: it may be one of before the death, or its clock behind.
    """
    status = observed.job.status
    known = ending.report if ending and ending.report else observed.report
    said = known if isinstance(known, Report) else Report()
    deaths = _new_deaths(observed)
    before = int(status.get("restarts", 0))
    # One that asks to be started again waited in vain for peers or its volume: a gang that never met has tried nothing,
    # and one that did counts for itself. It is recorded all the same.
    failed = [(pod, end) for pod, end in deaths if end.code != names.EXIT_RETRY]
    uncounted = any(not _is_reported(pod, end, said, observed) for pod, end in failed)
    restarts = max(before + (1 if uncounted else 0), said.restarts or 0)
    seen = [_rank_of(pod, end, observed) for pod, end in deaths]
    ranks = _newest([*status.get("ranks", ()), *said.ranks, *seen])
    attempt = max(int(status.get("attempt", 0)), said.attempt or 0, restarts + 1)
    return _tally(attempt, restarts, ranks, fresh=restarts > before)


def _tally(attempt: int, restarts: int, ranks: Mapping[int, Mapping[str, Any]], *, fresh: bool = False) -> Tally:
    # The newest, not the first: a death that is not recorded would count again at every look.
    kept = sorted(ranks.values(), key=lambda rank: (_time_of(rank), -rank["rank"]), reverse=True)[:MOST_RANKS]
    in_order = tuple(sorted(kept, key=lambda rank: rank["rank"]))
    newest = max((rank for rank in in_order if "lastExit" in rank), key=_time_of, default=None)
    reason = newest["lastExit"].get("reason", "Error") if newest and restarts else ""
    cause = explain(newest) if newest and restarts else ""
    return Tally(attempt=attempt, restarts=restarts, ranks=in_order, reason=reason, cause=cause, fresh=fresh)


def exceeded(observed: Observed, count: Tally) -> Ending | None:
    """The job's end if more attempts failed than it may; its launcher may have no chance to say so itself."""
    spec = observed.job.spec
    if spec is None or count.restarts <= spec.run_policy.backoff_limit:
        return None
    last = f"; last: {count.cause}" if count.cause else ""
    text = f"{count.restarts} attempts failed, more than runPolicy.backoffLimit {spec.run_policy.backoff_limit}{last}"
    return Ending(
        type="Failed",
        reason=names.REASON_BACKOFF,
        message=f"{text}. See status.ranks for what ended each rank.",
        at=observed.now,
    )


def died(pod: PodView, uid: str) -> Exit | None:
    """The end of the pod's launcher, if nobody asked for it.

    A pod that the cluster takes away (`pod.disruption`: eviction, preemption, a lost machine) ends with SIGTERM or is
    never heard of again; neither counts as a failed attempt.
    """
    end = pod.exit
    if end is None or end.code in {names.EXIT_OK, names.EXIT_INTERRUPTED} or pod.deleting or pod.disruption:
        return None
    return None if completion.last_word(pod, uid) else end


def explain(rank: Mapping[str, Any]) -> str:
    """What ended a rank, for people."""
    end, where = rank["lastExit"], f" on {rank['node']}" if rank.get("node") else ""
    text = f"rank {rank['rank']}{where} ended with {end.get('reason', 'Error')}"
    if end.get("reason") == "OOMKilled":
        return f"{text} (raise node.memory or lower training.microBatchSize)"
    code = f" (exit code {end['code']})" if "code" in end else ""
    line = f": {end['message']}" if end.get("message") else ""
    return text + code + line


def _new_deaths(observed: Observed) -> list[tuple[PodView, Exit]]:
    recorded_until = max(map(_time_of, observed.job.status.get("ranks", ())), default=_LONG_AGO)
    deaths = [(pod, end) for pod in observed.pods if (end := died(pod, observed.job.uid))]
    return [(pod, end) for pod, end in deaths if _seconds_after(end, recorded_until) > SAME_SECONDS]


def _is_reported(pod: PodView, end: Exit, said: Report, observed: Observed) -> bool:
    """Whether node 0 counted this death, by a clock that is behind.

    Should it be another death of the pod, so soon after, then node 0 has yet to count it, and will. Of its own death
    it says nothing; but there the clock is the same.
    """
    if pod.index == 0 or not said.restarts:
        return False
    own = [rank for rank in said.ranks if rank["rank"] // _ranks_a_node(observed) == pod.index]
    return any(abs(_seconds_after(end, _time_of(rank))) <= SKEW_SECONDS for rank in own)


def _seconds_after(end: Exit, time: dt.datetime) -> float:
    return ((end.finished_at or _LONG_AGO) - time).total_seconds()


def _time_of(rank: Mapping[str, Any]) -> dt.datetime:
    return times.parse(rank.get("lastExit", {}).get("time")) or _LONG_AGO


def _newest(ranks: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The newest exit of each rank; of equally new ones, the last that is given."""
    found: dict[int, Mapping[str, Any]] = {}
    for rank in ranks:
        known = found.get(rank["rank"])
        if known is None or _time_of(rank) >= _time_of(known):
            found[rank["rank"]] = rank
    return found


def _ranks_a_node(observed: Observed) -> int:
    return observed.job.status.get("layout", {}).get("ranks") or 1


def _rank_of(pod: PodView, end: Exit, observed: Observed) -> Mapping[str, Any]:
    """The first rank of a pod, which stands for its launcher."""
    word = report.read(end.message, observed.job.uid)
    reason, message = (word and word.failure) or (end.reason or "Error", report.last_line(end.message))
    last = {"reason": reason, "code": end.code, "message": message[: report.LONGEST_LINE]}
    time = {"time": times.stamp(end.finished_at)} if end.finished_at else {}
    rank = {"rank": pod.index * _ranks_a_node(observed), "lastExit": {**last, **time}}
    return {**rank, "node": pod.node} if pod.node else rank
