# SPDX-License-Identifier: GPL-2.0-only
"""What was found, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nodrop.columns import clean
from nodrop.doctor.examine import count
from nodrop.doctor.finding import Finding, Severity
from nodrop.doctor.look import Look
from nodrop.host import describe
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
    """Return all verdicts, the fine ones too, and what the machine is."""
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
    """Print what was found: the machine, then each device, then a summary.

    Args:
        screen: where.
        look: what was looked at.
        findings: what came of it.
        fine: with the checks that found nothing.
    """
    screen = replace(screen, width=screen.width and min(screen.width, _WIDEST))
    shown = [one for one in findings if fine or one.verdict.severity is not Severity.OK]
    titles: list[tuple[str | None, str]] = [(None, "this machine")]
    titles += [(link.now.label, _title(look, link.now.label)) for link in look.links]
    for label, title in titles:
        here = [one for one in shown if one.device == label]
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
    told = "; ".join([summary(findings), *(f"{one.device or 'machine'} {one.id}" for one in bad)])
    data: dict[str, float] = {"fail": counts["fail"], "warn": counts["warn"]}
    for one in findings:
        data |= {f"{one.device} {one.id} {key}": of for key, of in one.verdict.numbers.items()}
    values = [f"'{clean(name).translate(_LABEL)}'={round(of, 4)}" for name, of in data.items()]
    return status, f"{nagios(status, told)} | {' '.join(values)}"


def nagios(status: int, told: str) -> str:
    """Return the text of a monitoring plugin, which may have no bar."""
    return f"NODROP {_NAGIOS[status]} - {clean(told).replace('|', '_')}"


def _title(look: Look, label: str) -> str:
    device = next(link.now for link in look.links if link.now.label == label)
    parts = [device.kind]
    if device.driver:
        parts.append(str(device.driver))
    parts += [f"{owner.name}({owner.pid})" for owner in device.owners[:2]]
    return f"{label}: {', '.join(parts)}"


def _print(screen: Screen, finding: Finding) -> None:
    verdict = finding.verdict
    word = str(verdict.severity)
    head = screen.paint(f"{word:{len(_INDENT)}}", _STYLES[verdict.severity])
    screen.text(f"{finding.id}: {verdict.seen}", indent=_INDENT, head=head)
    screen.text(verdict.cost, "dim", _INDENT)
    for line in verdict.fix:
        # As it is, whatever the width: it is made to be copied.
        screen.print(_INDENT + line, "cyan")


def summary(findings: Sequence[Finding]) -> str:
    """Return how many of each there are, in one sentence."""
    counts = count(findings)
    fine = counts.pop(str(Severity.OK))
    parts = [f"{number} {word}" for word, number in reversed(counts.items()) if number]
    parts.sort(key=lambda part: ("fail" not in part, "warn" not in part))
    parts.append("1 check fine" if fine == 1 else f"{fine} checks fine")
    return ", ".join(parts) + "."
