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
        out: the only one whose files survive (NODROP_OUT).
        modules: the kernel modules (NODROP_MODULES).
        bin: the traffic programs (NODROP_BIN).
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
                out=Path(os.environ["NODROP_OUT"]),
                modules=Path(os.environ["NODROP_MODULES"]),
                bin=Path(os.environ["NODROP_BIN"]),
            )
        except KeyError as missing:
            raise GuestError(
                f"{missing.args[0]} is not set; the lab starts this program"
            ) from missing
