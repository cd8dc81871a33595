# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.tunnels.same STOCK SERIES``: do two kernels send the same packets?

Both are files of ``nodrop.guest.tunnels.record``. Exit status 0: they do; 1: differences are
named; what may differ is in ``nodrop.guest.tunnels.masked``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.guest.tunnels.kinds import BEARERS, KINDS, Kind
from nodrop.guest.tunnels.masked import Masked, Masker
from nodrop.guest.tunnels.packets import Vnet
from nodrop.guest.tunnels.wire import Seen

_WHERE = ("out", "back", "forwarded-back")
_MOST = 20
_DATA = 1000
"""Bytes; a TCP packet without data is shorter."""
_TIMED = ("Icmp6OutMLDv2Reports", "Ip6In", "Icmp6In", "ndbelow0.rx_")
"""Counters that the other namespaces change when they like, with what they multicast."""
_IGMP, _HOPS, _ICMPV6 = 2, 0, 58
_MLD_OR_ROUTER = frozenset((131, 132, 133, 143))


@dataclass(frozen=True)
class Difference:
    """Something that two records tell differently.

    Attributes:
        step: its name.
        what: differs.
        stock: what one says.
        series: what the other says.
    """

    step: str
    what: str
    stock: str
    series: str

    def __str__(self) -> str:
        return f"{self.step}: {self.what}\n  stock:  {self.stock}\n  series: {self.series}"


def _seen(frames: Sequence[Sequence[str]]) -> list[Seen]:
    return [Seen(Vnet.unpack(bytes.fromhex(v)), bytes.fromhex(data)) for v, data in frames]


def _by_itself(seen: Seen, link: bool) -> bool:
    """Whether the kernel sends this when it likes: IGMP, MLD, a router wanted."""
    at = 14 if link else 0
    data = seen.data[at:]
    if len(data) < 48:
        return False
    if data[0] >> 4 == 4:
        return data[9] == _IGMP
    proto, where = data[6], 40
    if proto == _HOPS:
        proto, where = data[40], 48
    return proto == _ICMPV6 and data[where] in _MLD_OR_ROUTER


def _relative(frames: Sequence[Masked], firsts: list[int]) -> list[int]:
    """Return the sequence numbers of frames, counted from the record's first one."""
    numbers = [number for frame in frames for number in frame.numbers]
    firsts.extend(numbers[: 1 - len(firsts)])
    return [number - firsts[0] for number in numbers]


def _is_tcp(name: str) -> bool:
    return name.removeprefix("tall ").startswith("tcp ")


def kind_of(record: Mapping[str, Any]) -> Kind:
    """Return the kind of tunnel that a record is of."""
    name = record["type"]
    return KINDS[name] if name in KINDS else BEARERS[name]


def masked(step: Mapping[str, Any], where: str, kind: Kind) -> list[Masked]:
    """Return the frames of a step that may be compared."""
    own = not any(word in step["name"].split(":")[0] for word in ("socket", "tcp"))
    own = own or ":" in step["name"]
    link = where != "back" or kind.ethernet
    masker = Masker(kind, own=own)
    seen = [one for one in _seen(step[where]) if not _by_itself(one, link)]
    return [masker.frame(one, link=link) for one in seen]


def _counters(kind: Kind, before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    told = {name: value - before.get(name, 0) for name, value in after.items()}
    return {
        name: value
        for name, value in told.items()
        if value and not (kind.sealed and ".rx_" in name) and not name.startswith(_TIMED)
    }


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    names = [[step["name"] for step in record["steps"]] for record in (first, second)]
    if names[0] != names[1]:
        raise ValueError("the records are of different steps")
    yield from zip(first["steps"], second["steps"], strict=True)


def differences(stock: Mapping[str, Any], series: Mapping[str, Any]) -> list[Difference]:
    """Compare two records, step by step.

    Raises:
        ValueError: they are not of the same steps.
    """
    found: list[Difference] = []
    kind = kind_of(stock)
    firsts: tuple[list[int], list[int]] = ([], [])
    before: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})
    for one, other in _pairs(stock, series):
        name = one["name"]

        def differs(what: str, a: object, b: object, name: str = name) -> None:
            if a != b:
                found.append(Difference(name, what, str(a), str(b)))

        for what in ("results", "errors"):
            differs(what, one.get(what), other.get(what))
        disturbed = kind.sealed and _is_tcp(name)
        # What a thread decrypts at once is acknowledged at once: only its data is the sender's.
        timed = disturbed
        for where in _WHERE[:1] if timed else _WHERE:
            frames = [masked(step, where, kind) for step in (one, other)]
            disturbed = disturbed or any(frame.timed for some in frames for frame in some)
            frames = [[frame for frame in some if not frame.timed] for some in frames]
            if timed:
                frames = [[one for one in some if len(one.data) > _DATA] for some in frames]
            numbers = [_relative(some, first) for some, first in zip(frames, firsts, strict=True)]
            differs(f"numbers {where}", numbers[0], numbers[1])
            differs(f"frames {where}", len(frames[0]), len(frames[1]))
            for at, (a, b) in enumerate(zip(*frames, strict=False)):
                differs(f"{where} {at}", a.text(), b.text())
            ports = [len({port for frame in some for port in frame.ports}) for some in frames]
            differs(f"ports {where}", ports[0], ports[1])
        counts = [
            _counters(kind, old, step["counters"])
            for old, step in zip(before, (one, other), strict=True)
        ]
        if before[0] and not disturbed:
            for key in sorted({*counts[0], *counts[1]}):
                differs(key, counts[0].get(key, 0), counts[1].get(key, 0))
        before = one["counters"], other["counters"]
    if stock["far"] != series["far"] and not kind.sealed:
        found.append(Difference("at the end", "far", str(stock["far"]), str(series["far"])))
    return found


def wrong_ids(record: Mapping[str, Any], *, zero: bool) -> list[str]:
    """Return what the IPv4 IDs of a record must not be.

    Fragments of one packet share an ID, packets that may be fragmented do not share one.

    Args:
        zero: a packet with DF that is no segment of another has ID 0, RFC 6864.
    """
    kind, found = kind_of(record), []
    for step in record["steps"]:
        made = [frame.ids[0] for frame in masked(step, "out", kind) if frame.ids]
        plain = [one for one in made if not one[1]]
        parts = Counter(ident for ident, _, part, _ in plain if part)
        found += [f"{step['name']}: a fragment alone" for count in parts.values() if count < 2]
        whole = Counter(ident for ident, _, part, _ in plain if not part)
        found += [f"{step['name']}: ID {ident} twice" for ident, n in whole.items() if n > 1]
        kept = [ident for ident, df, part, _ in made if df and not part]
        alone = len(kept) == 1 or all(ident == kept[0] for ident in kept)
        if zero and kept and alone and kept[0] and "ipsec" not in step["name"]:
            found.append(f"{step['name']}: ID {kept[0]} with DF")
        if zero and kept and not alone and kept != list(range(len(kept))):
            found.append(f"{step['name']}: IDs {kept} of segments with DF")
    return found


def summary(record: Mapping[str, Any]) -> dict[str, int]:
    """Return how much a record holds."""
    steps = record["steps"]
    frames = {where: sum(len(step[where]) for step in steps) for where in _WHERE}
    results = sum(bool(result) for step in steps for result in step["results"])
    errors = sum(len(step.get("errors", ())) for step in steps)
    return {"steps": len(steps), **frames, "refused": results, "errors": errors}


def main(argv: list[str]) -> int:
    """Compare two files and tell."""
    parser = argparse.ArgumentParser(prog="tunnel-same", description=__doc__)
    parser.add_argument("stock", type=Path)
    parser.add_argument("series", type=Path)
    parser.add_argument("--no-zero-ids", action="store_true", help="without the patch of the IDs")
    given = parser.parse_args(argv)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (given.stock, given.series)]
    found = [str(one) for one in differences(*records)]
    found += wrong_ids(records[1], zero=not given.no_zero_ids)
    for text in found[:_MOST]:
        print(text)
    if len(found) > _MOST:
        print(f"... and {len(found) - _MOST} more")
    told = {"type": records[0]["type"], **summary(records[0]), "differences": len(found)}
    print(json.dumps(told))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
