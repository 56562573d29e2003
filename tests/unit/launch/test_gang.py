from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.errors import ExitCode
from cpufinetune.launch.gang import LONGEST_DELAY, Action, Drain, Finish, Gang, Prepare, Start, State, Stop

if TYPE_CHECKING:
    from cpufinetune.launch.cause import Cause

# An event: what happens, to which node, and the kind of cause ("" if there is none).
Told = tuple[str, int, str]
Feed = Callable[[Gang, list[Told]], list[Action]]


def ready(node: int) -> Told:
    return ("ready", node, "")


def done(node: int) -> Told:
    return ("done", node, "")


def ended(node: int, kind: str = "Exit") -> Told:
    return ("ended", node, kind)


def lost(node: int) -> Told:
    return ("lost", node, "NodeLost")


INTERRUPT: Told = ("interrupt", 0, "")
PROGRESS: Told = ("progressed", 0, "")
DEADLINE: Told = ("deadline", 0, "Exit")
UNFIT: Told = ("unfit", 1, "Permanent")
RUNNING = [ready(0), ready(1)]
STOPPING = [*RUNNING, ended(0, "Signal")]
DRAINING = [*RUNNING, INTERRUPT]
FAILED = [*STOPPING, ended(1, "Stopped")]  # one attempt over, the next one running
GATHERING = [*RUNNING, lost(1), ended(0, "Stopped")]  # one attempt over, a node missing


@pytest.fixture
def feed(cause: Callable[..., Cause]) -> Feed:
    """Feeds events to a gang and returns what it wants done after the last one."""

    def tell(gang: Gang, events: list[Told]) -> list[Action]:
        actions: list[Action] = []
        for name, node, kind in events:
            arguments: list[Any] = [] if name in {"interrupt", "progressed", "deadline", "unfit"} else [node]
            arguments += [cause(kind, node)] if kind else []
            actions = getattr(gang, name)(*arguments) or []
        return actions

    return tell


def gang(**changes: Any) -> Gang:
    return Gang(**{"nodes": 2, "backoff_limit": 6} | changes)


def short(action: Action) -> str:
    match action:
        case Start(attempt, delay):
            return f"start {attempt} after {delay:g}"
        case Finish(code, cause):
            return f"finish {code.name} {'' if cause is None else cause.kind}".strip()
        case Prepare(node):
            return f"prepare {node}"
        case Stop() | Drain():
            return type(action).__name__.lower()


@pytest.mark.parametrize(
    ("events", "actions", "state"),
    [
        pytest.param([], [], State.GATHERING, id="at first the gang gathers"),
        pytest.param([ready(0)], [], State.GATHERING, id="one node is not enough"),
        pytest.param([ready(0), ready(0)], [], State.GATHERING, id="one node twice is not enough"),
        pytest.param([ready(1), ready(0)], ["start 1 after 0"], State.RUNNING, id="all nodes ready start the ranks"),
        pytest.param([ready(0), lost(0), ready(1)], [], State.GATHERING, id="a node lost while gathering is missed"),
        pytest.param(
            [ready(0), lost(0), ready(1), ready(0)], ["start 1 after 0"], State.RUNNING, id="until it comes back"
        ),
        pytest.param([*RUNNING, done(0)], [], State.RUNNING, id="one node done waits for the other"),
        pytest.param([*RUNNING, done(0), done(1)], ["finish OK"], State.FINISHED, id="all nodes done are the end"),
        pytest.param(
            [*RUNNING, done(0), lost(0), done(1)], ["finish OK"], State.FINISHED, id="a node lost after it was done"
        ),
        pytest.param(
            [*RUNNING, done(0), ended(1)], ["stop", "start 2 after 0"], State.RUNNING,
            id="a failure after others are done starts all anew",
        ),
        pytest.param(STOPPING, ["stop"], State.STOPPING, id="a failure stops the others"),
        pytest.param(FAILED, ["start 2 after 0"], State.RUNNING, id="once all ended the next attempt starts"),
        pytest.param([*STOPPING, done(1)], ["start 2 after 0"], State.RUNNING, id="even if the other got done"),
        pytest.param([*RUNNING, lost(1)], ["stop"], State.STOPPING, id="a lost node stops the others"),
        pytest.param(GATHERING, [], State.GATHERING, id="a lost node is waited for"),
        pytest.param([*GATHERING, ready(1)], ["start 2 after 0"], State.RUNNING, id="and starts the next attempt"),
        pytest.param(
            [*RUNNING, lost(1), ready(1)], [], State.STOPPING, id="a newcomer waits until the others have ended"
        ),
        pytest.param(
            [*RUNNING, lost(1), ready(1), ended(0, "Stopped")], ["start 2 after 0"], State.RUNNING,
            id="a newcomer that came early starts at once",
        ),
        pytest.param([*STOPPING, lost(1)], [], State.GATHERING, id="a node lost while stopping is waited for"),
        pytest.param(
            [*RUNNING, ended(0, "Permanent"), ended(1, "Stopped")], ["finish BAD_INPUT Permanent"], State.FINISHED,
            id="a permanent failure is not tried again",
        ),
        pytest.param(
            [*RUNNING, ended(0, "Exit"), ended(1, "Permanent")], ["finish BAD_INPUT Permanent"], State.FINISHED,
            id="even if another rank failed first",
        ),
        pytest.param([UNFIT], ["finish BAD_INPUT Permanent"], State.FINISHED, id="an unfit node ends it"),
        pytest.param([("unfit", 0, "Signal")], ["prepare 0"], State.GATHERING, id="a node killed while preparing"),
        pytest.param(
            [("unfit", 0, "Signal")] * 7, ["finish GAVE_UP Signal"], State.FINISHED, id="killed so more than the limit"
        ),
        pytest.param([lost(1)] * 6, [], State.GATHERING, id="a node that dies while it prepares may come back"),
        pytest.param(
            [lost(1)] * 7, ["finish GAVE_UP NodeLost"], State.FINISHED, id="but not more often than the limit"
        ),
        pytest.param(
            [ready(0), lost(0)] * 9, [], State.GATHERING, id="a node that was ready and went is no failure"
        ),
        pytest.param([*DRAINING, INTERRUPT], ["finish INTERRUPTED"], State.FINISHED, id="asked twice to stop"),
        pytest.param(
            [*STOPPING, INTERRUPT, INTERRUPT], ["finish INTERRUPTED"], State.FINISHED, id="asked twice while stopping"
        ),
        pytest.param([*RUNNING, UNFIT], ["finish BAD_INPUT Permanent"], State.FINISHED, id="an unfit newcomer"),
        pytest.param([INTERRUPT], ["finish INTERRUPTED"], State.FINISHED, id="interrupted while gathering"),
        pytest.param([*GATHERING, INTERRUPT], ["finish INTERRUPTED"], State.FINISHED, id="or gathering again"),
        pytest.param(DRAINING, ["drain"], State.DRAINING, id="interrupted while running"),
        pytest.param([*DRAINING, ended(0, "Interrupted")], [], State.DRAINING, id="drained one by one"),
        pytest.param(
            [*DRAINING, ended(0, "Interrupted"), ended(1, "Interrupted")], ["finish INTERRUPTED Interrupted"],
            State.FINISHED, id="all drained",
        ),
        pytest.param(
            [*DRAINING, ended(0, "Interrupted"), ended(1, "Signal")], ["finish INTERRUPTED Signal"],
            State.FINISHED, id="a failure while draining starts nothing anew",
        ),
        pytest.param(
            [*DRAINING, lost(0), lost(1)], ["finish INTERRUPTED NodeLost"], State.FINISHED, id="lost while draining"
        ),
        pytest.param(
            [*DRAINING, ended(0, "Permanent"), done(1)], ["finish BAD_INPUT Permanent"], State.FINISHED,
            id="a permanent failure while draining",
        ),
        pytest.param([*DRAINING, done(0), done(1)], ["finish OK"], State.FINISHED, id="done before it could drain"),
        pytest.param(
            [*RUNNING, ended(0, "Interrupted"), ended(1, "Interrupted")], ["finish INTERRUPTED Interrupted"],
            State.FINISHED, id="ranks that were interrupted by others",
        ),
        pytest.param(
            [*STOPPING, INTERRUPT, ended(1, "Stopped")], ["finish INTERRUPTED Signal"], State.FINISHED,
            id="interrupted while stopping starts nothing anew",
        ),
        *(
            pytest.param([*events, DEADLINE], ["finish DEADLINE Exit"], State.FINISHED, id=f"deadline while {name}")
            for name, events in {
                "gathering": [], "running": RUNNING, "stopping": STOPPING, "draining": DRAINING,
            }.items()
        ),
    ],
)  # fmt: skip
def test_events_lead_to_actions(feed: Feed, events: list[Told], actions: list[str], state: State) -> None:
    machine = gang()
    assert [short(action) for action in feed(machine, events)] == actions
    assert machine.state == state


@pytest.mark.parametrize(
    "late",
    [ready(0), done(0), ended(0), ended(1, "Permanent"), lost(1), UNFIT, INTERRUPT, PROGRESS, DEADLINE],
    ids=lambda told: told[0],
)
@pytest.mark.parametrize("over", [[*RUNNING, done(0), done(1)], [INTERRUPT], [*RUNNING, DEADLINE]])
def test_what_happens_after_the_end_is_ignored(feed: Feed, over: list[Told], late: Told) -> None:
    machine = gang()
    assert feed(machine, over)
    records = list(machine.records)
    assert feed(machine, [late, late]) == []
    assert (machine.state, machine.records) == (State.FINISHED, records)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_it_gives_up_after_as_many_retries_as_allowed(feed: Feed, limit: int) -> None:
    machine = gang(backoff_limit=limit)
    feed(machine, RUNNING)
    for attempt in range(1, limit + 2):
        assert (machine.attempt, machine.state) == (attempt, State.RUNNING)
        last = feed(machine, [PROGRESS, ended(0, "Signal"), ended(1, "Stopped")])
    assert [short(action) for action in last] == ["finish GAVE_UP Signal"]
    assert machine.failures == limit + 1
    assert [record.attempt for record in machine.records] == list(range(1, limit + 2))


@pytest.mark.parametrize(
    ("progress", "delays"),
    [
        pytest.param([False] * 9, [0, 2, 4, 8, 16, 32, 60, 60, 60], id="failures without progress wait ever longer"),
        pytest.param([True] * 4, [0, 0, 0, 0], id="failures after progress do not wait"),
        pytest.param([False, False, True, False, False], [0, 2, 0, 0, 2], id="progress starts the count anew"),
    ],
)
def test_only_fruitless_failures_delay_the_next_attempt(feed: Feed, progress: list[bool], delays: list[float]) -> None:
    machine = gang(backoff_limit=20)
    feed(machine, RUNNING)
    found = []
    for progressed in progress:
        actions = feed(machine, [*([PROGRESS] if progressed else []), ended(1), ended(0, "Stopped")])
        found += [action.delay for action in actions if isinstance(action, Start)]
    assert found == delays
    assert max(found) <= LONGEST_DELAY


def test_a_job_of_one_node_stops_and_starts_in_one_go(feed: Feed) -> None:
    machine = gang(nodes=1)
    assert [short(action) for action in feed(machine, [ready(0)])] == ["start 1 after 0"]
    assert [short(action) for action in feed(machine, [ended(0)])] == ["stop", "start 2 after 0"]
    assert [short(action) for action in feed(machine, [done(0)])] == ["finish OK"]


@pytest.mark.parametrize(
    ("events", "records"),
    [
        pytest.param([*RUNNING, done(0), done(1)], [(1, [])], id="a success has no causes"),
        pytest.param(
            [*FAILED, done(0), done(1)], [(1, ["Signal", "Stopped"]), (2, [])], id="a success after a failure"
        ),
        pytest.param(
            [*DRAINING, ended(0, "Interrupted"), done(1)], [(1, ["Interrupted"])], id="an interrupted attempt"
        ),
        pytest.param([*STOPPING, DEADLINE], [(1, ["Signal", "Exit"])], id="an attempt cut short by the deadline"),
        pytest.param([*GATHERING, INTERRUPT], [(1, ["NodeLost", "Stopped"])], id="interrupted between attempts"),
        pytest.param([INTERRUPT], [], id="interrupted before the first attempt"),
    ],
)
def test_each_attempt_is_recorded_once(feed: Feed, events: list[Told], records: list[tuple[int, list[str]]]) -> None:
    machine = gang()
    feed(machine, events)
    assert [(record.attempt, [cause.kind for cause in record.causes]) for record in machine.records] == records


def test_the_end_knows_who_did_it(feed: Feed) -> None:
    machine = gang()
    (finish,) = feed(machine, [*RUNNING, ended(0), ended(1, "Permanent")])
    assert isinstance(finish, Finish)
    assert finish.code == ExitCode.BAD_INPUT
    assert finish.cause is not None
    assert (finish.cause.node, finish.cause.reason) == (1, "MissingColumn")
