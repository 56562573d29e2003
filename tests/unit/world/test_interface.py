from __future__ import annotations

import ipaddress
import pathlib

import pytest

from cpufinetune.world.interface import addresses, interface_of


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1", "lo"),
        pytest.param("127.80.3.2", "lo", id="all of 127.0.0.0/8 is this host"),
        pytest.param("192.0.2.77", None, id="an IPv4 address for documentation"),
        pytest.param("2001:db8::77", None, id="an IPv6 address for documentation"),
    ],
)
def test_the_interface_of_an_address_is_found(address: str, name: str | None) -> None:
    assert interface_of(address) == name


def test_the_interface_of_the_ipv6_loopback_is_found() -> None:
    here = pathlib.Path("/proc/net/if_inet6").exists() and any(owned.version == 6 for _, owned in addresses())
    assert interface_of("::1") == ("lo" if here else None)


def test_every_address_that_is_listed_leads_to_an_interface_that_has_it() -> None:
    found = list(addresses())
    assert ("lo", ipaddress.ip_interface("127.0.0.1/8")) in found
    for name, owned in found:
        assert interface_of(str(owned.ip)) in {other for other, one in found if one.ip == owned.ip}
        assert pathlib.Path("/sys/class/net", name).exists()
    assert interface_of("fe80::1%lo") is None or ("fe80::1" in {str(owned.ip) for _, owned in found})
