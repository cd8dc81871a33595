# SPDX-License-Identifier: GPL-2.0-only
"""The plan: the shell file from which a guest's init takes its command and environment."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.kernel import Artifacts
from lab.terminal import Terminal

INIT = Path(__file__).with_name("guest-init")

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""A guest's search path for programs."""


def environment(
    out: Path, artifacts: Artifacts | None, extra: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the command's environment: the same Python with the same packages as here.

    Args:
        out: NODROP_OUT.
        artifacts: NODROP_MODULES and NODROP_BIN; None: neither.
        extra: overrides the above.
    """
    path = f"{Path(sys.executable).parent}:{PATH}"
    env = {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "NODROP_OUT": str(out)}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if artifacts:
        env["NODROP_MODULES"] = str(artifacts.modules)
        env["NODROP_BIN"] = str(artifacts.bin)
    return env | dict(extra or {})


def render(
    argv: Sequence[str | os.PathLike[str]],
    out: Path,
    env: Mapping[str, str],
    terminal: Terminal | None,
) -> str:
    """Return the plan's text."""
    words = " ".join(shlex.quote(os.fspath(word)) for word in argv)
    lines = [
        f"LAB_OUT={shlex.quote(str(out))}",
        f"LAB_CWD={shlex.quote(str(Path.cwd()))}",
    ]
    if terminal:
        lines.append("LAB_TTY='rows {} cols {}'".format(*terminal.size))
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    return "\n".join([*lines, f"set -- {words}", ""])
