"""What the operator is told when it starts: flags, with environment variables as their defaults."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LogFormat = Literal["json", "plain"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]

_PREFIX = "CPUFINETUNE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's settings.

    Attributes:
        namespaces: namespaces to serve; none means all.
        trainer_image: image of jobs that name none.
        allow_images: patterns, one of which must match the whole of an image that a job names.
        operator_namespace: where the operator itself runs, for the jobs' network policies; empty if unknown.
        workers: jobs that are looked at at the same time.
        poll_seconds: shortest time between two looks at a job's report.
        progress: read the reports of running jobs at all.
        resync_seconds: time after which every job is looked at again, whatever happened.
    """

    trainer_image: str
    namespaces: tuple[str, ...] = ()
    allow_images: tuple[re.Pattern[str], ...] = ()
    image_pull_policy: PullPolicy = "IfNotPresent"
    operator_namespace: str = ""
    workers: int = 8
    poll_seconds: float = 5.0
    progress: bool = True
    resync_seconds: float = 600.0
    port: int = 8080
    log_format: LogFormat = "json"


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the command line; what it leaves out comes from `CPUFINETUNE_*`, what that leaves out has a default.

    Raises:
        SystemExit: an argument is wrong, or was asked for help.
    """
    parser = _parser(environment)
    given = parser.parse_args(_from_environment(environment) + list(arguments))
    if not given.trainer_image:
        parser.error(f"--trainer-image or {_PREFIX}TRAINER_IMAGE must name the image that trains")
    return Settings(
        trainer_image=given.trainer_image,
        namespaces=tuple(dict.fromkeys(given.namespace)),
        allow_images=tuple(given.allow_image),
        image_pull_policy=given.image_pull_policy,
        operator_namespace=given.operator_namespace,
        workers=given.workers,
        poll_seconds=given.poll_seconds,
        progress=not given.no_progress,
        resync_seconds=given.resync_seconds,
        port=given.port,
        log_format=given.log_format,
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cpufinetune-operator",
        description="Run CpuFineTune jobs on a cluster.",
        epilog=f"Every flag has a default in the environment: --poll-seconds is {_PREFIX}POLL_SECONDS, and so on; "
        "flags that may be repeated take several values there, separated by blanks.",
    )
    add = parser.add_argument
    add("--namespace", action="append", default=[], help="namespace to serve; repeatable (default: all)")
    add("--trainer-image", default="", help="image of jobs that name none")
    add("--allow-image", action="append", default=[], type=_pattern, metavar="REGEX", help="images that a job may name")
    add("--image-pull-policy", choices=get_args(PullPolicy), default="IfNotPresent")
    add("--operator-namespace", default=environment.get("POD_NAMESPACE", ""), help="where this operator runs")
    add("--workers", type=_count, default=8, help="jobs looked at at the same time")
    add("--poll-seconds", type=_seconds, default=5.0, help="shortest time between two looks at a job's report")
    add("--no-progress", action="store_true", help="read no reports: status shows no steps, only the end")
    add("--resync-seconds", type=_seconds, default=600.0, help="look at every job again after this time")
    add("--port", type=_port, default=8080, help="port of /healthz, /readyz and /metrics; 0 takes any")
    add("--log-format", choices=get_args(LogFormat), default="json")
    return parser


def _from_environment(environment: Mapping[str, str]) -> list[str]:
    """The environment as arguments, to stand before those of the command line, which override them."""
    arguments = []
    for name in ("TRAINER_IMAGE", "IMAGE_PULL_POLICY", "OPERATOR_NAMESPACE", "WORKERS", "POLL_SECONDS"):
        arguments += _argument(environment, name)
    for name in ("RESYNC_SECONDS", "PORT", "LOG_FORMAT"):
        arguments += _argument(environment, name)
    for name in ("NAMESPACE", "ALLOW_IMAGE"):
        words = environment.get(_PREFIX + name, "").split()
        arguments += [f"{_flag(name)}={word}" for word in words]
    if environment.get(_PREFIX + "NO_PROGRESS", "").lower() in {"1", "true", "yes"}:
        arguments.append("--no-progress")
    return arguments


def _argument(environment: Mapping[str, str], name: str) -> list[str]:
    value = environment.get(_PREFIX + name, "")
    return [f"{_flag(name)}={value}"] if value else []


def _flag(name: str) -> str:
    return "--" + name.lower().replace("_", "-")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds above 0")
    return value


def _port(text: str) -> int:
    value = int(text)
    if value not in range(65536):
        raise argparse.ArgumentTypeError("must be a port")
    return value
