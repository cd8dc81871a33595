# SPDX-License-Identifier: GPL-2.0-only
"""The lab: runs a command in a real kernel that this machine's own cannot be harmed by."""

from lab.hearing import GuestDied, GuestRun, GuestTimeout
from lab.splats import Splat, find_splats
from lab.uml import run

__all__ = ["GuestDied", "GuestRun", "GuestTimeout", "Splat", "find_splats", "run"]
