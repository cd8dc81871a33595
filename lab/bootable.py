# SPDX-License-Identifier: GPL-2.0-only
"""The kernels that a guest can have, each with nodrop's modules at hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lab import uml
from lab.channels import GuestRun
from lab.guest.variant import Variant
from lab.kernel import ensure_artifacts, kbuild
from nodrop.errors import UnsupportedError
from nodrop.progress import Progress

UML = "uml"
UPSTREAM = (UML, "7.3")
"""The kernels whose tun has upstream's flag."""


def ensure(
    name: str, driver: Variant | None, flavour: str, progress: Progress
) -> tuple[str, Callable[..., GuestRun]]:
    """Make what is missing of a kernel; return its release, and what boots it.

    Args:
        name: UML or one of Debian's series.
        driver: whose tun and vhost_net are to be loaded; None: none.
        flavour: which of the lab's own kernels.

    Raises:
        UnsupportedError: not here.
        NodropError: it cannot be made.
    """
    if driver is Variant.UPSTREAM and name not in UPSTREAM:
        raise UnsupportedError(
            f"The tun of {name} has no flow control of upstream's.",
            f"These have: {', '.join(UPSTREAM)}.",
        )
    if name == UML:
        kernel = kbuild.ensure_kernel(progress, flavour)
        return kernel.release, partial(
            uml.run, kernel, artifacts=ensure_artifacts(kernel, progress)
        )
    from lab.debian import Setup, ensure_machine, ensure_packages

    machine = ensure_machine(name, Setup.INSTALLED, ensure_packages(progress), progress)
    return machine.kernel.release, machine.run
