"""The variables that oneCCL is started with, and those that it would hang with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from cpufinetune.comms.ccl import environment, locate

ONECCL = locate.OneCcl(Path("/ccl/lib/libccl.so.1"), None, "CCL_ROOT", "2021.16.2", None)
INTERFACES = ("lo", "eth0")


@dataclass(frozen=True)
class Rank:
    cpus: tuple[int, ...]
    communication_cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layout:
    ranks: tuple[Rank, ...]


def variables(oneccl: locate.OneCcl = ONECCL) -> dict[str, str]:
    return environment.variables(oneccl, interface="eth0", local_rank=1, local_world_size=2, workers=[3, 7])


def test_every_rank_knows_its_place_and_all_workers() -> None:
    found = variables()
    assert (found["CCL_LOCAL_RANK"], found["CCL_LOCAL_SIZE"]) == ("1", "2")
    assert found["CCL_WORKER_AFFINITY"] == "3,7"
    assert found["FI_TCP_IFACE"] == found["CCL_KVS_IFACE"] == "eth0"
    assert (found["CCL_ATL_TRANSPORT"], found["FI_PROVIDER"], found["CCL_PROCESS_LAUNCHER"]) == ("ofi", "tcp", "none")


def test_libfabric_is_named_where_it_is_known() -> None:
    assert not {"CCL_OFI_LIBRARY_PATH", "FI_PROVIDER_PATH"} & set(variables())
    found = variables(locate.OneCcl(ONECCL.library, None, "", "", Path("/fabric/libfabric.so.1")))
    assert found["CCL_OFI_LIBRARY_PATH"] == "/fabric/libfabric.so.1"
    assert found["FI_PROVIDER_PATH"] == "/fabric"


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ((Rank((0, 1)), Rank((2, 3))), (1, 3)),
        ((Rank((0, 1), communication_cpus=(4,)), Rank((2, 3), communication_cpus=(5, 6))), (4, 6)),
        ((Rank((0,)),), (0,)),
    ],
)
def test_workers_have_a_core_of_their_own_or_share_the_last(ranks: tuple[Rank, ...], expected: tuple[int, ...]) -> None:
    assert environment.worker_cpus(cast("Any", Layout(ranks))) == expected


@pytest.mark.parametrize(
    "found",
    [{}, variables(), {"FI_TCP_IFACE": "lo"}, {"CCL_WORKER_AFFINITY": "0-3,7"}, {"CCL_WORKER_AFFINITY": "auto"}],
)
def test_what_works_is_let_through(found: dict[str, str]) -> None:
    environment.check(found, interfaces=INTERFACES, cpuset=range(8))


@pytest.mark.parametrize("name", ["FI_TCP_IFACE", "CCL_KVS_IFACE"])
@pytest.mark.parametrize("value", ["eth7", ""])
def test_an_interface_that_does_not_exist_is_refused(name: str, value: str) -> None:
    with pytest.raises(locate.CclError, match=f"^{name} is {value}, which does not exist here") as caught:
        environment.check({name: value}, interfaces=INTERFACES, cpuset=())
    assert (caught.value.reason, caught.value.fix) == ("NoInterface", "use eth0 or lo")


@pytest.mark.parametrize(("value", "outside"), [("3", 3), ("0,9", 9), ("0-5", 2), (" 1 , 4-5", 4)])
def test_a_core_of_somebody_else_is_refused(value: str, outside: int) -> None:
    with pytest.raises(locate.CclError, match=f"core {outside} is not one of this machine's or container's") as caught:
        environment.check({"CCL_WORKER_AFFINITY": value}, interfaces=(), cpuset=(0, 1))
    assert caught.value.reason == "WorkerOutsideCpuset"
