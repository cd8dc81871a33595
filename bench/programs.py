# SPDX-License-Identifier: GPL-2.0-only
"""The machine's own programs that scenarios run: which, whether they are there, their versions."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bench.guest.scenarios import KINDS
from bench.scenario import Scenario
from lab.init import PATH
from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError

PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "iperf3": "iperf3",
    "openssl": "openssl",
    "openvpn": "openvpn",
    "wg": "wireguard-tools",
    "wireguard-go": "wireguard-go",
}
"""Debian's packages, by the programs that scenarios name."""
VERSION_WORDS = {"ip": "-V", "tc": "-V", "openssl": "version"}
"""What a program is asked its version by, when not by --version."""
TIMEOUT_S = 10.0

_VERSION = re.compile(r"\d+(?:\.\d+)+[\w+~-]*")


def needed(scenario: Scenario) -> list[str]:
    """Return the names of the programs that a scenario's cases run."""
    kind = KINDS[scenario.kind]
    names = [name for case in scenario.cases() for name in kind.host_programs(case.parameters)]
    return list(dict.fromkeys(names))


def find(name: str) -> Path | None:
    """Return where a guest finds a program; None: nowhere."""
    found = shutil.which(name, path=PATH)
    return Path(found) if found else None


def require(scenarios: Iterable[Scenario]) -> None:
    """Look for all programs that scenarios run.

    Raises:
        UnsupportedError: some are not installed.
    """
    names = {name for one in scenarios for name in needed(one)}
    if absent := sorted(name for name in names if not find(name)):
        packages = sorted({PACKAGES[name] for name in absent})
        raise UnsupportedError(
            f"These programs are not installed: {', '.join(absent)}.",
            f"apt-get install {' '.join(packages)}",
        )


def versions(scenarios: Iterable[Scenario]) -> dict[str, str]:
    """Return the version of each program that scenarios run; "" for what is not known."""
    names = sorted({name for one in scenarios for name in needed(one)})
    return {name: _version(name, path) if (path := find(name)) else "" for name in names}


def _version(name: str, path: Path) -> str:
    """Return the version that a program tells, or the line that should have it."""
    said = ""
    with suppress(NodropError):
        # Whatever its exit status: some end with 1 after a version.
        said = proc.run([path, VERSION_WORDS.get(name, "--version")], timeout=TIMEOUT_S).output
    first = said.strip().partition("\n")[0]
    match = _VERSION.search(first)
    return match.group() if match else first
