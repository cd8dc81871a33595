# SPDX-License-Identifier: GPL-2.0-only
"""Explanations of the kernel's drop reasons, with advice, from reasons.ini.

Reasons differ between kernels: many that 6.1 reports as NOT_SPECIFIED have a name later. So a rule
may also match the function. The first rule that matches applies.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from configparser import ConfigParser
from dataclasses import dataclass

from nodrop.enums import StrEnum
from nodrop.trace.tracers import Site


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
        reasons: matches the whole reason; None: any.
        functions: matches the start of the function's name; None: any.
        way: direction; None: derived from the function, or unknown.
        meaning: a sentence.
        advice: what to do; "": nothing.
    """

    reasons: re.Pattern[str] | None
    functions: re.Pattern[str] | None
    way: Way | None
    meaning: str
    advice: str

    def fits(self, site: Site) -> bool:
        return (not self.reasons or self.reasons.fullmatch(site.reason) is not None) and (
            not self.functions or self.functions.match(site.function) is not None
        )


_DATA = ConfigParser(delimiters=("=",), interpolation=None)
_DATA.read_string((pkgutil.get_data("nodrop.trace", "reasons.ini") or b"").decode())
_FUNCTIONS = _DATA["functions"]


def _sections(kind: str) -> dict[str, dict[str, str]]:
    """Return the sections of a kind by name; texts of several lines become one."""
    return {
        name.partition(" ")[2]: {key: " ".join(text.split()) for key, text in section.items()}
        for name, section in _DATA.items()
        if name.startswith(kind)
    }


def _rule(
    meaning: str, reasons: str = "", functions: str = "", way: str = "", advice: str = ""
) -> Rule:
    return Rule(
        reasons=re.compile(reasons) if reasons else None,
        functions=re.compile(_FUNCTIONS.get(functions, functions)) if functions else None,
        way=Way(way) if way else None,
        meaning=meaning,
        advice=advice,
    )


RULES = tuple(_rule(**rule) for rule in _sections("rule ").values())
_CAUSES = _sections("cause ")
CAUSES = {cause: entry["why"] for cause, entry in _CAUSES.items()}
"""nodrop's causes of drops: why the ring dropped."""
_RING_RULES = {
    cause: _rule(
        f"The device's ring was full, and {entry['why']}.",
        "FULL_RING",
        "tun_xmit",
        Way.TRANSMIT,
        entry["advice"],
    )
    for cause, entry in _CAUSES.items()
    if "advice" in entry
}
"""Rules for a full ring whose cause nodrop counts."""
_WAYS = (
    (
        Way.TRANSMIT,
        "{tun_xmit}|{core_xmit}|{qdisc}|dev_hard_start_xmit|dev_direct_xmit"
        r"|ip6?_(finish_)?output|neigh_|arp_solicit|qdisc_|pfifo_|fq_|tbf_|htb_",
    ),
    (
        Way.RECEIVE,
        "{write}|__netif_receive|netif_r|enqueue_to_backlog|ip6?_(rcv|forward|local|protocol)|ipv6_"
        "|tcp_v[46]_rcv|tcp_(rcv|data)|__?udp[46]?_|icmp|arp_|ip_list_rcv|sk_filter_trim",
    ),
)


def explain(site: Site, causes: Mapping[str, int] | None = None) -> Rule | None:
    """Return the rule for a drop; None: there is none.

    Args:
        causes: nodrop's own drops by cause, which are more specific than the kernel's FULL_RING.
    """
    cause = max(causes, key=causes.__getitem__) if causes else ""
    if cause in _RING_RULES and causes and causes[cause] and _RING_RULES[cause].fits(site):
        return _RING_RULES[cause]
    return next((rule for rule in RULES if rule.fits(site)), None)


def way(site: Site) -> Way | None:
    """Return the direction of the packet; None: unknown."""
    for direction, functions in _WAYS:
        if re.match(functions.format(**_FUNCTIONS), site.function):
            return direction
    rule = explain(site)
    return rule.way if rule else None
