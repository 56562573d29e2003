"""Names, addresses and claims of clusters, with a folder of the test's own for all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from localcluster import addresses, plan
from localcluster.plan import ClusterError

MINE = plan.Plan("any", 64)
HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
HOLDER = "import sys; from localcluster import plan\nwith plan.alone(sys.argv[1]): print(flush=True); sys.stdin.read()"

root = pytest.mark.skipif(os.geteuid() != 0, reason="clusters are root's")


@pytest.fixture(name="home")
def fixture_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of all clusters, not there yet."""
    monkeypatch.setattr(plan, "HOME", tmp_path / "home")
    return tmp_path / "home"


def number(address: str) -> str:
    """Return an address as the kernel's table has it."""
    value = int.from_bytes(bytes(int(part) for part in address.split(".")), sys.byteorder)
    return f"{value:08X}"


@pytest.mark.parametrize(
    ("target", "mask", "used"),
    [
        pytest.param("0.0.0.0", "0.0.0.0", set(), id="the default route"),  # noqa: S104 - an address
        pytest.param("192.168.64.0", "255.255.255.0", set(), id="another network"),
        pytest.param("10.63.0.0", "255.255.0.0", set(), id="the one before"),
        pytest.param("10.70.3.0", "255.255.255.0", {70}, id="a part of one"),
        pytest.param("10.100.0.0", "255.254.0.0", {100, 101}, id="two"),
        pytest.param("10.96.0.0", "255.224.0.0", set(range(96, 128)), id="half of them"),
        pytest.param("10.0.0.0", "255.0.0.0", set(range(64, 128)), id="all of them"),
    ],
)
def test_routes_tell_which_networks_are_used(target: str, mask: str, used: set[int]) -> None:
    line = f"eth0\t{number(target)}\t00000000\t0001\t0\t0\t0\t{number(mask)}\t0\t0\t0\n"
    assert addresses.routed(HEADER + line) == used
    assert addresses.routed(HEADER) == set()


def test_a_network_is_nobody_elses_and_unrouted_if_there_is_one() -> None:
    first = plan.choose_net("any", set(), set())
    second = plan.choose_net("any", {first}, set())
    assert first != second
    assert plan.choose_net("any", set(), {first}) == second
    everything = set(range(64, 128))
    assert plan.choose_net("any", {first}, everything) == second
    with pytest.raises(ClusterError, match="all 64 networks are taken"):
        plan.choose_net("any", everything, set())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, addresses.ALL, id="none"),
        pytest.param({"NO_PROXY": "a.example"}, f"a.example,{addresses.ALL}", id="the user's"),
        pytest.param({"no_proxy": "b.example"}, f"b.example,{addresses.ALL}", id="the user's in small letters"),
    ],
)
def test_no_proxy_leads_to_a_cluster(before: dict[str, str], after: str) -> None:
    assert addresses.direct({**before, "HOME": "/"}) == {"HOME": "/", "NO_PROXY": after, "no_proxy": after}


@pytest.mark.parametrize(
    ("count", "cpus", "shares"),
    [
        pytest.param(2, {0, 1}, [(1,), (0,)], id="two of two"),
        pytest.param(2, {0, 1, 2, 3}, [(1, 3), (0, 2)], id="two of four"),
        pytest.param(2, {4, 6, 9}, [(4, 9), (6,)], id="two of three with gaps"),
        pytest.param(1, {0, 1}, [(1,)], id="one leaves one for what is not pinned"),
        pytest.param(2, set(range(64)), [tuple(range(1, 64, 2)), tuple(range(0, 64, 2))], id="two of many"),
    ],
)
def test_nodes_share_out_processors(count: int, cpus: set[int], shares: list[tuple[int, ...]]) -> None:
    assert [node.exclusive for node in plan.workers(MINE, count, frozenset(cpus))] == shares


@root
def test_a_cluster_keeps_its_network(home: Path) -> None:
    nets = {name: plan.plan(name).net for name in ("a", "b", "c")}
    assert len(set(nets.values())) == 3
    assert {name: plan.plan(name).net for name in nets} == nets
    assert json.loads((home / "nets.json").read_text(encoding="utf-8")) == nets
    assert home.stat().st_mode & 0o777 == 0o700


@root
def test_the_folder_of_all_clusters_is_nobody_elses(home: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    home.symlink_to(tmp_path / "other")
    with pytest.raises(ClusterError, match="is not a folder of root's"):
        plan.home()
    home.unlink()
    home.mkdir()
    os.chown(home, 65534, 65534)
    with pytest.raises(ClusterError, match="is not a folder of root's"):
        plan.home()
    os.chown(home, 0, 0)
    home.chmod(0o777)
    assert plan.home().stat().st_mode & 0o777 == 0o700


@root
def test_another_user_leaves_nothing_that_is_in_roots_way(home: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    os.seteuid(65534)
    try:
        with pytest.raises(ClusterError, match="run this as root"):
            plan.plan("a")
    finally:
        os.seteuid(0)
    assert not home.exists()


@root
def test_tests_take_another_name_where_one_is_claimed_or_kept(home: Path) -> None:
    with plan.claimed("a") as first, plan.claimed("a") as second:
        assert (first, second) == ("a", "a-2")
    (home / "a").mkdir()
    (home / "a" / plan.KEPT).touch()
    with plan.claimed("a") as other:
        assert other == "a-2"
    with plan.alone("a"), pytest.raises(ClusterError, match="another process"), plan.alone("a"):
        pass


@root
def test_a_claim_ends_with_its_process(home: Path) -> None:
    assert not home.exists()
    program = f"from pathlib import Path; from localcluster import plan; plan.HOME = Path({str(home)!r})\n{HOLDER}"
    environment = {**os.environ, "PYTHONPATH": str(Path(plan.__file__).parents[1])}
    command = [sys.executable, "-c", program, "a"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        with pytest.raises(ClusterError, match="another process"), plan.alone("a"):
            pass
        holder.kill()
    with plan.alone("a"):
        pass
