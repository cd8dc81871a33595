# SPDX-License-Identifier: GPL-2.0-only
r"""Where a tunnel is tortured: two ways from its near end to its far end.

::

    ndapart or ndnear                          ndfar
      senders -> ndtun  = = = = = = = = = = = = ndtun -> nobody
                   |                              |
    ndnear       lo: HERE                       lo: THERE
                   |                              |
                 ndlow0 .4.1 ----- veth ----- ndlow0 .4.2, .4.3
                 ndlow1 .8.1 ----- veth ----- ndlow1 .8.2
                 ndsub: ipip over ndlow1, a way that keeps the packets' routes

All is set up by commands that may be repeated: repeating them undoes what happened.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from nodrop.guest.command import TOOL_TIMEOUT_S, ip_batch, netns_path, tool
from nodrop.guest.failure import GuestError
from nodrop.guest.netns import inside

NEAR, FAR, APART = "ndnear", "ndfar", "ndapart"
LOWER = ("ndlow0", "ndlow1")
SUB, VRF = "ndsub", "ndvrf"
HERE4, HERE6 = "198.18.7.1", "fd00:7::1"
THERE4, THERE6 = "198.18.6.1", "fd00:6::1"
GATE4 = ("198.18.4.2", "198.18.4.3", "198.18.8.2")
GATE6 = ("fd00:4::2", "fd00:4::3", "fd00:8::2")
GATE_DEVICE = ("ndlow0", "ndlow0", "ndlow1")
MTU = 1500

_IPV6 = "-6 "
_FAILED = re.compile(r"^Command failed -:(\d+)", re.MULTILINE)
_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv4/conf/all/accept_redirects": "1",
    "net/ipv4/conf/default/accept_redirects": "1",
    "net/ipv6/conf/default/accept_redirects": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/route/min_pmtu": "552",
    # Neighbours that failed are to be asked again soon.
    "net/ipv4/neigh/default/retrans_time_ms": "50",
    "net/ipv6/neigh/default/retrans_time_ms": "50",
    "net/ipv4/xfrm4_gc_thresh": "64",
}


def lines(netns: str, commands: Sequence[str], program: str = "ip") -> list[str]:
    """Run commands of ip or tc, whatever becomes of them; return why some failed.

    Args:
        netns: the namespace; that it is gone is one failure.
    """
    failed = []
    # A batch is of one family.
    for six, group in groupby(commands, lambda words: words.startswith(_IPV6)):
        failed += _batch(netns, [words.removeprefix(_IPV6) for words in group], program, six)
    return failed


def _batch(netns: str, commands: Sequence[str], program: str, six: bool) -> list[str]:
    done = subprocess.run(
        [program, *(["-6"] if six else []), "-n", netns, "-force", "-batch", "-"],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S * 3,
        check=False,
    )
    if done.returncode == 0:
        return []
    failed = [int(number) for number in _FAILED.findall(done.stderr)]
    if not failed:
        return [done.stderr.strip() or f"{program} exited with {done.returncode}"]
    told = [line for line in done.stderr.splitlines() if not _FAILED.match(line)]
    names = [commands[number - 1] for number in failed if number <= len(commands)]
    return [f"{name}: {told[at] if at < len(told) else '?'}" for at, name in enumerate(names)]


def routes(gate: int = 0) -> list[str]:
    """Return the commands that route to the far end through one of three gateways."""
    device = GATE_DEVICE[gate]
    return [
        f"route replace {THERE4}/32 via {GATE4[gate]} dev {device} src {HERE4}",
        f"-6 route replace {THERE6}/128 via {GATE6[gate]} dev {device} src {HERE6}",
    ]


def write(netns: str, settings: dict[str, str]) -> None:
    """Set sysctls of a namespace, where the kernel has them."""
    with inside(netns_path(netns)):
        for name, value in settings.items():
            with suppress(OSError):
                (Path("/proc/sys") / name).write_text(value + "\n")


def _lower_near() -> list[str]:
    wanted = []
    for at, name in enumerate(LOWER):
        net = (4, 8)[at]
        wanted += [
            f"link add {name} type veth peer name {name} netns {FAR}",
            f"link set {name} nomaster",
            f"link set {name} mtu {MTU} txqueuelen 1000 arp on up",
            f"address replace 198.18.{net}.1/24 dev {name}",
            f"address replace fd00:{net}::1/64 dev {name} nodad",
        ]
    return wanted


def _lower_far() -> list[str]:
    return [
        f"link set {LOWER[0]} mtu {MTU} arp on up",
        f"link set {LOWER[1]} mtu {MTU} arp on up",
        f"address replace 198.18.4.2/24 dev {LOWER[0]}",
        f"address replace 198.18.4.3/24 dev {LOWER[0]}",
        f"address replace fd00:4::2/64 dev {LOWER[0]} nodad",
        f"address replace fd00:4::3/64 dev {LOWER[0]} nodad",
        f"address replace 198.18.8.2/24 dev {LOWER[1]}",
        f"address replace fd00:8::2/64 dev {LOWER[1]} nodad",
        f"address replace {THERE4}/32 dev lo",
        f"address replace {THERE6}/128 dev lo nodad",
        f"route replace {HERE4}/32 via 198.18.4.1 dev {LOWER[0]} src {THERE4}",
        f"-6 route replace {HERE6}/128 via fd00:4::1 dev {LOWER[0]} src {THERE6}",
    ]


def _near_end() -> list[str]:
    return [
        f"address replace {HERE4}/32 dev lo",
        f"address replace {HERE6}/128 dev lo nodad",
        f"link add {SUB} type ipip local 198.18.8.1 remote 198.18.8.2",
        f"link set {SUB} txqueuelen 100 up",
        "neigh flush all",
        *routes(),
        "route flush cache",
        "-6 route flush cache",
    ]


def restore() -> None:
    """Take away what is in the way of the tunnel's packets, and :func:`mend`."""
    cleaned = [
        "rule flush",
        "rule add pref 32766 lookup main",
        "rule add pref 32767 lookup default",
        "xfrm policy flush",
        "xfrm state flush",
        f"route flush root {THERE4}/32",
        "nexthop flush",
        f"link delete {VRF}",
        "-6 rule flush",
        "-6 rule add pref 32766 lookup main",
        f"-6 route flush root {THERE6}/128",
    ]
    lines(NEAR, cleaned)
    lines(FAR, ["xfrm policy flush", "xfrm state flush", "neigh flush all"])
    kinds = ("root", "clsact")
    qdiscs = [f"qdisc delete dev {name} {kind}" for name in (*LOWER, SUB) for kind in kinds]
    lines(NEAR, qdiscs, "tc")
    failed = mend()
    if failed:
        raise GuestError(f"the place below the tunnel cannot be restored: {failed[0]}")


def mend() -> list[str]:
    """Make devices, addresses and routes below the tunnel; return what did not work."""
    lines(NEAR, _lower_near())
    # A far device that is down keeps the near one from getting its routes.
    lines(FAR, _lower_far())
    failed = lines(NEAR, _near_end())
    return [why for why in failed if "File exists" not in why and "No such" not in why]


@contextmanager
def place(*, apart: bool) -> Iterator[None]:
    """The namespaces and what is in them; whatever is left at the end is deleted."""
    names = [NEAR, FAR, APART] if apart else [NEAR, FAR]
    ip_batch([f"netns add {name}" for name in names])
    try:
        for name in names:
            write(name, _SYSCTLS)
            ip_batch(["link set lo up"], netns=name)
        lines(FAR, [f"link add {SUB} type ipip local 198.18.8.2 remote 198.18.8.1"])
        restore()
        lines(FAR, [f"link set {SUB} up"])
        yield
    finally:
        for name in names:
            delete(name)


def delete(netns: str) -> None:
    """Delete a namespace, if it is still there."""
    with suppress(GuestError):
        tool(["ip", "netns", "delete", netns])


_LOOK = (
    "ip -s -d link",
    "ip address",
    "ip route show table all",
    "ip -6 route show table all",
    "ip route show cache",
    "ip rule",
    "ip neigh",
    "ip nexthop",
    "ip -s xfrm state",
    "ip xfrm policy",
    "tc -s qdisc",
)


def look() -> str:
    """Return all that may be in the packets' way."""
    found = []
    for netns in (NEAR, FAR, APART):
        if not netns_path(netns).exists():
            continue
        for words in _LOOK:
            program, *rest = words.split()
            found.append(f"## {netns}: {words}")
            with suppress(GuestError):
                found.append(tool([program, "-n", netns, *rest]))
        with inside(netns_path(netns)), suppress(OSError):
            found += [Path("/proc/net", name).read_text() for name in ("snmp", "netstat")]
    return "\n".join(found)
