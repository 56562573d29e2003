"""Flags and environment."""

from __future__ import annotations

import pytest

from cpufinetune_operator.settings import Settings, parse

IMAGE = ["--trainer-image", "t:1"]


def test_defaults() -> None:
    assert parse(IMAGE, {}) == Settings(trainer_image="t:1")


def test_the_environment_gives_defaults_and_flags_win() -> None:
    environment = {
        "CPUFINETUNE_TRAINER_IMAGE": "t:2",
        "CPUFINETUNE_WORKERS": "3",
        "CPUFINETUNE_POLL_SECONDS": "9",
        "CPUFINETUNE_NO_PROGRESS": "true",
        "CPUFINETUNE_NAMESPACE": "a b a",
        "CPUFINETUNE_LOG_FORMAT": "plain",
        "POD_NAMESPACE": "ops",
    }
    found = parse(["--poll-seconds", "2"], environment)
    assert (found.trainer_image, found.workers, found.poll_seconds, found.progress) == ("t:2", 3, 2.0, False)
    assert (found.namespaces, found.log_format, found.operator_namespace) == (("a", "b"), "plain", "ops")


def test_lists_can_be_repeated() -> None:
    found = parse([*IMAGE, "--namespace", "a", "--namespace=b", "--allow-image", "x.*", "--allow-image=y"], {})
    assert found.namespaces == ("a", "b")
    assert [pattern.pattern for pattern in found.allow_images] == ["x.*", "y"]


WRONG = {
    "no image": [],
    "no workers": [*IMAGE, "--workers=0"],
    "time that stands still": [*IMAGE, "--poll-seconds=0"],
    "endless time": [*IMAGE, "--resync-seconds=inf"],
    "a pattern that is none": [*IMAGE, "--allow-image=("],
    "a port that is none": [*IMAGE, "--port=70000"],
    "a log format that is none": [*IMAGE, "--log-format=xml"],
    "a flag that is none": [*IMAGE, "--verbose"],
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG)
def test_refused_is(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments, {})
    assert caught.value.code == 2
    assert "cpufinetune-operator: error:" in capsys.readouterr().err
