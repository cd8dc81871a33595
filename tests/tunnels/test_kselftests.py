# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's selftests of tunnels give the same results with the series as without.

These tests of tools/testing/selftests run in this small guest in about two minutes at most.
Failures without the series are due to the kernel, the guest or this Debian's tools.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lab.kernel.linux_source import find_source
from proof.tunnels.kselftest import PASSED, RESULTS_NAME

from .conftest import ATTEMPTS, Side

SECONDS, MARGIN_S = 600.0, 60.0
"""Timeout of a test, and the extra time of its guest."""
TESTS = (
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


def results(side: Side, name: str, out: Path) -> list[list[str]]:
    out = out / side.name
    out.mkdir(parents=True)
    source = find_source()
    assert source is not None
    folder = source.tree / "tools/testing/selftests"
    argv = [sys.executable, "-m", "proof.tunnels.kselftest", str(folder), f"{name}.sh"]
    argv += PMTU if name == "net/pmtu" else ()
    side.run(argv, out, SECONDS + MARGIN_S, {"NODROP_KSELFTEST_SECONDS": str(SECONDS)})
    found: list[list[str]] = json.loads((out / RESULTS_NAME).read_text())["results"]
    return found


@pytest.mark.parametrize("name", TESTS)
def test_same_results(sides: tuple[Side, ...], name: str, tmp_path: Path) -> None:
    for attempt in range(ATTEMPTS):
        stock, series = (results(side, name, tmp_path / str(attempt)) for side in sides)
        if stock == series:
            break
    assert stock == series
    assert {outcome for _, outcome in stock} & PASSED, "no result passes in this guest"
