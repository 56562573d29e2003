"""Network interfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.doctor.check import note, ok

if TYPE_CHECKING:
    from cpufinetune.doctor.check import Check
    from cpufinetune.doctor.facts import Facts, Interface

LOOPBACK = "lo"
# Gradients of 100 million parameters in fp32, which each rank of a pair sends in a step.
GRADIENTS = 400e6
SLOW = 10_000  # Mbit/s
BITS = 8


def examine(facts: Facts) -> list[Check]:
    """Judge the way to other nodes."""
    network = facts.network
    if network.refusal:
        cost = "ranks on several nodes cannot find the interface of their address"
        return [note("network", f"unknown: {network.refusal}", cost, "allow netlink sockets in the seccomp profile")]
    chosen = next((one for one in network.interfaces if one.name == network.chosen), None)
    if chosen is None or chosen.name == LOOPBACK:
        cost = "this node reaches no other; jobs within it (`cpufinetune run`) do not care"
        return [note("network", "only the loopback", cost, "give the pod a network, unless one node is all there is")]
    return [_judge(chosen, [one.name for one in network.interfaces if one.name not in {LOOPBACK, chosen.name}])]


def _judge(chosen: Interface, others: list[str]) -> Check:
    addresses = ", ".join(str(address) for address in chosen.addresses if not address.is_link_local)
    speed = "speed unknown" if chosen.speed is None else f"{chosen.speed} Mbit/s"
    mtu = "MTU unknown" if chosen.mtu is None else f"MTU {chosen.mtu}"
    value = f"{chosen.name}: {addresses or 'link-local only'}; {mtu}, {speed}"
    if others:
        value += f" (also there: {', '.join(others)})"
    if chosen.speed is not None and chosen.speed < SLOW:
        seconds = GRADIENTS * BITS / (chosen.speed * 1e6)
        cost = f"averaging the gradients of 100 M parameters takes at least {seconds:.1f} s a step"
        return note("network", value, cost, "10 Gbit/s or more; fewer nodes; larger batches or low-rank adapters")
    return ok("network", value)
