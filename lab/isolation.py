# SPDX-License-Identifier: GPL-2.0-only
"""How well a guest's process can be isolated from the host on this machine.

Root needs no user namespace. Other users do, and some machines, mostly containers, allow none.
The guest then runs as a plain process: its kernel still mounts the host's files read-only, but
nothing outside the guest enforces that.
"""

from __future__ import annotations

import os
from enum import Enum
from functools import cache

from nodrop import proc

TRIAL_TIMEOUT_S = 10.0

# Root's capabilities that a UML kernel needs, to reach the host's files. Without the others it
# cannot undo its isolation.
_KEPT_RIGHTS = "-all,+dac_override,+dac_read_search,+chown,+fowner"


class Isolation(Enum):
    """Kinds of isolation, strongest first."""

    ROOT = "namespaces"
    USER = "user namespace"
    NONE = "none"

    def wrapper(self) -> list[str]:
        """Return the command to put before the sandbox's own."""
        die_with_parent = [proc.require("setpriv", "util-linux"), "--pdeathsig", "KILL"]
        if self is Isolation.NONE:
            return [*die_with_parent, "--"]
        unshare = [proc.require("unshare", "util-linux"), "--mount", "--pid", "--net", "--ipc"]
        unshare += ["--fork", "--kill-child=KILL"]
        if self is Isolation.USER:
            unshare.append("--map-root-user")
        return [*die_with_parent, "--", *unshare, "--"]

    def limits(self) -> list[str]:
        """Return the command to put before the kernel, once the sandbox is set up."""
        if self is Isolation.NONE:
            return []
        setpriv = proc.require("setpriv", "util-linux")
        return [setpriv, "--inh-caps=-all", f"--bounding-set={_KEPT_RIGHTS}", "--"]


@cache
def isolation() -> Isolation:
    """Return the strongest isolation that works here, tried once per process."""
    wanted = Isolation.ROOT if os.geteuid() == 0 else Isolation.USER
    for mode in dict.fromkeys((wanted, Isolation.USER)):
        if proc.run([*mode.wrapper(), "true"], timeout=TRIAL_TIMEOUT_S, late=1).status == 0:
            return mode
    return Isolation.NONE
