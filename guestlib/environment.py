# SPDX-License-Identifier: GPL-2.0-only
"""The directories of a guest: modules, programs, results."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from guestlib.failure import GuestError


@dataclass(frozen=True)
class Environment:
    """The directories that the lab provides to a guest's command.

    Attributes:
        out: the only one whose files survive (LAB_OUT).
        modules: the kernel modules (LAB_MODULES).
        bin: the traffic programs (LAB_BIN).
    """

    out: Path
    modules: Path
    bin: Path

    @classmethod
    def from_environ(cls) -> Environment:
        """Read the environment variables.

        Raises:
            GuestError: one of them is not set.
        """
        try:
            return cls(
                out=Path(os.environ["LAB_OUT"]),
                modules=Path(os.environ["LAB_MODULES"]),
                bin=Path(os.environ["LAB_BIN"]),
            )
        except KeyError as missing:
            raise GuestError(
                f"{missing.args[0]} is not set; the lab starts this program"
            ) from missing
