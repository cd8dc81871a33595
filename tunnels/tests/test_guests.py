# SPDX-License-Identifier: GPL-2.0-only
"""Tunnels in guests: kernels without the patches and with them, and kernels that find bugs.

- packets: each kind of tunnel sends the same bytes with the series as without; ``masked.py`` masks
  the fields that may differ.
- routes: no packet takes another flow's route, or one that is out of date (routes.py).
- kselftests: what passes of the kernel's selftests of tunnels also passes with the series. These
  tests of tools/testing/selftests run in this small guest in about two minutes at most. Failures
  without the series are due to the kernel, the guest or this Debian's tools.
- hazards: cached routes on kernels that check locks, RCU and memory; and the faults that these
  find.
"""

from __future__ import annotations

import difflib
import json
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import on_terminal

from guestlib.kselftest import PASSED, RESULTS_NAME
from lab import uml
from lab.guest import GuestDied, GuestRun
from lab.kernel import Kernel, ensure_kernel
from lab.kernel.source import find_source
from lab.sources import REPOSITORY
from tunnels.hazards import ENDS
from tunnels.links import BEARERS, KINDS
from tunnels.routes import FEW, MACS, OTHER4, OTHER6

STOCK, SERIES = "tunnel-stock", "tunnel"
RECORD_S, KSELFTEST_S, HAZARDS_S = 300.0, 600.0, 600.0
MARGIN_S = 60.0
"""Extra time of the guest of a kernel selftest."""
FEWEST, FEWEST_OF_BEARERS = 60, 4
"""Frames in a record."""
KSELFTESTS = (
    *("net/bareudp", "net/gre_gso", "net/gre_ipv6_lladdr", "net/ip6_gre_headroom"),
    *("net/ip6_tunnel", "net/srv6_iptunnel_cache", "net/test_vxlan_fdb_changelink"),
    *("net/test_vxlan_under_vrf", "net/test_vxlan_vnifilter_notify"),
    *("net/test_vxlan_vnifiltering", "net/forwarding/ip6gre_hier_keys"),
    *("net/forwarding/mirror_gre", "net/pmtu", "wireguard/netns"),
)
PMTU = (
    *("pmtu_ipv4_vxlan4_exception", "pmtu_ipv6_vxlan6_exception", "pmtu_ipv6_geneve4_exception"),
    *("pmtu_ipv4_geneve6_exception", "pmtu_ipv4_br_vxlan4_exception", "pmtu_ipv4_fou4_exception"),
    *("pmtu_ipv6_gue6_exception", "pmtu_ipv4_ipv4_exception", "pmtu_ipv6_ipv6_exception"),
)
"""One test of net/pmtu for each kind: all take a quarter of an hour."""
CHECKING = ("tunnel-debug", "tunnel-kasan")
GUESTS = 8
"""For all kinds of tunnels; each scans for leaks once, at its end. TIPC starts once in each."""
_ALL = (*KINDS, *BEARERS, *ENDS)
GROUPS = [_ALL[at::GUESTS] for at in range(GUESTS)]
FAULTS = (
    ("leak", "tunnel-kasan", "gre", "rt_dst_alloc"),
    ("unowned", "tunnel-debug", "gre", "rcuref_put"),
    ("early", "tunnel-kasan", "vxlan", "slab-use-after-free"),
    ("late", "tunnel-kasan", "netns-vxlan6", "slab-use-after-free"),
    *(("queued", "tunnel-kasan", queue, "slab-use-after-free") for queue in ("mcroute", "iptfs")),
)
"""Fault, the kernel that finds it, where, and a part of its report."""

WRONG_ROUTES = (
    ("key", "vrf"),
    ("stale", "dead"),
    ("robbed", "own"),
    ("flow", "flows-gre-tos"),
)
"""Fault that gives packets another route, and the part of tunnels.routes that finds it."""


class Guests:
    """Boots guests with a flavour's kernel, built with progress on the terminal."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._kernel: Callable[[str], Kernel] = cache(self._ensure)

    def _ensure(self, flavour: str) -> Kernel:
        with on_terminal(self._request) as progress:
            return ensure_kernel(progress, flavour)

    def boot(
        self,
        flavour: str,
        argv: list[str],
        out: Path,
        timeout: float,
        *,
        env: Mapping[str, str] | None = None,
        cpus: int = 2,
    ) -> GuestRun:
        """Run a Python module with arguments in a guest; its log stays in kernel.log."""
        env = {"PYTHONPATH": str(REPOSITORY), **(env or {})}
        argv = [sys.executable, "-m", *argv]
        run = uml.run(self._kernel(flavour), argv, out=out, timeout=timeout, env=env, cpus=cpus)
        (out / "kernel.log").write_text(run.log, encoding="utf-8")
        return run

    def run(self, flavour: str, argv: list[str], out: Path, timeout: float, **how: Any) -> None:
        """The same; fail on splats or a bad exit status."""
        run = self.boot(flavour, argv, out, timeout, **how)
        assert not run.splats, "\n".join(splat.text for splat in run.splats)
        assert run.status == 0, run.output


@pytest.fixture(scope="session")
def guests(request: pytest.FixtureRequest) -> Guests:
    return Guests(request)


@pytest.mark.parametrize("kind", [*KINDS, *BEARERS])
def test_same_packets(guests: Guests, kind: str, tmp_path: Path) -> None:
    def record(flavour: str) -> list[str]:
        out = tmp_path / flavour
        guests.run(flavour, ["tunnels.record", kind], out, RECORD_S, cpus=1)
        return (out / f"record-{kind}.txt").read_text(encoding="ascii").splitlines()

    # With the series a packet with DF has the ID 0, unless it is to be segmented; without it, any.
    stock = [line.replace(" df:1", " df:0") for line in record(STOCK)]
    series = record(SERIES)
    assert not [line for line in series if " df:1" in line]
    frames = [line for line in series if line.startswith("  out") or kind in BEARERS]
    assert len(frames) >= (FEWEST_OF_BEARERS if kind in BEARERS else FEWEST)
    diff = difflib.unified_diff(stock, series, "stock", "series", lineterm="", n=1)
    assert stock == series, "\n".join(line[:200] for line in [*diff][:40])


@pytest.mark.parametrize("name", KSELFTESTS)
def test_same_kselftests(guests: Guests, name: str, tmp_path: Path) -> None:
    """What passes without the series passes with it."""
    source = find_source()
    assert source is not None
    folder = source.tree / "tools/testing/selftests"
    argv = ["guestlib.kselftest", str(folder), f"{name}.sh", *(PMTU if name == "net/pmtu" else ())]

    def passed(flavour: str) -> Counter[str]:
        limit = {"LAB_KSELFTEST_SECONDS": str(KSELFTEST_S)}
        out = tmp_path / flavour
        guests.run(flavour, argv, out, KSELFTEST_S + MARGIN_S, env=limit)
        outcomes = json.loads((out / RESULTS_NAME).read_text())["results"]
        return Counter(result for result, outcome in outcomes if outcome in PASSED)

    stock = passed(STOCK)
    assert stock, "no result passes in this guest"
    assert stock - passed(SERIES) == Counter()


@pytest.mark.parametrize("flavour", CHECKING)
@pytest.mark.parametrize("kinds", GROUPS, ids="-".join)
def test_hazards_without_report(
    guests: Guests, flavour: str, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    guests.run(flavour, ["tunnels.hazards", *kinds], tmp_path, HAZARDS_S)


@pytest.mark.parametrize(("fault", "flavour", "kind", "report"), FAULTS)
def test_hazards_find_fault(
    guests: Guests, fault: str, flavour: str, kind: str, report: str, tmp_path: Path
) -> None:
    argv = ["tunnels.hazards", "--fault", fault, kind]
    try:
        run = guests.boot(flavour, argv, tmp_path, HAZARDS_S)
        text = "\n".join(splat.text for splat in run.splats)
    except GuestDied as died:
        text = died.hint
    assert report in text


def _routes(guests: Guests, flavour: str, out: Path, *argv: str) -> dict[str, Any]:
    guests.run(flavour, ["tunnels.routes", *argv], out, HAZARDS_S, cpus=1)
    found: dict[str, Any] = json.loads((out / "routes.json").read_text(encoding="ascii"))
    return found


@pytest.mark.parametrize(("fault", "part"), WRONG_ROUTES)
def test_finds_wrong_route(guests: Guests, fault: str, part: str, tmp_path: Path) -> None:
    def found(number: int, fault: str) -> dict[str, Any]:
        out = tmp_path / f"{number}"
        return _routes(guests, SERIES, out, "--fault", fault, part)

    right = found(0, "none")
    assert right == found(1, "none")
    assert right != found(2, fault)


def test_same_routes(guests: Guests, tmp_path: Path) -> None:
    """A cached route is that of the present configuration, and of the packet.

    The kernel without the series looks up a route for each packet that may have another.
    """
    stock, series = (_routes(guests, name, tmp_path / name) for name in (STOCK, SERIES))
    spread = {name: {*found.values()} for name, found in stock.items() if name.startswith("flows-")}
    assert set().union(*spread.values()) == {1, 2}
    assert all(used == {2} for name, used in spread.items() if name.endswith("-mark"))
    changed = {name: [OTHER6 if KINDS[name].outer6 else OTHER4] for name in series["local"]}
    assert series.pop("local") == changed
    # The stock kernel keeps the old source of vxlan (patches/fixes).
    assert {name for name, at in stock.pop("local").items() if at != changed[name]} == {"vxlan6"}
    assert len(stock["remote"]) == len({*map(str, stock["remote"].values())}) == 2
    assert {tuple(macs) for macs in (*stock["table"].values(), *stock["dead"].values())} == {
        (MACS[1],)
    }
    assert stock["deprecated"] == [OTHER6]
    assert all(pushed and not plain for pushed, plain in stock["encap"].values())
    assert stock["own"] == 1
    assert stock["vrf"] == {str(socket.IPPROTO_IPV6): 2 * FEW}
    assert series == stock
