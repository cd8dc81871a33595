# SPDX-License-Identifier: GPL-2.0-only
"""Findings as text, as JSON and as the line of a monitoring plugin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nodrop.columns import clean
from nodrop.doctor.examine import count
from nodrop.doctor.finding import Finding, Severity
from nodrop.doctor.look import Look
from nodrop.host import describe
from nodrop.host.model import Device
from nodrop.screen import Screen

_STYLES = {
    Severity.OK: "green",
    Severity.WARN: "yellow",
    Severity.FAIL: "bold red",
    Severity.NOTE: "cyan",
    Severity.SKIPPED: "dim",
}
_WORST_FIRST = (Severity.FAIL, Severity.WARN, Severity.NOTE, Severity.SKIPPED, Severity.OK)
_NAGIOS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_LABEL = str.maketrans({"'": "''", "=": "_", "|": "_"})
_INDENT = " " * 8
_WIDEST = 110


def as_json(look: Look, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the machine and all findings, including those that are ok."""
    devices = {link.now.label: link.now for link in look.links}
    return {
        **describe.host(look.host),
        "interval_s": round(look.seconds, 3),
        "counts": count(findings),
        "gone_devices": list(look.gone),
        "checks": [
            {
                "id": one.id,
                "severity": str(one.verdict.severity),
                "device": devices[one.device].name if one.device else None,
                "netns": (devices[one.device].netns or None) if one.device else None,
                "seen": one.verdict.seen,
                "cost": one.verdict.cost or None,
                "fix": list(map(clean, one.verdict.fix)),
                "commands": list(map(clean, one.verdict.commands)),
                "numbers": {name: round(value, 4) for name, value in one.verdict.numbers.items()},
            }
            for one in findings
        ],
    }


def to_people(screen: Screen, look: Look, findings: Sequence[Finding], *, fine: bool) -> None:
    """Print the findings of the machine, then of each device, then a summary.

    Args:
        screen: where to print.
        look: the samples.
        findings: the findings.
        fine: print those that are ok, too.
    """
    screen = replace(screen, width=screen.width and min(screen.width, _WIDEST))
    shown: dict[str | None, list[Finding]] = {}
    for one in findings:
        if fine or one.verdict.severity is not Severity.OK:
            shown.setdefault(one.device, []).append(one)
    titles: list[tuple[str | None, str]] = [(None, "this machine")]
    titles += [(link.now.label, _title(link.now)) for link in look.links]
    for label, title in titles:
        here = shown.get(label, [])
        here.sort(key=lambda one: _WORST_FIRST.index(one.verdict.severity))
        if here:
            screen.text(title, "bold")
            for one in here:
                _print(screen, one)
            screen.print()
    screen.text(summary(findings))


def as_nagios(findings: Sequence[Finding]) -> tuple[int, str]:
    """Return the exit status and the line of a monitoring plugin."""
    counts = count(findings)
    status = 2 if counts["fail"] else 1 if counts["warn"] else 0
    bad = [one for one in findings if one.verdict.severity in _WORST_FIRST[:2]]
    ids = [f"{one.device or 'machine'} {one.id}" for one in bad]
    text = "; ".join([summary(findings).removesuffix("."), *ids])
    data: dict[str, float] = {"fail": counts["fail"], "warn": counts["warn"]}
    for one in findings:
        data |= {f"{one.device} {one.id} {key}": of for key, of in one.verdict.numbers.items()}
    values = [f"'{clean(name).translate(_LABEL)}'={round(of, 4)}" for name, of in data.items()]
    return status, f"{nagios(status, text)} | {' '.join(values)}"


def nagios(status: int, text: str) -> str:
    """Return the text of a monitoring plugin, without a vertical bar."""
    return f"NODROP {_NAGIOS[status]} - {clean(text).replace('|', '_')}"


def _title(device: Device) -> str:
    parts = [device.kind]
    if device.driver:
        parts.append(str(device.driver))
    parts += [f"{owner.name}({owner.pid})" for owner in device.owners[:2]]
    return f"{device.label}: {', '.join(parts)}"


def _print(screen: Screen, finding: Finding) -> None:
    verdict = finding.verdict
    word = str(verdict.severity)
    head = screen.paint(f"{word:{len(_INDENT)}}", _STYLES[verdict.severity])
    screen.text(f"{finding.id}: {verdict.seen}", indent=_INDENT, head=head)
    screen.text(verdict.cost, "dim", _INDENT)
    for line in verdict.fix:
        # Not wrapped, so that it can be copied.
        screen.print(_INDENT + line, "cyan")


def summary(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each severity: ``1 fail, 2 warn, 12 ok.``."""
    counts = count(findings)
    parts = [f"{counts[one]} {one}" for one in _WORST_FIRST if counts[one] or one is Severity.OK]
    return ", ".join(parts) + "."
