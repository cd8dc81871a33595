# SPDX-License-Identifier: GPL-2.0-only
"""Where a run was made, and how to make it again: its metadata in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodrop.guest.plan import Variant
from nodrop.report.files import RunDirectory

UNKNOWN = "not recorded"
OUR_MODULES = ("nodrop/nodrop.ko", "nodrop/tun.ko", "nodrop/vhost_net.ko")


def facts(directory: RunDirectory, summaries: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the metadata tell, as names and values."""
    meta = directory.meta
    machine, kernel, guest = (_part(meta, name) for name in ("machine", "kernel", "guest"))
    found = [
        ("Measured", f"{meta.get('started', UNKNOWN)}, {_extent(directory, summaries)}"),
        *_continued(meta),
        ("Machine", _machine(machine)),
        ("Its kernel", f"Linux {machine.get('host_kernel', UNKNOWN)}"),
        (
            "Measured kernel",
            f"Linux {kernel.get('release', UNKNOWN)} in user mode, from "
            f"{kernel.get('package', UNKNOWN)}, build {kernel.get('build_id', UNKNOWN)}",
        ),
        ("Guest", _guest(guest)),
    ]
    found += [
        (f"Driver {name}", what) for name, what in drivers(directory) if name in meta["variants"]
    ]
    return found


def drivers(directory: RunDirectory) -> list[tuple[str, str]]:
    """Return each driver's name and what it was."""
    kernel = _part(directory.meta, "kernel")
    module = f"the modules of Linux {kernel.get('release', UNKNOWN)}"
    return [
        ("stock", f"{module}, opened as every application opens them"),
        ("upstream", f"{module}, opened with IFF_BACKPRESSURE"),
        ("nodrop", source(directory)),
    ]


def source(directory: RunDirectory) -> str:
    """Return which nodrop was measured.

    Its digest tells its source from others whatever became of the history; older data have only
    those of the modules and of the guest's code. The commit is what the clone said then.
    """
    found = _part(directory.meta, "source")
    words = [f"version {found['version']}"] if "version" in found else []
    words += _digests(directory.meta)
    words += [f"recorded at commit {found['commit']}"] if "commit" in found else []
    if found.get("modified"):
        words.append("with changes that were not committed")
    return ", ".join(words) or UNKNOWN


def _digests(meta: Mapping[str, Any]) -> list[str]:
    if digest := _part(meta, "source").get("digest"):
        return [f"digest of its source {digest}"]
    identity = _part(meta, "identity")
    modules = _part(identity, "modules")
    words = [f"{Path(name).name} {modules[name]}" for name in OUR_MODULES if name in modules]
    words += [f"the guest's code {identity['guest']}"] if "guest" in identity else []
    return [f"digest of its source {UNKNOWN}", *(f"of {one}" for one in words)]


def again(directory: RunDirectory) -> list[str]:
    """Return the commands that measure the same again, with the same lengths."""
    meta = directory.meta
    commands = []
    if digest := _part(meta, "source").get("digest"):
        same = f'test "$(python -m nodrop.bench.source)" = {shlex.quote(str(digest))}'
        commands.append(f"{same}  # or it is another source")
    for scenario in directory.scenarios.values():
        words = ["nodrop", "bench", scenario.name]
        words += ["--pairs", str(scenario.pairs), "--seconds", f"{scenario.seconds:g}"]
        if list(meta["variants"]) != [str(variant) for variant in Variant]:
            words += ["--variants", ",".join(meta["variants"])]
        commands.append(shlex.join(words))
    return commands


def _part(meta: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = meta.get(name)
    return part if isinstance(part, dict) else {}


def _continued(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [
        f"at {entry['at']}, after {_count(entry['runs_before'], 'run')}"
        for entry in meta.get("continued", [])
    ]
    return [("Interrupted, and continued", "; ".join(found))] if found else []


def _extent(directory: RunDirectory, summaries: Mapping[str, Any]) -> str:
    drivers_count = len(directory.meta["variants"])
    planned = sum(
        len(scenario.cases()) * scenario.pairs * drivers_count
        for scenario in directory.scenarios.values()
    )
    lengths = "; ".join(
        f"{name}: {_count(summary['pairs'], 'pair')} of {summary['seconds']:g} s"
        for name, summary in summaries.items()
    )
    done = len(directory.runs)
    runs = f"all {done} runs" if done == planned else f"{done} of {planned} runs"
    return f"{lengths} ({runs})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _machine(machine: Mapping[str, Any]) -> str:
    words = [str(machine.get("cpu", UNKNOWN)), f"{machine.get('cpus', '?')} CPUs"]
    if isinstance(memory := machine.get("memory_bytes"), int):
        words.append(f"{memory / 2**30:.1f} GiB")
    if "load_1min" in machine:
        words.append(f"load {machine['load_1min']} before the run")
    return ", ".join(words)


def _guest(guest: Mapping[str, Any]) -> str:
    if not guest:
        return UNKNOWN
    sysctls = _part(guest, "sysctls")
    words = [f"{guest.get('cpus', '?')} CPUs", f"{guest.get('memory', '?')} of memory"]
    words += [f"{name.replace('/', '.')}={value}" for name, value in sysctls.items()]
    return ", ".join(words)
