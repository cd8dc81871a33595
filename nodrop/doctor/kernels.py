# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the installed kernels: whether nodrop is built, or can be, for those in use."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import MACHINE, Verdict, ok, warn
from nodrop.doctor.look import Look
from nodrop.host.model import Driver
from nodrop.host.system import Kernel, System, order


@MACHINE("headers-missing")
def headers_missing(look: Look) -> Verdict | None:
    """Modules cannot be built for the running kernel."""
    system = look.system
    running = system.running
    if system.container or (running and running.nodrop) or look.host.tun.driver is Driver.NODROP:
        return None
    if running and running.headers:
        return ok("the running kernel's headers are installed")
    fix = [f"apt install linux-headers-{system.release}"]
    if system.distribution != "debian":
        fix = [f"# install the package with the headers of {system.release}"]
    elif not system.headers_offered:
        fix = [
            f"# apt has no linux-headers-{system.release}: run 'apt update', or boot another",
            "# kernel; for a kernel of your own: make -C kmod KSRC=SOURCE KOBJ=BUILD OUT=DIR",
        ]
    return warn(
        f"the headers of the running kernel {system.release} are missing",
        "nodrop cannot be built for it",
        *fix,
    )


@MACHINE("not-built")
def not_built(look: Look) -> Verdict | None:
    """nodrop is installed, but not for the running kernel, or not for the newest."""
    system = look.system
    if not system.tree or system.container:
        return None
    wanted = {one.release: one for one in (system.running, system.newest) if one}
    without = [one for one in wanted.values() if not one.nodrop]
    if not without:
        return ok(
            f"nodrop is built for {' and '.join(wanted) or 'no kernel: none is installed here'}"
        )
    one = without[0]
    return warn(
        f"nodrop is not built for {_name(system, one)}"
        + (f": {one.why_not}" if one.why_not else ""),
        "that kernel loads the stock tun, which drops",
        *(() if one.headers else (f"apt install linux-headers-{one.release}",)),
        f"dkms autoinstall -k {one.release}",
        f"# the log of the build: /var/log/nodrop/{one.release}.log",
    )


def _name(system: System, kernel: Kernel) -> str:
    which = "running" if kernel.release == system.release else "newest"
    return f"the {which} kernel {kernel.release}"


@MACHINE("kernel-pending")
def kernel_pending(look: Look) -> Verdict | None:
    """The next boot uses another kernel."""
    system = look.system
    if system.container:
        return None
    newest = system.newest
    if newest is None or order(newest.release) <= order(system.release):
        return ok("the newest installed kernel is running")
    has = "has nodrop" if newest.nodrop else "does not have nodrop: its tun drops"
    build = () if newest.nodrop else (f"dkms autoinstall -k {newest.release}",)
    if not newest.nodrop and not system.tree:
        build = (fixes.command("install"),)
    return warn(
        f"{newest.release} is installed, but {system.release} is running",
        f"the next boot uses the newer one, which {has}",
        *build,
        "reboot",
    )
