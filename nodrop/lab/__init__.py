# SPDX-License-Identifier: GPL-2.0-only
"""The lab: runs a command in a real kernel that is a process of this machine."""

from nodrop.lab.splats import Splat, find_splats
from nodrop.lab.uml import GuestDied, GuestRun, GuestTimeout, run

__all__ = ["GuestDied", "GuestRun", "GuestTimeout", "Splat", "find_splats", "run"]
