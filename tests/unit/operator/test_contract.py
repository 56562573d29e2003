"""What the operator shares with the trainer and the CRD by agreement, not by import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import kopf
import pytest

from cpufinetune.errors import ExitCode
from cpufinetune.job import document
from cpufinetune_operator import kinds, names, watches
from cpufinetune_operator.plan import fit

ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "transformers", "datasets", "numpy", "pandas")


def test_exit_codes_are_the_launchers() -> None:
    codes = {code.name: code.value for code in ExitCode}
    ours = {name.removeprefix("EXIT_"): value for name, value in vars(names).items() if name.startswith("EXIT_")}
    del ours["KILLED"]  # the kernel's
    assert ours.items() <= codes.items()


def test_the_kind_is_the_trainers() -> None:
    assert (names.API_VERSION, names.KIND) == (document.API_VERSION, document.KIND)


def test_phases_and_conditions_fit_the_crd() -> None:
    assert max(map(len, names.PHASES)) <= fit.field("phase")["maxLength"]
    assert {"progress", "layout", "ranks", "result", "attempt", "restarts"} <= set(fit.status_schema()["properties"])


def test_the_operator_loads_nothing_that_trains() -> None:
    code = (
        "import json, sys, cpufinetune_operator.__main__;"
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


PATHS = {
    "a collection of everything": (kinds.POD.path(None), "/api/v1/pods"),
    "a collection of a namespace": (kinds.STATEFUL_SET.path("ml"), "/apis/apps/v1/namespaces/ml/statefulsets"),
    "an object": (kinds.JOB.path("ml", "a"), "/apis/cpufinetune.dev/v1alpha1/namespaces/ml/cpufinetunes/a"),
}


@pytest.mark.parametrize(("path", "expected"), PATHS.values(), ids=PATHS)
def test_the_path_of(path: str, expected: str) -> None:
    assert path == expected


def test_kopf_writes_nothing_and_watches_only_what_is_ours() -> None:
    settings = watches.settings()
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    assert settings.queueing.worker_limit is None
    selectors = dict(settings.watching.label_selectors)
    assert len(selectors) == len(kinds.WATCHED) - 1
    assert set(selectors.values()) == {"app.kubernetes.io/managed-by=cpufinetune-operator"}


def test_kopf_copies_and_keeps_nothing_of_an_object() -> None:
    persistence = watches.settings().persistence
    body = kopf.Body({"spec": {"a": 1}, "metadata": {"name": "a"}})
    assert persistence.diffbase_storage.build(body=body) == {}
    assert persistence.diffbase_storage.fetch(body=body) is None
    essence = kopf.BodyEssence()
    assert persistence.progress_storage.clear(essence=essence) is essence


def test_every_watch_is_expected_to_show_signs_of_life() -> None:
    assert len(watches.expected(())) == len(kinds.WATCHED)
    assert len(watches.expected(("a", "b"))) == 2 * len(kinds.WATCHED)
