# SPDX-License-Identifier: GPL-2.0-only
"""CPU time of the processes of a guest."""

from __future__ import annotations

import time

_PROCESS_CLOCK = 2


def process_ns(pid: int) -> int:
    """Return the CPU time of all threads of a process, ns; in user-mode Linux in ticks of 10 ms.

    Raises:
        OSError: there is none.
    """
    # The number of a process's clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
