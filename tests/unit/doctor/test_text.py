from __future__ import annotations

import json

from cpufinetune.doctor.check import note, ok, problem
from cpufinetune.doctor.text import as_json, as_text

CHECKS = [ok("CPU", "Xeon"), note("huge pages", "never", "time", "madvise"), problem("torch", "none", "all", "install")]


def test_text_is_aligned_and_ends_with_the_verdict() -> None:
    assert as_text(CHECKS).splitlines() == [
        "ok       CPU         Xeon",
        "note     huge pages  never",
        "                     costs: time",
        "                     cure:  madvise",
        "problem  torch       none",
        "                     costs: all",
        "                     cure:  install",
        "",
        "not fit for training: torch; 1 note",
    ]
    assert as_text(CHECKS[:1]).endswith("\n\nfit for training; 0 notes")


def test_json_has_every_field() -> None:
    report = json.loads(as_json(CHECKS))
    assert report["healthy"] is False
    assert report["checks"][1] == {
        "name": "huge pages",
        "status": "note",
        "value": "never",
        "cost": "time",
        "cure": "madvise",
    }
    assert json.loads(as_json(CHECKS[:2]))["healthy"] is True
