from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field

import pytest

from cpufinetune.errors import AttemptError
from cpufinetune.world.peers import DnsResolver, LoopbackResolver, budget, host_names, own_address, wait_for_names

HOSTS = ("mrpc-0", "mrpc-1", "mrpc-2")


@dataclass
class LateResolver:
    """Knows `late` from its `tries`-th question on, and everybody else at once."""

    late: tuple[str, ...]
    tries: int
    asked: list[str] = field(default_factory=list)

    def resolve(self, host: str) -> str:
        self.asked.append(host)
        if host in self.late and self.asked.count(host) < self.tries:
            raise OSError(f"unknown host {host}")
        return f"10.0.0.{host[-1]}"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        pytest.param("{set}-{node}", HOSTS, id="simulated nodes"),
        pytest.param(
            "{set}-{node}.{set}.ml.svc.cluster.local.",
            tuple(f"mrpc-{node}.mrpc.ml.svc.cluster.local." for node in range(3)),
            id="pods have absolute names",
        ),
    ],
)
def test_hosts_are_named_by_a_pattern(pattern: str, names: tuple[str, ...]) -> None:
    assert host_names(pattern, "mrpc", 3) == names


@pytest.mark.parametrize(
    ("first", "host", "address"),
    [
        ("127.0.0.1", "mrpc-0", "127.0.0.1"),
        ("127.0.0.1", "mrpc-2", "127.0.0.3"),
        pytest.param("127.0.0.255", "mrpc-1", "127.0.1.0", id="carries over"),
    ],
)
def test_simulated_nodes_have_loopback_addresses_in_a_row(first: str, host: str, address: str) -> None:
    assert LoopbackResolver(HOSTS, first).resolve(host) == address


def test_an_unknown_simulated_node_is_an_os_error() -> None:
    with pytest.raises(OSError, match="unknown host other"):
        LoopbackResolver(HOSTS, "127.0.0.1").resolve("other")


def test_the_system_resolves_addresses_without_asking() -> None:
    assert DnsResolver().resolve("127.0.0.1") == "127.0.0.1"


def test_of_a_host_with_both_kinds_of_address_all_nodes_take_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(socket.AF_INET6, ("fd00::1", 0, 0, 0)), (socket.AF_INET, ("10.0.0.1", 0)), (socket.AF_INET, ("10.9", 0))]
    found = [(family, socket.SOCK_STREAM, 6, "", address) for family, address in both]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert DnsResolver().resolve("mrpc-0") == "10.0.0.1"
    found[:] = found[:1]
    assert DnsResolver().resolve("mrpc-0") == "fd00::1"


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 310), (8, 380), (100, 1300)])
def test_larger_worlds_wait_longer(nodes: int, seconds: float) -> None:
    assert budget(nodes) == seconds


@pytest.mark.parametrize(
    ("late", "tries", "said"),
    [
        pytest.param((), 1, [], id="all there"),
        pytest.param(
            ("mrpc-1",), 3, ["waiting for 1 of 3 hosts, for example mrpc-1"] * 2, id="one known at the third try"
        ),
        pytest.param(HOSTS, 2, ["waiting for 3 of 3 hosts, for example mrpc-0"], id="all known at the second try"),
    ],
)
def test_all_hosts_are_waited_for(late: tuple[str, ...], tries: int, said: list[str]) -> None:
    lines: list[str] = []
    addresses = asyncio.run(wait_for_names(HOSTS, LateResolver(late, tries), 60.0, lines.append))
    assert addresses == ("10.0.0.0", "10.0.0.1", "10.0.0.2")
    assert lines == said


@pytest.mark.parametrize(
    ("late", "named"),
    [
        pytest.param(("mrpc-1",), "mrpc-1", id="one"),
        pytest.param(("mrpc-0", "mrpc-2"), "mrpc-0, mrpc-2", id="several, this node included"),
    ],
)
def test_hosts_that_are_missing_when_time_is_up_are_named(late: tuple[str, ...], named: str) -> None:
    resolver = LateResolver(late, tries=2)
    with pytest.raises(AttemptError, match=f"no address for {named} after 0 s") as caught:
        asyncio.run(wait_for_names(HOSTS, resolver, 0.0, pytest.fail))
    assert caught.value.reason == "PeersMissing"
    assert "headless Service" in caught.value.fix
    assert sorted(resolver.asked) == list(HOSTS)


def test_of_many_missing_hosts_a_few_are_named() -> None:
    hosts = host_names("{set}-{node}", "mrpc", 9)
    with pytest.raises(AttemptError, match="no address for mrpc-0, mrpc-1, mrpc-2, mrpc-3, mrpc-4 after"):
        asyncio.run(wait_for_names(hosts, LateResolver(hosts, 2), 0.0, pytest.fail))


@dataclass
class MovingResolver:
    """Gives one answer after the other, the last one for ever; None is no answer."""

    answers: list[str | None]

    def resolve(self, host: str) -> str:
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if answer is None:
            raise OSError(f"unknown host {host}")
        return answer


def owner(address: str) -> str | None:
    return "eth0" if address == "10.0.0.5" else None


def test_the_own_name_is_waited_for_until_it_leads_here() -> None:
    lines: list[str] = []
    resolver = MovingResolver([None, "10.0.0.4", "10.0.0.5"])
    found = asyncio.run(own_address("mrpc-1", resolver, owner, 60.0, lines.append))
    assert found == ("10.0.0.5", "eth0")
    assert lines == [
        "waiting for the own name: mrpc-1 has no address",
        "waiting for the own name: mrpc-1 has the address 10.0.0.4 of another host",
    ]


@pytest.mark.parametrize(
    ("answer", "what"), [(None, "no address"), ("10.0.0.4", "the address 10.0.0.4 of another host")]
)
def test_an_own_name_that_leads_nowhere_is_given_up(answer: str | None, what: str) -> None:
    with pytest.raises(AttemptError, match=f"mrpc-1 has {what} after 0 s") as caught:
        asyncio.run(own_address("mrpc-1", MovingResolver([answer]), owner, 0.0, pytest.fail))
    assert caught.value.reason == "OwnNameUnknown"
