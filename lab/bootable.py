# SPDX-License-Identifier: GPL-2.0-only
"""Kernels by name, each with nodrop's modules, ready to boot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lab import uml
from lab.channels import GuestRun
from lab.kernel import ensure_artifacts, kbuild
from lab.variant import Variant
from nodrop.errors import UnsupportedError
from nodrop.progress import Progress

UML = "uml"
UPSTREAM = (UML, "7.3")
"""The kernels whose tun has upstream's flag."""


def ensure(
    name: str, driver: Variant | None, flavour: str, progress: Progress
) -> tuple[str, Callable[..., GuestRun]]:
    """Build or fetch what is missing of a kernel; return its release and a function to boot it.

    Args:
        name: UML or a Debian kernel's series.
        driver: the variant of tun and vhost_net that will be loaded; None: none.
        flavour: of the UML kernel.

    Raises:
        UnsupportedError: this kernel does not have that driver.
        NodropError: the kernel cannot be built or fetched.
    """
    if driver is Variant.UPSTREAM and name not in UPSTREAM:
        raise UnsupportedError(
            f"The tun of {name} does not have upstream's flow control.",
            f"These kernels have it: {', '.join(UPSTREAM)}.",
        )
    if name == UML:
        kernel = kbuild.ensure_kernel(progress, flavour)
        return kernel.release, partial(
            uml.run, kernel, artifacts=ensure_artifacts(kernel, progress)
        )
    from lab.debian import Setup, ensure_machine, ensure_packages

    machine = ensure_machine(name, Setup.INSTALLED, ensure_packages(progress), progress)
    return machine.kernel.release, machine.run
