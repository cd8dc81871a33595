# SPDX-License-Identifier: GPL-2.0-only
"""The host's programs that scenarios run: names, packages, versions."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bench.scenario import Scenario
from lab.guest import PATH
from lab.kernel import cache
from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError

PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "flent": "flent",
    "fping": "fping",
    "iperf": "iperf",
    "openssl": "openssl",
    "openvpn": "openvpn",
    "qemu-system-x86_64": "qemu-system-x86",
    "wg": "wireguard-tools",
    "wireguard-go": "wireguard-go",
}
"""Program -> Debian package."""
VPNS = {
    "openvpn": ["openvpn", "openssl"],
    "wireguard-go": ["wireguard-go", "wg"],
    "wireguard-go-short": ["wireguard-go-short", "wg"],
    "boringtun-cli": ["boringtun-cli", "wg"],
    "nebula": ["nebula", "nebula-cert"],
    "tincd": ["tincd"],
    "yggdrasil": ["yggdrasil"],
}
"""A case's ``vpn`` -> the programs that its tunnel needs."""
VERSION_WORDS = {
    **{"ip": "-V", "tc": "-V", "openssl": "version"},
    **{"nebula": "-version", "nebula-cert": "-version"},
}
"""Program -> its version option, if that is not --version."""
TIMEOUT_S = 10.0

_VERSION = re.compile(r"\d+(?:\.\d+)+[\w+~-]*")


def needed(scenario: Scenario) -> list[str]:
    """Return the names of the programs that a scenario's cases run."""
    vpns = [str(case.parameters.get("vpn")) for case in scenario.cases()]
    names = [name for vpn in vpns for name in VPNS.get(vpn, ())]
    return list(dict.fromkeys([*scenario.programs, *names]))


def search_path() -> str:
    """Return the guests' search path: what scripts/vpns built goes before Debian's."""
    return f"{cache.root() / 'vpns'}:{PATH}"


def find(name: str) -> Path | None:
    """Return a program's path in a guest; None if it is not installed."""
    path = shutil.which(name, path=search_path())
    return Path(path) if path else None


def without_absent_vpns(scenario: Scenario) -> tuple[Scenario, list[str]]:
    """Leave out a scenario's VPNs whose programs are not installed, if it allows that.

    Returns:
        The scenario, and the names of these VPNs.

    Raises:
        UnsupportedError: none is installed.
    """
    if not scenario.skips_absent_vpns:
        return scenario, []
    vpns = dict.fromkeys(str(case.parameters["vpn"]) for case in scenario.cases())
    absent = [name for name in vpns if not all(map(find, VPNS[name]))]
    if len(absent) == len(vpns):
        raise UnsupportedError(
            f"None of {', '.join(vpns)} is installed.", "Install them with: make bench-vpns"
        )
    return replace(scenario, without=absent), absent


def require(scenarios: Iterable[Scenario]) -> None:
    """Check that all programs that scenarios run are installed.

    Raises:
        UnsupportedError: some are not.
    """
    names = {name for scenario in scenarios for name in needed(scenario)}
    if absent := sorted(name for name in names if not find(name)):
        packages = sorted({PACKAGES[name] for name in absent})
        raise UnsupportedError(
            f"These programs are not installed: {', '.join(absent)}.",
            f"Install them with: apt-get install {' '.join(packages)}",
        )


def versions(scenarios: Iterable[Scenario]) -> dict[str, str]:
    """Return the version of each program that scenarios run; "" if it is unknown."""
    names = sorted({name for scenario in scenarios for name in needed(scenario)})
    return {name: _version(name, path) if (path := find(name)) else "" for name in names}


def _version(name: str, path: Path) -> str:
    """Return a program's version, or its first line of output if that has none."""
    output = ""
    with suppress(NodropError):
        # Whatever the exit status: some programs end with 1 after printing their version.
        output = proc.run([path, VERSION_WORDS.get(name, "--version")], timeout=TIMEOUT_S).output
    first = output.strip().partition("\n")[0]
    match = _VERSION.search(first)
    return match.group() if match else first
