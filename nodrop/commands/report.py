# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop report``: all that a maintainer needs to know about a machine, without names."""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from nodrop import cli, screen
from nodrop.commands import common, doctor, status
from nodrop.doctor.findings import Finding
from nodrop.doctor.observation import Observation, record
from nodrop.errors import NodropError
from nodrop.host import kernel_log, modules
from nodrop.host.model import Qdisc, device_json, host_json
from nodrop.host.settings import BACKPRESSURE, STALL_MS, Default
from nodrop.pseudonyms import Pseudonyms, without_paths
from nodrop.screen import Screen, clean, clean_lines

T = TypeVar("T")

_ROOT = Path("/")
_SECONDS = 1.0
_MODULES = (*modules.MODULES, kernel_log.LIVEPATCH)
_VERSION = re.compile(rb"\0version=([\x20-\x7e]{1,64})\0")
"""In a module's file: the field of modinfo."""
_LEFT_OUT = (
    "Devices, processes, users, units, containers, guests and namespaces have pseudonyms (dev1). "
    "There are no addresses, and this host has no name here. docs/guide.md (report) has the rules."
)
_NAMED = "This report has names: of devices, processes, units, containers, guests and namespaces."


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        description="Print what a maintainer needs to know about this machine: its kernel, the "
        "modules on disk and loaded, devices with counters and qdiscs, kept settings, doctor's "
        "findings, and the kernel's messages about the modules. It has no addresses, and "
        "pseudonyms instead of names. Nothing is changed or sent.",
    )
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="replace FILE instead of printing"
    )
    parser.add_argument(
        "--names",
        action="store_true",
        help="keep names, and whole lines of the kernel log",
    )
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="devices of all network namespaces"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    common.check_namespaces(arguments)
    recorded = record(arguments.netns, everywhere=arguments.all_namespaces, seconds=_SECONDS)
    observation = recorded.observation()
    if not arguments.names:
        observation = Pseudonyms().observation(observation)
    findings = doctor.examine(observation)
    if not arguments.names:
        # doctor prints where this command is, which may be below a user's directory.
        findings = [_without_paths(finding) for finding in findings]
    data = report_json(observation, findings, names=arguments.names)
    if arguments.json:
        text = common.json_text("report", data)
    else:
        text = report_text(observation, findings, data)
    if arguments.file is None:
        print(text)
        return 0
    common.write_file(arguments.file, f"{text}\n".encode(errors="replace"))
    if not arguments.quiet:
        sentence = f"{arguments.file} is written. Read it before you send it to anybody."
        screen.messages(arguments).text(sentence, "dim")
    return 0


def _readable(read: Callable[[], T]) -> T | None:
    """Return what is kept; None: it cannot be read."""
    try:
        return read()
    except NodropError:
        return None


def _without_paths(finding: Finding) -> Finding:
    fix = tuple(map(without_paths, finding.verdict.fix))
    return replace(finding, verdict=replace(finding.verdict, fix=fix))


def report_json(
    observation: Observation, findings: Sequence[Finding], *, names: bool
) -> dict[str, Any]:
    """Return the report.

    Args:
        names: whether the arguments have names, and the report may have them.
    """
    host, system = observation.host, observation.system
    log, log_unread = [], None
    try:
        log = kernel_log.lines(names=names, path=_ROOT / "dev/kmsg")
    except OSError as error:
        log_unread = error.strerror
    verdict = doctor.findings_json(observation, findings)
    return {
        "version": cli.version(),
        "names": names,
        **host_json(host),
        "moving": host.moving,
        "machine": _machine_json(),
        "container": system.container or None,
        "livepatches": system.livepatches,
        "kernels": [dict(vars(kernel)) for kernel in system.kernels],
        "modules": [*map(_module_json, modules.read(_ROOT, system.release, _MODULES))],
        "settings": {
            "backpressure": system.rules,
            "qdisc": None if system.qdisc_rules_unread else system.qdisc_rules,
            "default_backpressure": _readable(lambda: Default(BACKPRESSURE, _ROOT).next_load),
            "default_stall_ms": _readable(lambda: Default(STALL_MS, _ROOT).next_load),
        },
        "devices": [
            {**device_json(device), "qdiscs": list(map(_qdisc_json, device.qdiscs))}
            for device in host.devices
        ],
        "doctor": {key: verdict[key] for key in ("interval_s", "counts", "gone_devices", "checks")},
        "kernel_log": log,
        "kernel_log_unread": log_unread,
    }


def _machine_json() -> dict[str, Any]:
    """Return facts about the machine; its name is not among them."""
    system, fields = os.uname(), dict[str, str]()
    with suppress(OSError):
        text = (_ROOT / "etc/os-release").read_text(errors="replace")
        known = r"^(ID|VERSION_ID)=[\"']?([\w.-]{1,40})[\"']?$"
        fields = dict(re.findall(known, text, re.MULTILINE | re.ASCII))
    return {
        "kernel_build": system.version,
        "architecture": system.machine,
        "cpus": os.cpu_count(),
        "distribution": fields.get("ID"),
        "distribution_version": fields.get("VERSION_ID"),
        "python": platform.python_version(),
    }


def _module_json(module: modules.ModuleFile) -> dict[str, Any]:
    """Return a module on disk and loaded; null: it is not there, or that is not known."""
    sysfs = _ROOT / "sys/module" / module.name
    on_disk = None
    if module.path:
        with suppress(*modules.UNREADABLE):
            data = modules.content(_ROOT / "lib/modules" / os.uname().release / module.path)
            if match := _VERSION.search(data):
                on_disk = match[1].decode()
    parameters = {}
    with suppress(OSError):
        for file in sorted((sysfs / "parameters").iterdir()):
            with suppress(OSError):
                parameters[file.name] = file.read_text(errors="replace").strip()
    loaded = None
    with suppress(OSError):
        loaded = (sysfs / "version").read_text(errors="replace").strip()
    return {
        "name": module.name,
        "path": module.path or None,
        "loaded": module.loaded != "",
        "loaded_version": loaded,
        "loaded_build_id": module.loaded or None,
        "disk_version": on_disk,
        "disk_build_id": module.on_disk or None,
        "parameters": parameters,
    }


def _qdisc_json(qdisc: Qdisc) -> dict[str, Any]:
    return {
        "kind": qdisc.kind,
        "handle": qdisc.handle,
        "parent": qdisc.parent or None,
        "limit_packets": qdisc.limit_packets,
        "queued_packets": qdisc.queued_packets,
        "queued_bytes": qdisc.queued_bytes,
        "sent_packets": qdisc.sent_packets,
        "dropped_packets": qdisc.drops,
        "requeued_packets": qdisc.requeues,
    }


def report_text(
    observation: Observation, findings: Sequence[Finding], data: Mapping[str, Any]
) -> str:
    """Return the report as text: the screens of doctor and status, then what they leave out."""
    stream = io.StringIO()
    page, host = Screen(stream, False, None), observation.host
    page.print(f"nodrop {data['version']}: {status.headline(host)}")
    page.print(_NAMED if data["names"] else _LEFT_OUT)
    page.print()
    doctor.print_text(page, observation, findings, fine=True)
    page.print()
    status.print_devices(page, host, host.devices)
    page.print()
    rest = {key: value for key, value in data.items() if key not in ("version", "names", "doctor")}
    return clean_lines(stream.getvalue() + "\n".join(_lines(rest)))


def _lines(data: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of an object: ``key: value``, and nested ones indented."""
    for key, value in data.items():
        each = value if isinstance(value, list) else [value]
        if not each or not all(each) or not isinstance(each[0], (dict, str)):
            yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"
        elif isinstance(each[0], dict):
            for item in each:
                yield f"{indent}{key}:"
                yield from _lines(item, f"{indent}  ")
        elif isinstance(value, str):
            yield f"{indent}{key}: {clean(value)}"
        else:
            yield f"{indent}{key}:"
            yield from (f"{indent}  {item}" for item in each)
