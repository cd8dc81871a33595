# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop doctor``: problems of virtual links, what they cost, and commands that fix them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

from nodrop import screen
from nodrop.commands import common
from nodrop.commands.common import print_json
from nodrop.commands.status import headline
from nodrop.doctor import device, machine, reader
from nodrop.doctor.findings import MACHINE, RING, TUNNEL, Finding, Severity, Verdict
from nodrop.doctor.observation import DeviceChange, Observation, record
from nodrop.errors import NodropError, UsageError
from nodrop.host.model import Device, host_json
from nodrop.host.read import Raw, build
from nodrop.screen import Screen, clean

PROBLEM = 3
"""Exit status when there is a warning or a failure."""
_LONG_S = 2.0
MODULES = (machine, device, reader)
"""Importing them has registered their checks."""
_STYLES = {
    Severity.FAIL: "bold red",
    Severity.WARN: "yellow",
    Severity.NOTE: "cyan",
    Severity.SKIPPED: "dim",
    Severity.OK: "green",
}
"""The worst first."""
_WORST_FIRST = tuple(_STYLES)
_NAMED, _LABEL_MOST = 5, 40
"""Findings in the line of a monitoring plugin, and the characters of a device's label there."""
_TOTALS: dict[str, Callable[[DeviceChange], int]] = {
    "delivered": lambda link: link.delivered,
    "dropped": lambda link: link.dropped,
    "qdisc_dropped": lambda link: link.qdisc_drops,
}
"""Totals over all devices in that line."""
_INDENT = " " * 8
_WIDEST = 110


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        description="Sample TUN, TAP, macvtap, ipvtap and tunnel devices twice. Report problems of "
        "the devices and of this machine, what they cost, and commands that fix them. Nothing is "
        "changed. Exit status 3: there is a warning or a failure.",
    )
    common.add_device_arguments(parser)
    parser.add_argument("--all", action="store_true", help="show checks that passed, too")
    parser.add_argument(
        "--seconds",
        type=common.seconds,
        default=1.0,
        metavar="S",
        help="seconds between the two samples (1)",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        choices=sorted({*MACHINE, *RING, *TUNNEL}),
        default=[],
        metavar="CHECK",
        help="leave a check out, as if it did not exist; may be repeated",
    )
    parser.add_argument("--nagios", action="store_true", help="act as a Nagios or Icinga plugin")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.nagios and arguments.json:
        raise UsageError("--nagios and --json cannot be combined.")
    common.check_namespaces(arguments)

    messages = screen.messages(arguments)

    def check(raw: Raw) -> None:
        common.select(build(raw), arguments.device)
        if arguments.seconds >= _LONG_S and not arguments.quiet and not arguments.nagios:
            messages.print(f"Watching for {arguments.seconds:g} s ...", "dim")

    recorded = record(
        arguments.netns,
        everywhere=arguments.all_namespaces,
        seconds=arguments.seconds,
        check=check,
    )
    observation = recorded.observation(frozenset(arguments.device))
    if arguments.device and not observation.links:
        raise NodropError(f"{', '.join(observation.gone)} disappeared during the check.")
    findings = examine(observation, arguments.ignore)
    if arguments.nagios:
        status, line = as_nagios(findings, observation.links)
        print(line)
        return status
    if arguments.json:
        print_json("doctor", findings_json(observation, findings))
    else:
        console = screen.console(arguments)
        console.print(headline(observation.host), "dim")
        print_text(console, observation, findings, fine=arguments.all)
        console.stream.flush()
        for label in observation.gone:
            messages.print(f"{label} disappeared during the check.", "dim")
    counts = count(findings)
    return PROBLEM if counts["warn"] or counts["fail"] else 0


def examine(observation: Observation, ignored: Container[str] = ()) -> list[Finding]:
    verdicts: list[tuple[str, str | None, Verdict | None]]
    verdicts = [(name, None, check(observation)) for name, check in MACHINE.items()]
    verdicts += [
        (name, link.now.label, check(observation, link))
        for link in observation.links
        for name, check in (TUNNEL if link.now.tunnel else RING).items()
    ]
    return [
        Finding(name, label, verdict)
        for name, label, verdict in verdicts
        if verdict and name not in ignored
    ]


def count(findings: Sequence[Finding]) -> dict[str, int]:
    return {
        str(severity): sum(finding.verdict.severity is severity for finding in findings)
        for severity in Severity
    }


def findings_json(observation: Observation, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the machine and all findings, including those that are ok."""
    devices = {link.now.label: link.now for link in observation.links}
    return {
        **host_json(observation.host),
        "interval_s": round(observation.seconds, 3),
        "counts": count(findings),
        "gone_devices": list(observation.gone),
        "checks": [
            _finding_json(finding, devices[finding.device] if finding.device else None)
            for finding in findings
        ],
    }


def _finding_json(finding: Finding, device: Device | None) -> dict[str, Any]:
    verdict = finding.verdict
    return {
        "id": finding.id,
        "severity": str(verdict.severity),
        "device": device.name if device else None,
        "netns": (device.netns or None) if device else None,
        "seen": verdict.seen,
        "cost": verdict.cost or None,
        "fix": list(map(clean, verdict.fix)),
        "commands": list(map(clean, verdict.commands)),
        "numbers": {name: round(value, 4) for name, value in verdict.numbers.items()},
    }


def print_text(
    screen: Screen, observation: Observation, findings: Sequence[Finding], *, fine: bool
) -> None:
    """Print the findings of the machine, then of each device, then a summary.

    Args:
        fine: print those that are ok, too.
    """
    screen = replace(screen, width=screen.width and min(screen.width, _WIDEST))
    shown: dict[str | None, list[Finding]] = {}
    for finding in findings:
        if fine or finding.verdict.severity is not Severity.OK:
            shown.setdefault(finding.device, []).append(finding)
    titles: list[tuple[str | None, str]] = [(None, "this machine")]
    titles += [(link.now.label, _title(link.now)) for link in observation.links]
    for label, title in titles:
        if label not in shown:
            continue
        screen.text(title, "bold")
        for finding in sorted(
            shown[label], key=lambda finding: _WORST_FIRST.index(finding.verdict.severity)
        ):
            _print(screen, finding)
        screen.print()
    screen.text(summary(findings))


def as_nagios(findings: Sequence[Finding], links: Sequence[DeviceChange]) -> tuple[int, str]:
    """Return the exit status and the line of a monitoring plugin, whose length is bounded."""
    counts = count(findings)
    status = 2 if counts["fail"] else 1 if counts["warn"] else 0
    ids = [
        f"{(finding.device or 'machine')[:_LABEL_MOST]} {finding.id}"
        for severity in _WORST_FIRST[:2]
        for finding in findings
        if finding.verdict.severity is severity
    ]
    more = [f"{len(ids) - _NAMED} more"] if len(ids) > _NAMED else []
    text = "; ".join([summary(findings).removesuffix("."), *ids[:_NAMED], *more])
    data = {"fail": counts["fail"], "warn": counts["warn"], "devices": len(links)}
    for name, number in _TOTALS.items():
        data[f"{name}_packets_per_s"] = round(sum(number(link) / link.seconds for link in links))
    values = " ".join(f"{name}={value}" for name, value in data.items())
    return status, f"{screen.nagios_text(status, text)} | {values}"


def _title(device: Device) -> str:
    parts = [device.kind]
    if device.driver:
        parts.append(str(device.driver))
    parts += [f"{owner.name}({owner.pid})" for owner in device.owners[:2]]
    return f"{device.label}: {', '.join(parts)}"


def _print(screen: Screen, finding: Finding) -> None:
    verdict = finding.verdict
    head = screen.paint(f"{verdict.severity!s:{len(_INDENT)}}", _STYLES[verdict.severity])
    screen.text(f"{finding.id}: {verdict.seen}", indent=_INDENT, head=head)
    screen.text(verdict.cost, "dim", _INDENT)
    for line in verdict.fix:
        # Not wrapped, so that it can be copied.
        screen.print(_INDENT + line, "cyan")


def summary(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each severity: ``1 fail, 2 warn, 12 ok.``."""
    counts = count(findings)
    parts = [
        f"{counts[severity]} {severity}"
        for severity in _WORST_FIRST
        if counts[severity] or severity is Severity.OK
    ]
    return ", ".join(parts) + "."
