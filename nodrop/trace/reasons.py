# SPDX-License-Identifier: GPL-2.0-only
"""Explanations of the kernel's drop reasons, with advice.

Reasons differ between kernels: many that 6.1 reports as NOT_SPECIFIED have a name later. So a rule
may also match the function. The first rule that matches applies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from nodrop.trace.tracer import Site


class Way(StrEnum):
    """Direction of a packet."""

    TRANSMIT = "transmit"
    """From this machine to the device and its reader."""
    RECEIVE = "receive"
    """From the device and its writer to this machine."""


@dataclass(frozen=True)
class Rule:
    """The explanation of a drop.

    Attributes:
        reasons: regular expression for the whole reason; "": any.
        way: direction; None: derived from the function, or unknown.
        meaning: a sentence.
        advice: what to do; "": nothing.
        functions: regular expression for the start of the function's name; "": any.
    """

    reasons: str
    way: Way | None
    meaning: str
    advice: str = ""
    functions: str = ""

    def fits(self, site: Site) -> bool:
        """Return whether the rule applies to a site."""
        return (not self.reasons or _pattern(self.reasons).fullmatch(site.reason) is not None) and (
            not self.functions or _pattern(self.functions).match(site.function) is not None
        )


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


_TUN_XMIT = "(tun|tap)_(net_xmit|handle_frame)"
_WRITE = "(tun|tap)_(get_user|chr_write|sendmsg|xdp_one|build_skb|rx_)|napi_"
_CORE_XMIT = r"__dev_xmit_skb|__dev_queue_xmit|sch_direct_xmit|validate_xmit|\w+_start_xmit"
_QDISC = r"__dev_xmit_skb|__tcf_kfree_skb_list|\w+_(enqueue|dequeue)|drop_func|codel_|net_tx_action"
TX, RX = Way.TRANSMIT, Way.RECEIVE

RULES = (
    Rule(
        "FULL_RING",
        TX,
        "The device's ring was full: its reader is slower than its senders.",
        "Use nodrop's driver, which lets packets wait in the qdisc (nodrop install, nodrop set). "
        "A larger txqueuelen only delays them.",
        functions=_TUN_XMIT,
    ),
    Rule("FULL_RING", TX, "The ring of the receiving driver was full: its reader is too slow."),
    Rule(
        "DEV_READY",
        RX,
        "A program wrote a packet while the device was down.",
        "Set the device up: ip link set DEV up.",
        functions="(tun|tap)_get_user",
    ),
    Rule(
        "DEV_READY",
        TX,
        "No program has the queue open, or the device is down.",
        "Start the program that reads the device; if it detached a queue, it must attach it again.",
    ),
    Rule(
        "TAP_TXFILTER",
        TX,
        "The application only accepts certain addresses (TUNSETTXFILTER), and not this one.",
        "This is normal, unless the packet was for the application.",
    ),
    Rule(
        "TAP_FILTER|SOCKET_FILTER",
        TX,
        "A filter of the application dropped it (TUNATTACHFILTER, TUNSETFILTEREBPF).",
        "Check the application's settings.",
        functions="(tun|tap)_",
    ),
    Rule(
        "SKB_UCOPY_FAULT|HDR_TRUNC|NOMEM|SKB_TRIM|SKB_CSUM",
        TX,
        "The packet could not be prepared for the reader: no memory, or it cannot be copied.",
        "See the kernel's log, and free memory.",
        functions=_TUN_XMIT,
    ),
    Rule(
        "SKB_UCOPY_FAULT|HDR_TRUNC|NOMEM|NOT_SPECIFIED|INVALID_PROTO|PKT_TOO_SMALL|SKB_TRIM|",
        RX,
        "The application wrote an invalid or truncated packet.",
        "See the application's log; with IFF_VNET_HDR, the header's size must match the device's.",
        functions=_WRITE,
    ),
    Rule(
        "",
        TX,
        "The reader's call failed after it took the packet: its buffer was too small or invalid.",
        "See the reader's log; its buffer must hold the MTU and the headers.",
        functions="(tun|tap)_(do_read|recvmsg|put_user|chr_read|ring_recv)",
    ),
    Rule(
        "QUEUE_PURGE|NOT_SPECIFIED|",
        None,
        "The queue was purged with packets in it: the reader closed or detached it.",
        "Check whether the reader restarts.",
        functions=r"(tun|tap)_(queue_purge|ptr_free|detach|queue_resize|put_)"
        r"|__?skb_(queue_purge|array_destroy)|ptr_ring_",
    ),
    Rule(
        "NOT_SPECIFIED|",
        TX,
        "The driver dropped it without a reason: a full ring (before Linux 5.18), or no reader.",
        "Check with nodrop status that the device has an owner.",
        functions=_TUN_XMIT,
    ),
    Rule("XDP", None, "An XDP program dropped it.", "Find it: ip link show dev DEV, bpftool net."),
    Rule(
        "TC_EGRESS|TC_INGRESS|TC_COOKIE_ERROR|TC_CHAIN_NOTFOUND|TC_RECLASSIFY_LOOP",
        None,
        "A filter or action of tc dropped it.",
        "Find it: tc -s filter show dev DEV ingress (or egress).",
    ),
    Rule(
        "(QDISC_)?CONGESTED|QDISC_BURST_DROP|(QDISC_)?L4S_\\w+",
        TX,
        "The qdisc's AQM (CoDel, PIE or RED) dropped it to make a sender slow down.",
        "This is normal. Many such drops mean that the reader is slow.",
    ),
    Rule(
        "(QDISC_)?(OVERLIMIT|MAXFLOWS|BAND_LIMIT|FLOW_LIMIT|HORIZON_LIMIT|FLOOD_PROTECTION)",
        TX,
        "The qdisc was full, or one flow exceeded its share of it.",
        "Senders that do not slow down (UDP) lose packets at any limit; see tc -s qdisc.",
    ),
    Rule(
        "QDISC_\\w+",
        TX,
        "The qdisc dropped it: its limit, or its AQM (CoDel) to make a sender slow down.",
        "This is normal; tc -s qdisc show dev DEV shows which. Senders that do not slow down "
        "(UDP) lose packets at any limit.",
    ),
    Rule(
        "NOT_SPECIFIED|",
        TX,
        "The qdisc dropped it, most likely its AQM (CoDel): packets had waited too long.",
        "This is normal. Many such drops mean that the reader is slow.",
        functions=_QDISC,
    ),
    Rule(
        "NETFILTER_DROP",
        None,
        "A firewall rule dropped it.",
        "Find it: nft list ruleset, iptables -vnL.",
    ),
    Rule("SECURITY_HOOK|BPF_CGROUP_EGRESS", None, "A security module or a cgroup forbids it."),
    Rule(
        "CPU_BACKLOG",
        RX,
        "The backlog queue of the receiving CPU was full (netdev_max_backlog).",
        "Raise net.core.netdev_max_backlog, or let the writer use more queues.",
    ),
    Rule(
        "IP_RPFILTER",
        RX,
        "The route back to the sender does not use this device (rp_filter).",
        "Add the route, or set net.ipv4.conf.DEV.rp_filter to 2.",
    ),
    Rule(
        "IP_INNOROUTES|IP_INADDRERRORS|IP_LOCAL_SOURCE|IP_INVALID_(SOURCE|DEST)|IP_LOCALNET",
        RX,
        "This machine has no route for a packet from the device, or does not forward.",
        "See ip route, and net.ipv4.ip_forward.",
    ),
    Rule("IP_OUTNOROUTES", TX, "There is no route to its destination.", "See ip route."),
    Rule(
        "NEIGH_\\w+",
        TX,
        "The next hop's hardware address is unknown: ARP or neighbour discovery got no answer.",
        "See ip neigh show dev DEV.",
    ),
    Rule(
        "NO_SOCKET|TCP_CLOSE|TCP_RESET",
        RX,
        "No socket listens on its port (any more).",
    ),
    Rule(
        "SOCKET_RCVBUFF|SOCKET_BACKLOG|PROTO_MEM",
        RX,
        "A program on this machine does not read its socket fast enough.",
        "Raise its buffer (SO_RCVBUF, net.core.rmem_max); the device is not the cause.",
    ),
    Rule(
        "TCP_(OLD|OFO|OVER|ZERO|RFC|ACK|TOO|INVALID|FLAGS|ABORT|LISTEN|FAST)\\w*",
        RX,
        "TCP discarded it, for example as a duplicate.",
        "A few are normal.",
    ),
    Rule(
        "OTHERHOST|UNICAST_IN_L2_MULTICAST|UNHANDLED_PROTO|IP_NOPROTO|IPV6DISABLED",
        RX,
        "It was not for this machine, or of an unsupported protocol.",
        "A few are normal: neighbour discovery and multicast to a machine without IPv6.",
    ),
    Rule(
        "(IP|TCP|UDP|ICMP)_CSUM|IP_INHDR|PKT_TOO_SMALL|SKB_CSUM|HDR_TRUNC",
        RX,
        "The packet was damaged: a wrong checksum or an invalid header.",
        "Check the program that writes to the device, and its checksum offload.",
    ),
    Rule("PKT_TOO_BIG", None, "It is larger than the MTU.", "Compare the MTU of both ends."),
    Rule(
        "SKB_GSO_SEG|SKB_BAD_GSO",
        TX,
        "A large packet could not be segmented (GSO).",
        "Try without: ethtool -K DEV tso off gso off.",
    ),
    Rule("NOMEM|PFMEMALLOC", None, "There was no memory.", "See the kernel's log."),
    Rule("RECURSION_LIMIT", TX, "A loop of tunnels.", "See ip route get."),
    Rule("QUEUE_PURGE", None, "A queue was purged: a device, socket or qdisc was deleted."),
)

_WAYS = (
    (TX, _pattern(f"{_TUN_XMIT}|{_CORE_XMIT}|{_QDISC}|dev_hard_start_xmit|dev_direct_xmit")),
    (TX, _pattern(r"ip6?_(finish_)?output|neigh_|arp_solicit|qdisc_|pfifo_|fq_|tbf_|htb_")),
    (
        RX,
        _pattern(
            f"{_WRITE}"
            r"|__netif_receive|netif_r|enqueue_to_backlog|ip6?_(rcv|forward|local|protocol)|ipv6_"
            r"|tcp_v[46]_rcv|tcp_(rcv|data)|__?udp[46]?_|icmp|arp_|ip_list_rcv|sk_filter_trim"
        ),
    ),
)


CAUSES = {
    "noqueue": (
        "there is no qdisc to queue packets",
        "tc qdisc replace dev DEV root fq_codel",
    ),
    "off": ("backpressure is off for the device", "nodrop set DEV backpressure on"),
    "foreign": (
        "the stock vhost_net, which reads it, wakes no sender",
        "Load nodrop's vhost_net, too: 'nodrop install' reports what to restart.",
    ),
    "guard": (
        "the reader is stalled: it does not read, or is too slow for guard_ms",
        "Find out what keeps the program that has the device open from reading, or restart it.",
    ),
    "unheld": ("no sender could wait: packets were forwarded, copied, or another guest's", ""),
    "full": ("the blocked senders' frames fill the ring", ""),
    "rest": ("segments behind a dropped one", ""),
    "xdp": ("XDP frames found no free slot", ""),
    "bypass": ("they were sent past the qdisc, and the ring was full", ""),
    "purged": ("they were in the ring of a queue that was closed or detached", ""),
    "unclaimed": ("the cause is unknown; please report a bug", ""),
}
"""nodrop's causes of drops (docs/design.md): meaning, and advice for a full ring."""

RING_RULES = {
    cause: Rule(
        "FULL_RING", TX, f"The device's ring was full, and {why}.", advice, functions=_TUN_XMIT
    )
    for cause, (why, advice) in CAUSES.items()
    if advice
}
"""Rules for a full ring whose cause nodrop counts."""


def explain(site: Site, causes: Mapping[str, int] | None = None) -> Rule | None:
    """Return the rule for a drop; None: there is none.

    Args:
        causes: nodrop's own drops by cause, which are more specific than the kernel's FULL_RING.
    """
    cause = max(causes, key=causes.__getitem__) if causes else ""
    if cause in RING_RULES and causes and causes[cause] and RULES[0].fits(site):
        return RING_RULES[cause]
    return next((rule for rule in RULES if rule.fits(site)), None)


def way(site: Site) -> Way | None:
    """Return the direction of the packet; None: unknown."""
    for found, pattern in _WAYS:
        if pattern.match(site.function):
            return found
    rule = explain(site)
    return rule.way if rule else None
