# SPDX-License-Identifier: GPL-2.0-only
"""What must be the same for runs to be compared: machine, kernel, modules, programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nodrop.bench import machine, programs
from nodrop.bench.digest import LENGTH, digest
from nodrop.bench.scenario import Scenario
from nodrop.kernel import Artifacts, Kernel
from nodrop.kernel.artifacts import content_hash

MACHINE_ID = Path("/etc/machine-id")


def describe(kernel: Kernel, artifacts: Artifacts, scenarios: Iterable[Scenario]) -> dict[str, Any]:
    """Return what names the machine, the kernel and all that is run and measured.

    Of the machine's own programs and of the repository's files it has those that the scenarios use.

    Raises:
        OSError: a file cannot be read.
    """
    here = machine.describe_machine()
    package, scenarios = machine.REPOSITORY / "nodrop", list(scenarios)
    inputs = {path for one in scenarios for path in programs.inputs(one)}
    return {
        "machine": {
            "id": _machine_id(),
            **{name: here[name] for name in ("cpu", "cpus", "host_kernel")},
        },
        "kernel": {"release": kernel.release, "build_id": kernel.build_id},
        "nodrop": (machine.REPOSITORY / "kmod" / "VERSION").read_text().strip(),
        "modules": {
            str(path.relative_to(artifacts.modules)): digest(path)
            for path in sorted(artifacts.modules.rglob("*.ko"))
        },
        "programs": {
            path.name: digest(path) for path in sorted(artifacts.bin.iterdir()) if path.is_file()
        },
        "guest": content_hash(package / "guest")[:LENGTH],
        "files": {
            str(path.relative_to(machine.REPOSITORY)): digest(path) if path.exists() else ""
            for path in sorted({*inputs, package / "load.py"})
        },
        "host_programs": programs.describe(
            {name for one in scenarios for name in programs.needed(one)}
        ),
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs, in words such as ``kernel build_id: it was a1, now it is b2``."""
    found = []
    for path, old, new in _walk("", then, now):
        found.append(f"{path}: it was {_word(old)}, now it is {_word(new)}")
    return found


def _walk(path: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*then, *now]):
            yield from _walk(f"{path} {name}".strip(), then.get(name), now.get(name))
    elif then != now:
        yield path, then, now


def _word(value: Any) -> str:
    return "unknown" if value in (None, "") else str(value)


def _machine_id() -> str:
    """Return a name of this machine; its own id is nobody's business and stays here."""
    try:
        own = MACHINE_ID.read_text().strip()
    except OSError:
        return ""
    return hashlib.sha256(f"nodrop {own}".encode()).hexdigest()[:LENGTH]
