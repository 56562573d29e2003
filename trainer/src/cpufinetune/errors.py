"""The errors that reach a user, and the exit codes of every command.

CpuFineTuneError            reason, message, fix
├── JobError                needs a human: bad document, data, model or output; never retried   exit 2
└── AttemptError            this attempt is over, the next may do better                        exit 75
    └── Interrupted         asked to stop; a checkpoint was written                             exit 143
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `cpufinetune` and of its ranks."""

    OK = 0
    GAVE_UP = 1  # more failed attempts than runPolicy.backoffLimit
    BAD_INPUT = 2  # the document, data, model or output needs a human
    DEADLINE = 3  # runPolicy.activeDeadlineSeconds ran out
    RETRY = 75  # a rank asks for another attempt (EX_TEMPFAIL)
    INTERRUPTED = 143  # stopped by SIGTERM or Ctrl-C after a checkpoint


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class CpuFineTuneError(Exception):
    """Base of all errors shown without a traceback: `reason` is CamelCase, `fix` says what to do."""

    exit_code = ExitCode.GAVE_UP

    def __init__(self, reason: str, message: str, fix: str = "") -> None:
        super().__init__(f"{message} ({fix})" if fix else message)
        self.reason = reason
        self.message = message
        self.fix = fix


class JobError(CpuFineTuneError):
    """A human must change something; a retry would fail again."""

    exit_code = ExitCode.BAD_INPUT


class AttemptError(CpuFineTuneError):
    """This attempt cannot go on; another one may."""

    exit_code = ExitCode.RETRY


class Interrupted(AttemptError):  # noqa: N818 - nothing went wrong
    """The run was asked to stop and has written a checkpoint."""

    exit_code = ExitCode.INTERRUPTED
