# SPDX-License-Identifier: GPL-2.0-only
"""Boots a kernel that the lab has built, by what it was built for.

In QEMU a guest is what it is under User-Mode Linux: the host's files at the same paths,
read-only under an overlay in memory, ``guest-init``, and the same three channels.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from nodrop.kernel import Artifacts, Kernel
from nodrop.lab import accel, again, plan, qemu, uml
from nodrop.lab.hearing import GuestRun, channels, hear, results_folder
from nodrop.lab.terminal import Terminal

UML = "um"
SLOWER = 2.0
"""How many times longer than others a kernel takes that QEMU runs: it looks for data races."""

_MACHINE = plan.Machine(output="ttyS1", status="ttyS2", results="9p")
_COMMAND_LINE = (
    "root=files",
    "rootfstype=9p",
    "rootflags=trans=virtio,version=9p2000.L,msize=262144,cache=loose,access=any",
    "ro",
    "console=ttyS0",
    "loglevel=7",
    "dummy.numdummies=0",  # devices only when somebody asks for them
    "oops=panic",
    "panic=-1",  # at once: a dead guest must not wait
)


def run(
    kernel: Kernel,
    argv: Sequence[str | os.PathLike[str]],
    *,
    out: Path,
    artifacts: Artifacts | None = None,
    cpus: int = 2,
    memory: str = "2G",
    timeout: float | None = 60.0,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    urgent: bool = False,
    terminal: Terminal | None = None,
) -> GuestRun:
    """Boot a kernel, run ``argv`` in it as root, and wait for its end.

    Args and what is raised: as :func:`nodrop.lab.uml.run`. In QEMU ``timeout`` is stretched by
    NODROP_SLOW, the guest gets no favours for being urgent, and its log is kept as kernel.log.
    """
    if kernel.arch == UML:
        boot_uml = partial(
            uml.run,
            kernel,
            argv,
            out=out,
            artifacts=artifacts,
            cpus=cpus,
            memory=memory,
            timeout=timeout,
            env=env,
            on_line=on_line,
            urgent=urgent,
            terminal=terminal,
        )
        return again.insist(boot_uml, listened=bool(terminal or on_line))
    if not argv:
        raise ValueError("no command for the guest")
    out = results_folder(out)
    how = accel.choose(kernel.linux)
    slow = how.slow * SLOWER
    more = {"NODROP_SLOW": f"{slow:g}", **dict(env or {})}
    text = plan.render(_MACHINE, argv, out, plan.environment(out, artifacts, more), terminal)

    def boot() -> GuestRun:
        with (
            tempfile.TemporaryDirectory(prefix="nodrop-qemu-") as scratch,
            channels() as (ours, theirs),
        ):
            orders = Path(scratch) / "plan"
            orders.write_text(text, encoding="utf-8")
            init = (f"init={plan.INIT}", "--", str(orders))
            command = [
                *qemu.machine(how, cpus, memory, theirs),
                *("-kernel", str(kernel.linux)),
                *("-append", " ".join([*_COMMAND_LINE, *kernel.arguments, *init])),
                *qemu.folder(Path("/"), "files", "readonly=on", "multidevs=remap"),
                *qemu.folder(out, "results"),
            ]
            with qemu.start(command, theirs) as process:
                return hear(
                    process,
                    ours,
                    timeout=None if timeout is None else timeout * slow,
                    slow=slow,
                    on_line=on_line,
                    keep=out / "kernel.log",
                    terminal=terminal,
                )

    return again.insist(boot, listened=bool(terminal or on_line))
