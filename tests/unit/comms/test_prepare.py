import time
from pathlib import Path

import pytest

from cpufinetune.comms.ccl.locate import CclError
from cpufinetune.comms.choice import Choice
from cpufinetune.comms.prepare import Search

NOWHERE = "CCL_ROOT leads to /nonexistent, which has no lib/libccl.so.1"
CURE = "point CCL_ROOT at a oneCCL installation, or unset it"
LONGEST = 30.0

pytestmark = [
    pytest.mark.usefixtures("_nowhere"),
    # Newer Pythons warn of threads, of which numpy has some; the search runs nothing that needs them.
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCL_ROOT", "/nonexistent")


def look_until_ended(search: Search) -> None:
    deadline = time.monotonic() + LONGEST
    while search.pid is not None and time.monotonic() < deadline:
        search.check()
        time.sleep(0.01)


def test_a_job_that_insists_is_told_while_it_prepares(tmp_path: Path) -> None:
    search = Search.begin("CCL", 2, tmp_path)
    with pytest.raises(CclError) as caught:
        look_until_ended(search)
    assert (caught.value.message, caught.value.fix) == (f"spec.node.backend is CCL: {NOWHERE}", CURE)


def test_any_other_takes_gloo_and_keeps_the_cure(tmp_path: Path) -> None:
    found = Search.begin("Auto", 2, tmp_path).finish()
    assert found == Choice("gloo", NOWHERE, fix=CURE) == Choice.read(tmp_path)
    assert found.explained == f"{NOWHERE}; {CURE}"


def test_one_that_has_been_looked_at_can_still_be_finished(tmp_path: Path) -> None:
    search = Search.begin("Auto", 2, tmp_path)
    look_until_ended(search)
    assert search.finish().backend == "gloo"
