"""Where a job stands, for the report server and the termination message: the recorder's and the gang's knowledge."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import CpuFineTuneError, ExitCode
from cpufinetune.job.problems import InvalidJob
from cpufinetune.launch.cause import root
from cpufinetune.launch.gang import State
from cpufinetune.launch.termination import SCHEMA
from cpufinetune.report import status
from cpufinetune.report.metrics import exposition

if TYPE_CHECKING:
    from pathlib import Path

    from cpufinetune.launch.cause import Cause
    from cpufinetune.launch.gang import Finish, Gang
    from cpufinetune.launch.recorder import Recorder
    from cpufinetune.report.server import Page

TRAINING = ("Train", "Evaluate", "Checkpoint", "Save", "Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Reads what node 0 knows. `ranks` is how many each node has, `output_root` what result paths are below."""

    uid: str
    set_name: str
    ranks: int
    output_root: Path
    gang: Gang
    recorder: Recorder

    def pages(self) -> dict[str, Page]:
        """Return what the report server serves."""
        return {
            "/report": ("application/json", lambda: json.dumps(self.report(), allow_nan=False)),
            "/metrics": ("text/plain; version=0.0.4; charset=utf-8", self.metrics),
            "/healthz": ("text/plain; charset=utf-8", lambda: "ok\n"),
        }

    def report(self) -> dict[str, Any]:
        """Return the state of a job that is not over yet."""
        state = self.state()
        last = self.gang.records[-1].causes if self.gang.records else ()
        failure = failure_of(root(last)) if state == "Restarting" and last else None
        parts = {"result": None, "failure": failure, "nodes": self.recorder.layouts()}
        return {"schema": SCHEMA, "uid": self.uid, "state": state, **self._common(), **parts}

    def message(self, finish: Finish) -> dict[str, Any]:
        """Return the last word of a job that is over."""
        # The result of an attempt counts only once all of its ranks have ended well.
        result = self.recorder.progress.result if finish.code == ExitCode.OK else None
        cause = None if finish.code in {ExitCode.OK, ExitCode.INTERRUPTED} else finish.cause
        return {
            "schema": SCHEMA,
            "uid": self.uid,
            "code": int(finish.code),
            **self._common(),
            "result": None if result is None else status.result_status(result, self.output_root),
            "failure": None if cause is None else failure_of(cause),
        }

    def metrics(self) -> str:
        """Return the snapshot for Prometheus."""
        snapshot = self.recorder.progress.snapshot()
        return exposition({**snapshot, "attempt": self.gang.attempt, "restarts": self.gang.failures})

    def state(self) -> str:
        """Return the state in one word."""
        if self.gang.state == State.FINISHED:
            return "Finished"
        snapshot = self.recorder.progress.snapshot()
        training = snapshot["phase"] in TRAINING and snapshot["attempt"] == self.gang.attempt
        if training and self.gang.state in {State.RUNNING, State.DRAINING}:
            return "Training"
        return "Restarting" if self.gang.failures else "Preparing"

    def _common(self) -> dict[str, Any]:
        causes = [cause.document() for record in self.gang.records for cause in record.causes]
        return {
            "attempt": self.gang.attempt,
            "restarts": self.gang.failures,
            "progress": status.progress_status(self.recorder.progress),
            "layout": status.layout_status(
                list(self.recorder.facts.values()), self.ranks, self.recorder.progress.setup
            ),
            "ranks": status.ranks_status(causes, self.ranks, lambda node: f"{self.set_name}-{node}"),
        }


def failure_of(cause: Cause) -> dict[str, str]:
    """Return what a condition says of a cause."""
    return status.failure_status(cause.reason, f"{cause.place}: {cause.message}", cause.fix)


def failed_early(uid: str, code: ExitCode, error: Exception) -> dict[str, Any]:
    """Return the last word of node 0 when there is no gang: for a bad document, say."""
    if isinstance(error, InvalidJob):
        lines = [str(problem) for problem in error.problems]
        failure = status.failure_status("InvalidJob", "; ".join(lines), "correct the document")
    elif isinstance(error, CpuFineTuneError):
        failure = status.failure_status(error.reason, error.message, error.fix)
    else:
        failure = status.failure_status(type(error).__name__, str(error) or "no message", "")
    empty = {"attempt": 0, "restarts": 0, "progress": {}, "layout": {}, "ranks": [], "result": None}
    return {"schema": SCHEMA, "uid": uid, "code": int(code), **empty, "failure": failure}
