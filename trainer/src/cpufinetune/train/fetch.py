"""What the init container of a pod does: models and datasets of the hub become folders and files of the node.

So the trainer's container is offline and never sees the token of the hub.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import AttemptError, JobError, first_line
from cpufinetune.launch.places import FETCHED_DATA, FETCHED_MODEL
from cpufinetune.report.files import replace_text
from cpufinetune.train.data import sources
from cpufinetune.train.model import source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cpufinetune.job.document import Job

COMPLETE = "fetched.json"
# The hub's library itself tries for half a minute each time.
TRIES = 5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds
# Of the 4xx these alone may go away by themselves: a slow request, and too many of them.
PASSING = (408, 429)
REFUSED = range(400, 500)
ADVICE = "check name and revision; what is private or gated needs a token, which spec.hubTokenSecret names"
USE_FILES = "name another dataset or model, or convert this one to files on a claim"
HUB = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}


def fetch(job: Job, scratch: Path, token: str | None, say: Callable[[str], None]) -> None:
    """Fetch what the job names of the hub into `scratch`, if an earlier call has not; sets variables of this process.

    Raises:
        JobError: the hub refuses it, or it is not what a job can use.
        AttemptError: the hub cannot be reached.
    """
    key = _key(job)
    complete = scratch / COMPLETE
    if complete.is_file() and complete.read_text(encoding="utf-8") == key:
        say("everything is here already")
        return
    complete.unlink(missing_ok=True)
    # Read once, when the hub's library is imported. Its cache is of use until all is here, and no longer.
    cache = scratch / ".hub"
    os.environ.update(HUB, HF_HOME=str(cache), **({} if token is None else {"HF_TOKEN": token}))
    retry = Retry(say)
    if job.spec.model.name is not None:
        say(f"fetching model {job.spec.model.name}")
        retry(lambda: _fetch_model(job, scratch))
    if job.spec.dataset.name is not None:
        say(f"fetching dataset {job.spec.dataset.name}")
        retry(lambda: _fetch_data(job, scratch))
    shutil.rmtree(cache, ignore_errors=True)
    replace_text(complete, key)


def _key(job: Job) -> str:
    spec = job.spec
    parts = [asdict(spec.model), asdict(spec.dataset), spec.task.text, spec.task.label]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _fetch_model(job: Job, scratch: Path) -> None:
    # Under another name until it is whole; what a failed try has got, the next one keeps.
    unfinished, final = scratch / f".{FETCHED_MODEL}.fetching", scratch / FETCHED_MODEL
    source.fetch(job.spec.model, unfinished)
    source.locate(job.spec.model, unfinished)
    # What the hub's library noted to go on with.
    shutil.rmtree(unfinished / ".cache", ignore_errors=True)
    shutil.rmtree(final, ignore_errors=True)
    unfinished.rename(final)


def _fetch_data(job: Job, scratch: Path) -> None:
    unfinished, final = scratch / f".{FETCHED_DATA}.fetching", scratch / FETCHED_DATA
    cache = scratch / f".{FETCHED_DATA}.cache"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    columns = [*job.spec.task.text, job.spec.task.label]
    for split, name in sources.named_splits(job.spec.dataset.splits).items():
        table = sources.read_hub(job.spec.dataset, name, columns, cache)
        write_parquet(unfinished / f"{split}.parquet", table)
    shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(final, ignore_errors=True)
    unfinished.rename(final)


def write_parquet(path: Path, table: dict[str, list[Any]]) -> None:
    """Write columns; classes of a split that are partly unknown are numbers among names, and become text."""
    import pyarrow as pa  # noqa: PLC0415 - comes with `datasets`, as slow to import
    from pyarrow import parquet  # noqa: PLC0415

    parquet.write_table(pa.table({name: _alike(values) for name, values in table.items()}), path)


def _alike(values: Sequence[Any]) -> list[Any]:
    if not any(isinstance(value, str) for value in values):
        return list(values)
    return [value if value is None else str(value) for value in values]


@dataclass(frozen=True, slots=True)
class Retry:
    """Does something again while what it fails with may go away by itself."""

    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep

    def __call__(self, act: Callable[[], None]) -> None:
        """Do it.

        Raises:
            JobError: a human must change something.
            AttemptError: it failed too often.
        """
        pause = FIRST_PAUSE
        for again in reversed(range(TRIES)):
            try:
                act()
            except Exception as error:
                if lasting(error):
                    raise _explained(error) from error
                if not again:
                    raise AttemptError("HubUnreachable", first_line(error)) from error
                self.say(f"{first_line(error)}; trying again in {pause:.0f} s")
            else:
                return
            self.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


# Errors of the network come as OSError or as an HTTP client's own.
NETWORK_ERRORS = {"OSError", "TransportError", "HTTPError", "ClientError"}


def lasting(error: BaseException) -> bool:
    """Tell whether another try would fail alike: the hub has refused, or what it gave is of no use."""
    chain = list(_chain(error))
    codes = [code for each in chain if (code := _status(each)) is not None]
    if codes:
        return codes[-1] in REFUSED and codes[-1] not in PASSING
    if any(isinstance(each, OSError) and each.errno in {errno.ENOSPC, errno.EDQUOT} for each in chain):
        return True
    names = {kind.__name__ for each in chain for kind in type(each).__mro__}
    if names & {"DatasetNotFoundError", "DataFilesNotFoundError", "EmptyDatasetError"}:
        return True
    # With none of these it is about the content, such as a dataset that is a script, whatever the libraries raise.
    return not names & NETWORK_ERRORS


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None


def _explained(error: Exception) -> Exception:
    if any(isinstance(each, OSError) and each.errno in {errno.ENOSPC, errno.EDQUOT} for each in _chain(error)):
        return JobError("ScratchFull", f"the scratch volume is full: {first_line(error)}", "give nodes more room")
    if not isinstance(error, JobError):
        return JobError("HubContentUnusable", f"{type(error).__name__}: {first_line(error)}", USE_FILES)
    codes = [code for each in _chain(error) if (code := _status(each)) is not None]
    if codes and codes[-1] in {401, 403}:
        return JobError("HubRefused", f"{error.message} (HTTP {codes[-1]})", ADVICE)
    # `datasets` drops the response; and to those who may not see it, the hub denies what is private.
    unseen = codes or any(type(each).__name__ == "DatasetNotFoundError" for each in _chain(error))
    return JobError(error.reason, error.message, ADVICE) if unseen else error
