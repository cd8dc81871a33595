# SPDX-License-Identifier: GPL-2.0-only
"""The kernels that a guest can have, each with nodrop's modules at hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nodrop.errors import UnsupportedError
from nodrop.guest.plan import Variant
from nodrop.kernel import build, ensure_artifacts
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.lab import uml
from nodrop.lab.hearing import GuestRun, results_folder
from nodrop.lab.terminal import Terminal
from nodrop.progress import Progress

UML = "uml"
UPSTREAM = (UML, "7.3")
"""The kernels whose tun has upstream's flag."""


@dataclass(frozen=True)
class Guest:
    """A guest that is wanted.

    Attributes:
        kernel: its name.
        driver: whose tun and vhost_net are loaded before the command; None: none.
        flavour: which of the lab's own kernels.
        cpus: virtual CPUs.
        memory: such as "2G".
        timeout: seconds; None: no limit.
        out: the folder whose files survive.
        env: more environment for the command.
    """

    kernel: str
    driver: Variant | None
    flavour: str
    cpus: int
    memory: str
    timeout: float | None
    out: Path
    env: Mapping[str, str] = field(default_factory=dict)


def run(
    guest: Guest,
    command: Sequence[str],
    progress: Progress,
    *,
    on_line: Callable[[str], None],
    terminal: Callable[[str], Terminal] | None = None,
) -> GuestRun:
    """Make what is missing, boot the guest, run a command in it, wait for its end.

    Args:
        progress: shows the making; the caller's for no longer than that.
        on_line: called with each line of output; not for a command with a terminal.
        terminal: called when all is there, with the kernel's release; gives the terminal.

    Raises:
        UnsupportedError: not here.
        NodropError: see :func:`nodrop.lab.uml.run`.
    """
    if guest.driver is Variant.UPSTREAM and guest.kernel not in UPSTREAM:
        raise UnsupportedError(
            f"The tun of {guest.kernel} has no flow control of upstream's.",
            f"These have: {', '.join(UPSTREAM)}.",
        )
    results_folder(guest.out)
    make = _own if guest.kernel == UML else _debian
    with progress:
        release, boot = make(guest, progress)
    argv = list(command)
    if guest.driver:
        python = sys.executable if guest.kernel == UML else "python3"
        argv = [python, "-m", "nodrop.guest.loaded", str(guest.driver), *argv]
    with terminal(release) if terminal else nullcontext() as theirs:
        return boot(
            argv,
            out=guest.out,
            cpus=guest.cpus,
            memory=guest.memory,
            timeout=guest.timeout,
            env={"PYTHONPATH": str(REPOSITORY), "PS1": r"lab:\w\$ ", **guest.env},
            on_line=on_line,
            terminal=theirs,
        )


_Boot = Callable[..., GuestRun]


def _own(guest: Guest, progress: Progress) -> tuple[str, _Boot]:
    kernel = build.ensure_kernel(progress, guest.flavour)
    artifacts = ensure_artifacts(kernel, progress)
    return kernel.release, partial(uml.run, kernel, artifacts=artifacts)


def _debian(guest: Guest, progress: Progress) -> tuple[str, _Boot]:
    if not (REPOSITORY / "scripts/deb").exists():
        raise UnsupportedError(
            "Debian's kernels get nodrop from its packages, which only a clone can build.",
            "Run this in a clone, or take '--kernel uml'.",
        )
    from nodrop.lab.machine import Setup, ensure_machine, ensure_packages

    machine = ensure_machine(guest.kernel, Setup.INSTALLED, ensure_packages(progress), progress)
    return machine.kernel.release, machine.run
