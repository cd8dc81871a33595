# SPDX-License-Identifier: GPL-2.0-only
"""What the usual drops mean, and what can be done: our words for the kernel's reasons.

Reasons differ between kernels: what 6.1 calls NOT_SPECIFIED has a name of its own later, so
that the function counts as well. The first rule that fits is the one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from nodrop.trace.model import Site


class Way(StrEnum):
    """Which way a packet was going."""

    TRANSMIT = "transmit"
    """From this machine to the device (and its reader)."""
    RECEIVE = "receive"
    """From the device (and its writer) to this machine."""


@dataclass(frozen=True)
class Rule:
    """What a drop means.

    Attributes:
        reasons: pattern of the kernel's reason, as a whole; "": any.
        way: None: the function tells, or nobody.
        meaning: a sentence.
        advice: what to do; "" when there is nothing to do.
        functions: pattern of how the function's name begins; "": any.
    """

    reasons: str
    way: Way | None
    meaning: str
    advice: str = ""
    functions: str = ""

    def fits(self, site: Site) -> bool:
        """Whether it tells of a place."""
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
        "Let nodrop hold the packets in the qdisc (nodrop install, nodrop set). A larger "
        "txqueuelen only delays them.",
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
        "Nobody has the queue open, or the device is down.",
        "Start the program that reads the device; one that detached a queue must attach it again.",
    ),
    Rule(
        "TAP_TXFILTER",
        TX,
        "The application asked for certain addresses only (TUNSETTXFILTER); this one is not among "
        "them.",
        "Nothing is wrong unless the packet was for the application.",
    ),
    Rule(
        "TAP_FILTER|SOCKET_FILTER",
        TX,
        "A filter that the application attached dropped it (TUNATTACHFILTER, TUNSETFILTEREBPF).",
        "That is the application's wish; look into its settings.",
        functions="(tun|tap)_",
    ),
    Rule(
        "SKB_UCOPY_FAULT|HDR_TRUNC|NOMEM|SKB_TRIM|SKB_CSUM",
        TX,
        "The packet could not be made ready for the reader: no memory, or it cannot be copied.",
        "See the kernel's log and free memory.",
        functions=_TUN_XMIT,
    ),
    Rule(
        "SKB_UCOPY_FAULT|HDR_TRUNC|NOMEM|NOT_SPECIFIED|INVALID_PROTO|PKT_TOO_SMALL|SKB_TRIM|",
        RX,
        "The application wrote something that is no packet, or a cut-off one.",
        "See the application's log; with IFF_VNET_HDR both ends must agree on the header's size.",
        functions=_WRITE,
    ),
    Rule(
        "",
        TX,
        "The reader's call failed after it had taken the packet: a buffer too small or not there.",
        "See the reader's log; its buffer must hold the MTU and the headers.",
        functions="(tun|tap)_(do_read|recvmsg|put_user|chr_read|ring_recv)",
    ),
    Rule(
        "QUEUE_PURGE|NOT_SPECIFIED|",
        None,
        "The queue was emptied while packets waited: the reader closed it, or its size changed.",
        "Look whether the reader restarts.",
        functions=r"(tun|tap)_(queue_purge|detach|queue_resize|put_)"
        r"|__?skb_(queue_purge|array_destroy)|ptr_ring_",
    ),
    Rule(
        "NOT_SPECIFIED|",
        TX,
        "The driver dropped it and does not say why: a full ring (before 5.18), or no reader.",
        "Compare with the queue's reader: nodrop status.",
        functions=_TUN_XMIT,
    ),
    Rule(
        "XDP", None, "An XDP program dropped it.", "See which: ip link show dev DEV, bpftool net."
    ),
    Rule(
        "TC_EGRESS|TC_INGRESS|TC_COOKIE_ERROR|TC_CHAIN_NOTFOUND|TC_RECLASSIFY_LOOP",
        None,
        "A filter or action of tc dropped it.",
        "See which: tc -s filter show dev DEV ingress (or egress).",
    ),
    Rule(
        "(QDISC_)?CONGESTED|QDISC_BURST_DROP|(QDISC_)?L4S_\\w+",
        TX,
        "The qdisc told a sender to slow down (CoDel, PIE or RED): packets had waited too long.",
        "That is its work. Many at once: the reader is slow.",
    ),
    Rule(
        "(QDISC_)?(OVERLIMIT|MAXFLOWS|BAND_LIMIT|FLOW_LIMIT|HORIZON_LIMIT|FLOOD_PROTECTION)",
        TX,
        "The qdisc was full, or one flow had more than its part of it.",
        "Senders that do not slow down (UDP) lose packets at any limit; see tc -s qdisc.",
    ),
    Rule(
        "QDISC_\\w+",
        TX,
        "The qdisc dropped it: over its limit, or its AQM (CoDel) told a sender to slow down.",
        "That is its work; tc -s qdisc show dev DEV tells which. Senders that do not slow down "
        "(UDP) lose packets at any limit.",
    ),
    Rule(
        "NOT_SPECIFIED|",
        TX,
        "The qdisc dropped it, most likely its AQM (CoDel): packets had waited too long.",
        "That is its work. Many at once: the reader is slow.",
        functions=_QDISC,
    ),
    Rule(
        "NETFILTER_DROP",
        None,
        "A firewall rule dropped it.",
        "See which: nft list ruleset, iptables -vnL.",
    ),
    Rule("SECURITY_HOOK|BPF_CGROUP_EGRESS", None, "A security module or cgroup forbids it."),
    Rule(
        "CPU_BACKLOG",
        RX,
        "The queue of the CPU that receives was full (netdev_max_backlog).",
        "Raise net.core.netdev_max_backlog, or let the writer use more queues.",
    ),
    Rule(
        "IP_RPFILTER",
        RX,
        "The way back to the sender does not lead through this device (rp_filter).",
        "Add the route, or set net.ipv4.conf.DEV.rp_filter to 2.",
    ),
    Rule(
        "IP_INNOROUTES|IP_INADDRERRORS|IP_LOCAL_SOURCE|IP_INVALID_(SOURCE|DEST)|IP_LOCALNET",
        RX,
        "This machine has no route for a packet that came by the device, or does not forward.",
        "See ip route, and net.ipv4.ip_forward.",
    ),
    Rule("IP_OUTNOROUTES", TX, "There is no route to where it should go.", "See ip route."),
    Rule(
        "NEIGH_\\w+",
        TX,
        "The next hop's hardware address is not known: nobody answers (ARP, neighbour discovery).",
        "See ip neigh show dev DEV.",
    ),
    Rule(
        "NO_SOCKET|TCP_CLOSE|TCP_RESET",
        RX,
        "It came in for a port where nobody listens (any more).",
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
        "TCP had no use for it, such as a packet that came twice.",
        "A few are normal.",
    ),
    Rule(
        "OTHERHOST|UNICAST_IN_L2_MULTICAST|UNHANDLED_PROTO|IP_NOPROTO|IPV6DISABLED",
        RX,
        "It was not for this machine, or of a protocol that nobody here takes.",
        "A few are normal: neighbour discovery and multicast to a machine without IPv6.",
    ),
    Rule(
        "(IP|TCP|UDP|ICMP)_CSUM|IP_INHDR|PKT_TOO_SMALL|SKB_CSUM|HDR_TRUNC",
        RX,
        "A damaged packet: a wrong checksum or a header that cannot be right.",
        "See what writes to the device, and its checksum offload.",
    ),
    Rule("PKT_TOO_BIG", None, "It is larger than the MTU.", "Compare both ends' MTU."),
    Rule(
        "SKB_GSO_SEG|SKB_BAD_GSO",
        TX,
        "A large packet could not be cut into pieces.",
        "Try without: ethtool -K DEV tso off gso off.",
    ),
    Rule("NOMEM|PFMEMALLOC", None, "There was no memory.", "See the kernel's log."),
    Rule("RECURSION_LIMIT", TX, "A loop of tunnels.", "See ip route get."),
    Rule("QUEUE_PURGE", None, "A queue was thrown away: a device, socket or qdisc went."),
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
        "there is no qdisc that could hold packets",
        "tc qdisc replace dev DEV root fq_codel",
    ),
    "off": ("nodrop is switched off for it", "nodrop set DEV backpressure on"),
    "foreign": (
        "the kernel's own vhost_net, which reads it, wakes no sender",
        "Load nodrop's vhost_net as well: 'nodrop install' says who has to be restarted.",
    ),
    "guard": (
        "the reader is stalled: it has taken nothing for guard_ms",
        "Find out why the program that has it open does not read, or restart it.",
    ),
    "unheld": ("nobody could have waited: they were forwarded, copied, or another guest's", ""),
    "full": ("more senders wait than the ring has room for", ""),
    "rest": ("segments behind one that was lost", ""),
    "xdp": ("XDP frames found no free slot", ""),
    "purged": ("they were in the ring when its reader left", ""),
    "unclaimed": ("no known cause; please report it", ""),
}
"""nodrop's drops by cause, as docs/design.md has them, and what to do about a full ring."""

RING_RULES = {
    cause: Rule(
        "FULL_RING", TX, f"The device's ring was full, and {why}.", advice, functions=_TUN_XMIT
    )
    for cause, (why, advice) in CAUSES.items()
    if advice
}
"""What a full ring means where nodrop counts the cause."""


def explain(site: Site, causes: Mapping[str, int] | None = None) -> Rule | None:
    """Return what a drop means; None: we have no words for it.

    Args:
        causes: nodrop's own drops by cause, which tell more of a full ring than the kernel does.
    """
    cause = max(causes, key=causes.__getitem__) if causes else ""
    if cause in RING_RULES and causes and causes[cause] and RULES[0].fits(site):
        return RING_RULES[cause]
    return next((rule for rule in RULES if rule.fits(site)), None)


def way(site: Site) -> Way | None:
    """Return which way the packet was going; None: it cannot be told."""
    for found, pattern in _WAYS:
        if pattern.match(site.function):
            return found
    rule = explain(site)
    return rule.way if rule else None
