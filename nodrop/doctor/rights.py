# SPDX-License-Identifier: GPL-2.0-only
"""Checks of what this process may see and set."""

from __future__ import annotations

from nodrop.doctor.finding import CHECKS, Verdict, skipped
from nodrop.doctor.look import Look


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
