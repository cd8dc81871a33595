# SPDX-License-Identifier: GPL-2.0-only
"""The stall guard in tests of other things: it never trips, as it would hide a missing wake."""

from __future__ import annotations

from pathlib import Path

from guestlib.drivers import Drivers

LATE_MS = "600000"
"""Longer than any wait of a test."""
GUARDS = tuple(Path(f"/sys/module/{name}/parameters/guard_ms") for name in ("nodrop", "tap"))


def postpone() -> None:
    """Set each guard_ms of the loaded modules to LATE_MS."""
    for guard in GUARDS:
        if guard.exists():
            guard.write_text(LATE_MS, encoding="ascii")


class LateDrivers(Drivers):
    """The drivers, whose guard never trips."""

    def load(self, wanted: list[str]) -> None:
        """Load modules, as Drivers does, and postpone their guard."""
        super().load(wanted)
        postpone()
