"""Builders of what the operator sees: a job that could run, and everything about it by keyword."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cpufinetune.job.load import override
from cpufinetune.job.yaml_text import read_yaml
from cpufinetune_operator import views
from cpufinetune_operator.model import Answers, Child, Exit, JobView, Observed, Plan, PodView, Report
from cpufinetune_operator.plan import objects
from cpufinetune_operator.plan.decide import decide
from cpufinetune_operator.settings import Settings

NOW = dt.datetime(2026, 1, 2, 12, 0, 0, tzinfo=dt.UTC)
UID = "11111111-2222-3333-4444-555555555555"
SET_UID = "set-uid"

_VALID = """
model: {claim: models}
dataset: {claim: data, files: {train: train.csv}}
task: {text: [sentence], label: label}
"""


class Make:
    """Builds views."""

    now = NOW
    uid = UID
    settings = Settings(trainer_image="trainer:1", operator_namespace="cpufinetune-system")

    def at(self, seconds: float) -> dt.datetime:
        """A time, so many seconds after now."""
        return NOW + dt.timedelta(seconds=seconds)

    def stamp(self, seconds: float = 0) -> str:
        """The same, as the API server writes it."""
        return self.at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")

    def raw_job(self, *changes: str, status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
        """A job as the API server has it, with `field.path=value` changes to its spec."""
        document: dict[str, Any] = {
            "apiVersion": "cpufinetune.dev/v1alpha1",
            "kind": "CpuFineTune",
            "metadata": {"name": "mrpc", "namespace": "ml", "uid": UID, "generation": 1, "resourceVersion": "5"},
            "spec": read_yaml(_VALID, "test"),
        }
        for change in changes:
            assert override(document, change) is None
        document["metadata"] |= metadata
        return document | ({} if status is None else {"status": status})

    def job(self, *changes: str, status: dict[str, Any] | None = None, **fields: Any) -> JobView:
        """A job's view."""
        return replace(views.job(self.raw_job(*changes, status=status)), **fields)

    def exit(self, code: int, message: str = "", *, reason: str = "Error", ago: float = 1) -> Exit:
        """How a container ended."""
        return Exit(code=code, reason=reason, message=message, finished_at=self.at(-ago))

    def word(self, code: int | None = None, **fields: Any) -> str:
        """A report, or with a code a last word."""
        return json.dumps({"schema": 1, "uid": UID, **({} if code is None else {"code": code}), **fields})

    def pod(self, index: int = 0, **fields: Any) -> PodView:
        """A pod that runs."""
        known: dict[str, Any] = {
            "name": f"mrpc-{index}",
            "uid": f"pod-{index}",
            "index": index,
            "job_uid": UID,
            "owner_uid": SET_UID,
            "created": self.at(-100),
            "running": True,
            "running_since": self.at(-90),
            "ip": f"10.0.0.{index + 1}",
        }
        return PodView(**known | fields)

    def pending(self, index: int = 0, **fields: Any) -> PodView:
        """A pod that does not run yet."""
        return self.pod(index, **{"running": False, "running_since": None, "ip": ""} | fields)

    def set(self, job: JobView, **fields: Any) -> Child:
        """The job's StatefulSet, up to date."""
        assert job.spec is not None
        manifest = objects.stateful_set(job, job.spec, self.settings)
        return replace(views.child(self.stored(manifest, SET_UID)), **fields)

    def stored(self, manifest: dict[str, Any], uid: str) -> dict[str, Any]:
        """A child as the API server has it once it was applied."""
        return {**manifest, "metadata": {**manifest["metadata"], "uid": uid, "resourceVersion": "7"}}

    def children(self, job: JobView, **of_set: Any) -> dict[Any, Child]:
        """All children of a job, up to date."""
        assert job.spec is not None
        service = objects.service(job)
        policy = objects.network_policy(job, job.spec, self.settings)
        return {
            "Service": views.child(self.stored(service, "service-uid")),
            "NetworkPolicy": views.child(self.stored(policy, "policy-uid")),
            "StatefulSet": self.set(job, **of_set),
        }

    def observed(self, *changes: str, status: dict[str, Any] | None = None, **fields: Any) -> Observed:
        """A job without children or pods."""
        job = fields.pop("job", None) or self.job(*changes, status=status)
        known: dict[str, Any] = {"now": NOW, "job": job}
        return Observed(**known | fields)

    def active(self, *changes: str, status: dict[str, Any] | None = None, **fields: Any) -> Observed:
        """A job whose children are there, and its pods running."""
        job = fields.pop("job", None) or self.job(*changes, status=status or self.running_status())
        assert job.spec is not None
        known: dict[str, Any] = {
            "children": self.children(job),
            "pods": tuple(self.pod(index) for index in range(job.spec.nodes)),
            "polling": False,
        }
        return self.observed(job=job, **known | fields)

    def running_status(self, **fields: Any) -> dict[str, Any]:
        """The status of a job that runs."""
        kinds = ("Ready", "Suspended", "Complete", "Failed")
        conditions = [
            {
                "type": kind,
                "status": "True" if kind == "Ready" else "False",
                "reason": "PodsRunning" if kind == "Ready" else "NotFinished",
                "message": "All pods run.",
                "lastTransitionTime": self.stamp(-60),
                "observedGeneration": 1,
            }
            for kind in kinds
        ]
        known = {
            "observedGeneration": 1,
            "phase": "Running",
            "attempt": 1,
            "restarts": 0,
            "startTime": self.stamp(-100),
            "conditions": conditions,
        }
        return known | fields

    def ended_status(self, kind: str = "Complete", *, ago: float = 10) -> dict[str, Any]:
        """The status of a job that has ended."""
        status = self.running_status(
            phase="Succeeded" if kind == "Complete" else "Failed", completionTime=self.stamp(-ago)
        )
        for condition in status["conditions"]:
            if condition["type"] in {kind, "Ready"}:
                truth = "False" if condition["type"] == "Ready" and kind == "Failed" else "True"
                condition.update(status=truth, reason="Trained", message="Training is done.")
        return status

    def world(self, *changes: str, **fields: Any) -> World:
        """A world with a job that nobody has looked at."""
        return World(self, self.job(*changes), **fields)

    def running(self, *changes: str, **fields: Any) -> World:
        """A world with a job that runs."""
        world = self.world(*changes, **fields)
        world.look()
        assert world.job.spec is not None
        world.pods = tuple(self.pod(index) for index in range(world.job.spec.nodes))
        world.look()
        world.taken()
        return world


@dataclass
class World:
    """Carries out plans as the API server would, and counts what was written."""

    make: Make
    job: JobView
    polling: bool = False
    seconds: float = 0
    children: dict[Any, Child] = field(default_factory=dict)
    pods: tuple[PodView, ...] = ()
    report: Report | None = None
    answers: Answers = field(default_factory=Answers)
    writes: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def look(self) -> Plan:
        """Decide and carry out, until there is nothing more to do."""
        for _ in range(5):
            plan = self.decide()
            self._carry_out(plan)
            if plan == replace(Plan(), requeue_after=plan.requeue_after):
                return plan
        raise AssertionError(f"it never comes to rest: {self.writes}")

    def decide(self) -> Plan:
        owned = self.children.get("StatefulSet")
        observed = Observed(
            now=self.make.at(self.seconds),
            job=self.job,
            children=dict(self.children),
            pods=self.pods if owned else (),
            report=self.report,
            polling=self.polling,
            answers=self.answers,
        )
        return decide(observed, self.make.settings)

    def _carry_out(self, plan: Plan) -> None:
        for manifest in plan.apply:
            self.writes.append(manifest["kind"])
            uid = "set-uid" if manifest["kind"] == "StatefulSet" else f"{manifest['kind']}-uid"
            self.children[manifest["kind"]] = views.child(self.make.stored(manifest, uid))
        if plan.status is not None:
            self.writes.append(f"status {plan.status['phase']}")
            # As JSON, like on its way through the API server.
            self.job = replace(self.job, status=json.loads(json.dumps(plan.status)))
            self.events += [note.reason for note in plan.events]
        if plan.scale:
            self.writes.append(f"scale {plan.scale.replicas}")
            owned = self.children["StatefulSet"]
            assert owned.uid == plan.scale.uid
            self.children["StatefulSet"] = replace(owned, replicas=plan.scale.replicas)
        for child in plan.delete:
            self.writes.append(f"delete {child.kind}")
            del self.children[child.kind]
        if plan.delete_job:
            self.writes.append("delete job")
            self.job = replace(self.job, deleting=True)

    def change(self, *changes: str) -> None:
        self.job = self.make.job(*changes, status=dict(self.job.status), generation=self.job.generation + 1)

    def taken(self) -> list[str]:
        """What was written since the last time."""
        taken, self.writes = self.writes, []
        return taken

    def condition(self, kind: str) -> str:
        found = {one["type"]: one["status"] for one in self.job.status["conditions"]}
        return str(found.get(kind, "absent"))


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()
