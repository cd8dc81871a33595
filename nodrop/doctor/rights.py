# SPDX-License-Identifier: GPL-2.0-only
"""Checks of what this process may see and set."""

from __future__ import annotations

from nodrop.doctor.finding import CHECKS, Verdict, ok, skipped, warn
from nodrop.doctor.look import Look


@CHECKS.machine("container-rights")
def container_rights(look: Look) -> Verdict | None:
    """This container may not configure its own network."""
    system = look.system
    if not system.container:
        return None
    if system.net_admin:
        return ok("this container may configure its network")
    if not look.host.root:
        return skipped("needs root (to know what this container may do)")
    return warn(
        f"this {system.container} container may set no txqueuelen and no qdisc",
        "what is wrong with its devices can be repaired from its host only",
        "# on the host, with the pid of a process of the container:",
        "nodrop doctor -n PID",
        "# or give it the right: docker run --cap-add=NET_ADMIN",
    )


@CHECKS.machine("namespaces")
def namespaces(look: Look) -> Verdict | None:
    """Some namespaces were not looked into."""
    unread = look.host.unread
    if not unread:
        return None
    names = ", ".join(sorted(unread)[:5]) + (" ..." if len(unread) > 5 else "")
    if look.host.root:
        return skipped(f"namespaces that went away: {names}")
    return skipped(f"needs root (to enter the namespaces {names})")
