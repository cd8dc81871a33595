# SPDX-License-Identifier: GPL-2.0-only
"""The machine's own programs that scenarios run: which, whether they are there, their versions."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodrop import proc
from nodrop.bench.scenario import Scenario
from nodrop.errors import NodropError
from nodrop.guest.plan import Parameters
from nodrop.guest.scenarios import KINDS
from nodrop.guest.scenarios import Scenario as Kind
from nodrop.lab.plan import PATH

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
    kind = KINDS.get(scenario.kind)
    names = [name for case in scenario.cases() for name in _of(kind, case.parameters)]
    return list(dict.fromkeys(names))


def find(name: str) -> Path | None:
    """Return where a guest finds a program; None: nowhere."""
    found = shutil.which(name, path=PATH)
    return Path(found) if found else None


def leave_out(scenario: Scenario) -> Scenario:
    """Return the scenario without the cases whose programs are not installed."""
    kind = KINDS.get(scenario.kind)
    absent = {
        case.name: next((name for name in _of(kind, case.parameters) if not find(name)), "")
        for case in scenario.cases()
    }
    return replace(scenario, left_out={case: name for case, name in absent.items() if name})


def told(scenario: Scenario) -> list[str]:
    """Return a sentence for each program for whose sake cases were left out."""
    rest = "the rest is measured" if scenario.cases() else "nothing is left to measure"
    return [
        f"{name} is not installed ('apt-get install {PACKAGES[name]}' brings it): "
        f"{scenario.name} leaves out {'; '.join(cases)}, {rest}."
        for name, cases in scenario.left_out_by_program().items()
    ]


def versions(scenarios: Iterable[Scenario]) -> dict[str, str]:
    """Return the version of each program that scenarios run; "" for what is not known."""
    names = sorted({name for one in scenarios for name in needed(one)})
    return {name: _version(name, path) if (path := find(name)) else "" for name in names}


def versions_in(meta: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the versions that a run's metadata have; older ones have them beside digests."""
    if "programs" in meta:
        found: Mapping[str, str] = meta["programs"]
        return found
    old = meta.get("identity", {}).get("host_programs", {})
    return {name: data.get("version", "") for name, data in old.items()}


def _of(kind: type[Kind] | None, parameters: Parameters) -> tuple[str, ...]:
    return kind.host_programs(parameters) if kind else ()


def _version(name: str, path: Path) -> str:
    """Return the version that a program tells, or the line that should have it."""
    lines = _said([str(path), VERSION_WORDS.get(name, "--version")]).strip().splitlines()
    match = _VERSION.search(lines[0]) if lines else None
    return match.group() if match else "".join(lines[:1])


def _said(words: list[str]) -> str:
    """Return what a command prints, whatever its exit status: some end with 1 after a version."""
    try:
        return proc.run(words, timeout=TIMEOUT_S).output
    except NodropError:
        return ""
