# SPDX-License-Identifier: GPL-2.0-only
"""``python -m guestlib.with_driver DRIVER COMMAND...``: load a driver, exec the command."""

from __future__ import annotations

import os
import sys

from guestlib.drivers import READER, Drivers, modules
from guestlib.environment import Environment
from guestlib.failure import GuestError
from lab.variant import Variant

NOT_FOUND = 127


def load(variant: Variant) -> None:
    """Load a variant's tun and vhost_net and their dependencies.

    Raises:
        GuestError: a module is missing or cannot be loaded.
    """
    wanted = [name for name in modules(variant, variant) if name != READER]
    Drivers(Environment.from_environ().modules).load(wanted)


def main(argv: list[str]) -> int:
    """Load and exec; return 127 if the command cannot be run, 1 if a module cannot be loaded."""
    driver, *command = argv
    try:
        load(Variant(driver))
        os.execvp(command[0], command)
    except GuestError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"nodrop: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
