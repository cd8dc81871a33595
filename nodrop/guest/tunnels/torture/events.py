# SPDX-License-Identifier: GPL-2.0-only
"""What can happen to a tunnel, as commands; every event is undone by others.

What an event chooses it chooses by its number from the plan. A command may fail, since what it
is about may be gone by another event: that is counted, by kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nodrop.guest.tunnels.torture import place
from nodrop.guest.tunnels.torture.place import FAR, GATE4, GATE6, GATE_DEVICE, NEAR, SUB, VRF
from nodrop.guest.tunnels.torture.plan import Event
from nodrop.guest.tunnels.torture.victims import NAME, Victim

T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """What is run.

    Attributes:
        netns: where; HOME is where the tunnel is.
        words: of the program.
        program: ip or tc.
    """

    netns: str
    words: str
    program: str = "ip"


@dataclass(frozen=True)
class Act:
    """An event as commands.

    Attributes:
        undo: what undoes it.
        heal: undo it by restoring the place and the tunnel.
    """

    do: Sequence[Command]
    undo: Sequence[Command] = ()
    heal: bool = False


HOME = "HOME"
"""Stands for the namespace of the tunnel."""

_TO4, _TO6 = f"{place.THERE4}/32", f"{place.THERE6}/128"


def pick(event: Event, choices: Sequence[T], shift: int = 0) -> T:
    """Return what an event chooses; another shift, another choice."""
    return choices[(event.value >> shift) % len(choices)]


def near(*commands: str) -> list[Command]:
    """Commands of ip, below the tunnel's near end."""
    return [Command(NEAR, words) for words in commands]


def far(*commands: str) -> list[Command]:
    """The same, at the far end."""
    return [Command(FAR, words) for words in commands]


def home(*commands: str) -> list[Command]:
    """The same, where the tunnel is."""
    return [Command(HOME, words) for words in commands]


def tc(*commands: str, netns: str = NEAR) -> list[Command]:
    """Commands of tc."""
    return [Command(netns, words, "tc") for words in commands]


_BACK = near(*place.routes())


def _route_gone(_event: Event, _victim: Victim) -> Act:
    return Act(near(f"route delete {_TO4}", f"-6 route delete {_TO6}"), _BACK)


def _route_other(event: Event, _victim: Victim) -> Act:
    return Act(near(*place.routes(pick(event, (1, 2)))), _BACK)


def _route_bad(event: Event, _victim: Victim) -> Act:
    kind = pick(event, ("blackhole", "unreachable", "prohibit", "throw"))
    commands = (f"route replace {kind} {_TO4}", f"-6 route replace {kind} {_TO6}")
    undo = (f"route delete {kind} {_TO4}", f"-6 route delete {kind} {_TO6}")
    return Act(near(*commands), [*near(*undo), *_BACK])


def _nexthop(event: Event, _victim: Victim) -> Act:
    first, second = pick(event, ((0, 1), (0, 2), (2, 1)))
    commands = [
        f"nexthop replace id 4 via {GATE4[first]} dev {GATE_DEVICE[first]}",
        f"-6 nexthop replace id 6 via {GATE6[first]} dev {GATE_DEVICE[first]}",
        f"route replace {_TO4} nhid 4",
        f"-6 route replace {_TO6} nhid 6",
        # The routes stay, and go another way.
        f"nexthop replace id 4 via {GATE4[second]} dev {GATE_DEVICE[second]}",
        f"-6 nexthop replace id 6 via {GATE6[second]} dev {GATE_DEVICE[second]}",
    ]
    if pick(event, (True, False), 8):
        commands += ["nexthop replace id 4 blackhole", "-6 nexthop replace id 6 blackhole"]
    # With the nexthop the routes go that use it.
    return Act(near(*commands), [*near("nexthop delete id 4", "nexthop delete id 6"), *_BACK])


def _nexthop_group(event: Event, _victim: Victim) -> Act:
    groups = pick(event, ("41/42", "41,3/42,1", "42"))
    commands = [
        f"nexthop replace id 41 via {GATE4[0]} dev {GATE_DEVICE[0]}",
        f"nexthop replace id 42 via {GATE4[2]} dev {GATE_DEVICE[2]}",
        f"nexthop replace id 40 group {groups}",
        f"route replace {_TO4} nhid 40",
        "nexthop replace id 40 group 41",
    ]
    undo = [f"nexthop delete id {number}" for number in (41, 40, 42)]
    return Act(near(*commands), [*near(*undo), *_BACK])


def _multipath(_event: Event, _victim: Victim) -> Act:
    hops = [f"nexthop via {GATE4[at]} dev {GATE_DEVICE[at]}" for at in (0, 2)]
    hops6 = [f"nexthop via {GATE6[at]} dev {GATE_DEVICE[at]}" for at in (0, 2)]
    commands = (
        f"route replace {_TO4} {' '.join(hops)}",
        f"-6 route replace {_TO6} {' '.join(hops6)}",
    )
    return Act(near(*commands), [*near(f"-6 route flush root {_TO6}"), *_BACK])


def _route_mtu(event: Event, _victim: Victim) -> Act:
    mtu = pick(event, ("600", "lock 600", "lock 1290", "1400", "68"))
    return Act(
        near(f"{place.routes()[0]} mtu {mtu}", f"{place.routes()[1]} mtu {mtu}"),
        _BACK,
    )


def _flush_cache(_event: Event, _victim: Victim) -> Act:
    return Act(near("route flush cache", "-6 route flush cache"))


def _rule(event: Event, _victim: Victim) -> Act:
    action = pick(event, ("prohibit", "unreachable", "blackhole", "table 77"))
    rules = (f"rule add pref 9 to {_TO4} {action}", f"-6 rule add pref 9 to {_TO6} {action}")
    other = place.routes(2)
    table = [f"{words} table 77" for words in other]
    undo = ("rule delete pref 9", "-6 rule delete pref 9", "route flush table 77")
    return Act(near(*table, *rules), near(*undo))


def _source_gone(event: Event, _victim: Victim) -> Act:
    which = pick(event, ("source", "lower"))
    if which == "source":
        gone = (
            f"address delete {place.HERE4}/32 dev lo",
            f"address delete {place.HERE6}/128 dev lo",
        )
    else:
        gone = ("address flush dev ndlow0", "address delete fd00:8::1/64 dev ndlow1")
    return Act(near(*gone), heal=True)


def _link_down(event: Event, _victim: Victim) -> Act:
    device = pick(event, place.LOWER)
    act = pick(event, (near, far), 8)
    commands = act(f"link set {device} down")
    if pick(event, (True, False), 16):
        return Act([*commands, *act(f"link set {device} up")], heal=True)
    return Act(commands, heal=True)


def _lower_gone(event: Event, _victim: Victim) -> Act:
    return Act(near(f"link delete {pick(event, place.LOWER)}"), heal=True)


def _lower_mtu(event: Event, _victim: Victim) -> Act:
    mtu = pick(event, (600, 1200, 1280, 1400, 4000))
    return Act(near(f"link set ndlow0 mtu {mtu}"), heal=True)


def _vrf(event: Event, _victim: Victim) -> Act:
    device = pick(event, ("ndlow0", "ndlow1"))
    commands = [
        f"link add {VRF} type vrf table 78",
        f"link set {VRF} up",
        f"link set {device} master {VRF}",
    ]
    if pick(event, (True, False), 8):
        # Back by a route that goes from one table to the other.
        commands += [
            f"route replace {_TO4} via {GATE4[0]} dev {device} vrf {VRF}",
            f"route replace {_TO4} dev {VRF}",
            f"-6 route replace {_TO6} dev {VRF}",
        ]
    return Act(near(*commands), [*near(f"link delete {VRF}")], heal=True)


def _nested(event: Event, _victim: Victim) -> Act:
    # A device that keeps the routes of the packets in its qdisc.
    delay = pick(event, ("20ms", "100ms", "300ms"))
    slow = f"qdisc replace dev {SUB} root netem delay {delay} limit 400"
    do = [*tc(slow), *near(f"route replace {_TO4} dev {SUB} src {place.HERE4}")]
    if pick(event, (True, False), 8):
        # Away while packets wait: what tc takes to start is enough for some to come.
        do += [*tc(f"qdisc show dev {SUB}"), *_BACK, *tc(f"qdisc show dev {SUB}")]
    return Act(do, [*_BACK, *tc(f"qdisc delete dev {SUB} root")])


def _tunnel_down(event: Event, _victim: Victim) -> Act:
    if pick(event, (True, False)):
        return Act(home(f"link set {NAME} down", f"link set {NAME} up"), heal=True)
    return Act(home(f"link set {NAME} down"), heal=True)


def _tunnel_gone(event: Event, _victim: Victim) -> Act:
    act = pick(event, (home, home, far))
    return Act(act(f"link delete {NAME}"), heal=True)


def _tunnel_change(event: Event, victim: Victim) -> Act:
    if not victim.changes:
        return _tunnel_mtu(event, victim)
    change, back = pick(event, victim.changes), victim.changes[-1]
    return Act(
        home(f"link change {NAME} type {_filled(change)}"),
        home(f"link change {NAME} type {_filled(back)}"),
        # Not every kind takes back all that it was told.
        heal=True,
    )


def _filled(words: str) -> str:
    return words.format(
        here4=place.HERE4, here6=place.HERE6, there4=place.THERE4, there6=place.THERE6
    )


def _tunnel_mtu(event: Event, _victim: Victim) -> Act:
    mtu = pick(event, (700, 1280, 1400, 1500, 3000))
    return Act(home(f"link set {NAME} mtu {mtu}"), home(f"link set {NAME} mtu 1400"))


def _neigh(event: Event, _victim: Victim) -> Act:
    how = pick(event, ("gone", "failed", "wrong", "flush"))
    which = pick(event, (0, 1, 2), 8)
    pairs = [(GATE4[which], GATE_DEVICE[which]), (GATE6[which], GATE_DEVICE[which])]
    if how == "flush":
        return Act(near("neigh flush all"))
    if how == "gone":
        return Act(near(*(f"neigh delete {ip} dev {device}" for ip, device in pairs)))
    if how == "failed":
        commands = [f"neigh replace {ip} dev {device} nud failed" for ip, device in pairs]
        return Act(near(*commands), near("neigh flush all"))
    mac = "lladdr 02:00:00:00:99:99"
    commands = [f"neigh replace {ip} {mac} dev {device} nud permanent" for ip, device in pairs]
    undo = [f"neigh delete {ip} dev {device}" for ip, device in pairs]
    return Act(near(*commands), near(*undo))


def _neigh_waits(_event: Event, _victim: Victim) -> Act:
    # Nobody answers: packets wait in the neighbour's queue until it has failed.
    commands = [*far("link set ndlow0 arp off"), *near("neigh flush all")]
    return Act(commands, [*far("link set ndlow0 arp on"), *near("neigh flush all")])


def _netem(event: Event, _victim: Victim) -> Act:
    what = pick(
        event,
        (
            "delay 20ms 10ms reorder 25% limit 500",
            "delay 100ms limit 300",
            "delay 5ms duplicate 20% limit 500",
            "delay 10ms corrupt 5% loss 5% limit 500",
            "rate 10mbit limit 100",
        ),
    )
    devices = pick(event, (("ndlow0",), ("ndlow1",), place.LOWER), 8)
    do = tc(*(f"qdisc replace dev {device} root netem {what}" for device in devices))
    return Act(do, tc(*(f"qdisc delete dev {device} root" for device in devices)))


def _qdisc(event: Event, _victim: Victim) -> Act:
    what = pick(
        event,
        (
            "pfifo limit 1",
            "tbf rate 20mbit burst 20k limit 50k",
            "fq_codel limit 20",
            "fq",
            "cake bandwidth 20mbit",
            "noqueue",
        ),
    )
    return Act(tc(f"qdisc replace dev ndlow0 root {what}"), tc("qdisc delete dev ndlow0 root"))


def _tunnel_qdisc(event: Event, _victim: Victim) -> Act:
    what = pick(event, ("netem delay 10ms limit 100", "fq_codel", "pfifo limit 10"))
    do = tc(f"qdisc replace dev {NAME} root {what}", netns=HOME)
    return Act(do, tc(f"qdisc delete dev {NAME} root", netns=HOME))


def _tc_acts(event: Event, _victim: Victim) -> Act:
    what = pick(
        event,
        (
            "action drop random determ drop 2",
            "action skbedit mark 7",
            "action mirred egress redirect dev ndlow1",
            "action mirred egress mirror dev ndlow1",
        ),
    )
    do = ("qdisc replace dev ndlow0 clsact", f"filter add dev ndlow0 egress matchall {what}")
    return Act(tc(*do), tc("qdisc delete dev ndlow0 clsact"))


def _marks(_event: Event, _victim: Victim) -> Act:
    # Tunnels over UDP ask for their route with the packet's mark.
    do = tc(
        f"qdisc replace dev {NAME} clsact",
        f"filter add dev {NAME} egress matchall action skbedit mark 7",
        netns=HOME,
    )
    rules = ("rule add pref 8 fwmark 7 lookup 79", f"{place.routes(2)[0]} table 79")
    undo = [*tc(f"qdisc delete dev {NAME} clsact", netns=HOME)]
    return Act([*do, *near(*rules)], [*undo, *near("rule delete pref 8", "route flush table 79")])


def _txqueuelen(event: Event, _victim: Victim) -> Act:
    length = pick(event, (0, 1, 5, 2000))
    do = [
        *near(f"link set ndlow0 txqueuelen {length}", f"link set ndlow1 txqueuelen {length}"),
        *home(f"link set {NAME} txqueuelen {length}"),
    ]
    return Act(do, near("link set ndlow0 txqueuelen 1000", "link set ndlow1 txqueuelen 1000"))


Make = Callable[[Event, Victim], Act]
KINDS: Mapping[str, Make] = {
    "route_gone": _route_gone,
    "route_other": _route_other,
    "route_bad": _route_bad,
    "nexthop": _nexthop,
    "nexthop_group": _nexthop_group,
    "multipath": _multipath,
    "route_mtu": _route_mtu,
    "flush_cache": _flush_cache,
    "rule": _rule,
    "source_gone": _source_gone,
    "link_down": _link_down,
    "lower_gone": _lower_gone,
    "lower_mtu": _lower_mtu,
    "vrf": _vrf,
    "nested": _nested,
    "tunnel_down": _tunnel_down,
    "tunnel_gone": _tunnel_gone,
    "tunnel_change": _tunnel_change,
    "tunnel_mtu": _tunnel_mtu,
    "neigh": _neigh,
    "neigh_waits": _neigh_waits,
    "netem": _netem,
    "qdisc": _qdisc,
    "tunnel_qdisc": _tunnel_qdisc,
    "tc_acts": _tc_acts,
    "marks": _marks,
    "txqueuelen": _txqueuelen,
}
"""By name."""
