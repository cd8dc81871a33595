# SPDX-License-Identifier: GPL-2.0-only
"""Machines with nodrop's modules, ready to boot: the lab's UML kernels, and Debian's in QEMU.

A Debian machine is a system on which an administrator has installed nodrop.

nodrop is installed in a layer over the Debian root, so its modules are built there, by that
release's compiler, at this machine's speed. Another layer holds what only the tests need: their
kernel modules and the traffic programs, built for the same kernel, and copies of the kernel's own
drivers, because DKMS may move the originals while nodrop's are installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from lab import qemu, roots, uml
from lab.guest import GuestRun
from lab.kernel import cache, ensure_artifacts, kbuild
from lab.roots import DebianKernel, ensure_kernel
from lab.sources import REPOSITORY, content_hash
from lab.variant import Variant
from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError
from nodrop.progress import Progress

UML = "uml"
UPSTREAM = (UML, "7.3")
"""The kernels whose tun has upstream's flag."""
DEB_TIMEOUT_S = 600.0
_PACKAGED = (*("debian", "dkms", "docs", "kmod", "nodrop", "packaging", "results"),)
TOOLS = Path("/opt/nodrop-lab")
"""Where a guest finds the tests' own modules and programs."""

_INSTALL = """\
dpkg --install {package}
for kernel in /lib/modules/*; do
	dkms autoinstall -k "${{kernel##*/}}"
	modinfo -k "${{kernel##*/}}" -F filename tun | grep /updates/
done
"""
_INSTALL_FROM_SOURCE = """\
dpkg --install {package}
mkdir /var/tree
tar -C /var/tree -xf /usr/src/linux-source-*.tar.xz --strip-components=1 --wildcards \\
	'*/Makefile' '*/drivers/net/t[ua][np]*' '*/drivers/vhost/*'
for kernel in /lib/modules/*; do
	/usr/src/nodrop-*/dkms/install -k "${{kernel##*/}}" -s /var/tree
	modinfo -k "${{kernel##*/}}" -F filename nodrop_tun | grep /updates/
done
grep -x nodrop_tun /etc/modules-load.d/zz-nodrop.conf
"""
"""For a kernel whose package has no source package."""
_COMMAND = "dpkg --install {package}\n"
_REMOVE = """\
dpkg --purge nodrop-dkms
for kernel in /lib/modules/*; do
	modinfo -k "${kernel##*/}" -F filename tun | grep -e /kernel/ -e builtin
done
test ! -e /etc/modules-load.d/zz-nodrop.conf
"""
_LIVE = """\
mkdir -p {tools}/live/twin
PYTHONPATH={repository} python3 -c '
from pathlib import Path
from nodrop.host.livepatch import build
build("{release}", None, Path("{tools}/live"), print)
'
cp {tools}/live/build/twin/tun.ko {tools}/live/twin/
rm -rf {tools}/live/build {tools}/live/source
"""
_FOREIGN = REPOSITORY / "tests/kernels/live/foreign"
_TOOLS = """\
make -C {traffic} OUT={tools}/bin programs
make -C {traffic} KOBJ=/lib/modules/{release}/build OUT={tools}/modules kreader
rm -rf {tools}/modules/kreader-build
cp -r {foreign} {tools}/foreign
make -C /lib/modules/{release}/build M={tools}/foreign modules
find {tools}/foreign -name foreign.ko -exec mv {{}} {tools}/modules/ \\;
rm -rf {tools}/foreign
mkdir {tools}/modules/stock
for name in tun tap vhost vhost_iotlb vhost_net macvlan macvtap ipvlan ipvtap; do
	find /lib/modules/{release}/kernel -name "$name.ko*" -exec cp {{}} {tools}/modules/stock/ \\;
done
for module in {tools}/modules/stock/*.xz; do
	test ! -e "$module" || xz -d "$module"
done
"""
_KSELFTESTS = """\
mkdir -p {tools}/upstream
cd {tools}/upstream
below=linux-source-{name}/tools/testing/selftests
tar --strip-components=4 --wildcards -xf /usr/src/linux-source-{name}.tar.xz \\
	"$below/kselftest*" "$below/net/*" || test -d net
for program in tun tap; do
	gcc -O2 -I. -Inet -o net/$program net/$program.c || echo "$program is not built"
done
"""


class Setup(Enum):
    """How an administrator has set nodrop up."""

    INSTALLED = "installed"
    """The packages are installed: modules and command."""
    REMOVED = "removed"
    """The package with the modules was installed and then purged."""
    LIVE = "live"
    """The livepatch was built; the kernel's own modules remain."""


LIVE_KERNELS = ("6.1", "6.12")
"""The kernels on which the livepatch is tested."""


def setups(name: str) -> tuple[Setup, ...]:
    return tuple(s for s in Setup if s is not Setup.LIVE or name in LIVE_KERNELS)


@dataclass(frozen=True)
class Machine:
    """A Debian kernel with a setup of nodrop and the tests' tools.

    Attributes:
        kernel: the kernel and its root.
        layers: images over the root, topmost last.
    """

    kernel: DebianKernel
    layers: tuple[Path, ...]

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> GuestRun:
        """Boot it, run a command and wait for its end; options are those of lab.qemu.run."""
        tools = {
            "LAB_MODULES": f"{TOOLS}/modules",
            "LAB_BIN": f"{TOOLS}/bin",
            "PYTHONPATH": str(REPOSITORY),
        }
        return qemu.run(
            self.kernel,
            argv,
            layers=self.layers,
            share=[REPOSITORY],
            env=tools | dict(env or {}),
            **options,
        )


def ensure_packages(progress: Progress) -> tuple[Path, ...]:
    """Return nodrop's Debian packages, rebuilt by ``make deb`` if a source has changed."""
    trees = [REPOSITORY / name for name in _PACKAGED]
    pages = [REPOSITORY / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")]
    key = cache.digest(content_hash(*trees, *pages))

    def make(temporary: Path, _final: Path) -> None:
        with progress.step("Build nodrop's packages"):
            result = proc.run(
                [REPOSITORY / "packaging/deb"],
                timeout=DEB_TIMEOUT_S,
                env={**os.environ, "OUT": str(temporary)},
            )
        if result.status != 0:
            raise NodropError("Cannot build nodrop's packages.", proc.tail(result.output))

    return tuple(sorted(cache.Cache("packages", keep=4).get(key, make).glob("*.deb")))


def ensure_machine(
    name: str, setup: Setup, packages: Sequence[Path], progress: Progress
) -> Machine:
    """Return a Debian machine, from the cache if possible.

    Args:
        name: the kernel's series, such as "6.12".
        packages: must include nodrop-dkms and nodrop.
    """
    kernel = ensure_kernel(name, progress)
    with progress.step(f"Set up {kernel.release}: {setup.value}"):
        layers = [_tools_layer(kernel)]
        if setup is Setup.LIVE:
            layers.append(_live_layer(kernel))
        else:
            script = _INSTALL_FROM_SOURCE if name in roots.BUILTIN.kernels else _INSTALL
            layers.append(_package_layer(kernel, "nodrop-dkms", packages, script))
        if setup is Setup.INSTALLED:
            # A layer of its own, so that a change to the command rebuilds no modules.
            layers.append(_package_layer(kernel, "nodrop", packages, _COMMAND, over=layers[-1]))
            # The kernel's own tests of network drivers, from the source package in the root.
            script = _KSELFTESTS.format(tools=TOOLS, name=kernel.series)
            layers.append(roots.ensure_layer(kernel.root, script))
        if setup is Setup.REMOVED:
            layers.append(roots.ensure_layer(kernel.root, _REMOVE, over=layers[-1]))
    return Machine(kernel, tuple(layer.image for layer in layers))


def _package_layer(
    kernel: DebianKernel,
    name: str,
    packages: Sequence[Path],
    script: str,
    over: roots.Layer | None = None,
) -> roots.Layer:
    """Return the layer in which a script has installed a package, its ``{package}``."""
    chosen = [path.resolve() for path in packages if path.name.startswith(f"{name}_")]
    if not chosen:
        raise NodropError(f"The package {name} is missing.", "Build it with: make deb")
    (package,) = chosen
    return roots.ensure_layer(
        kernel.root,
        script.format(package=package),
        inputs=[content_hash(package)],
        over=over,
        share=[package.parent],
    )


def _live_layer(kernel: DebianKernel) -> roots.Layer:
    """Return the layer with the livepatch, built as ``nodrop livepatch load`` builds it."""
    script = _LIVE.format(repository=REPOSITORY, release=kernel.release, tools=TOOLS)
    trees = ("dkms", "kmod", "nodrop/host")
    inputs = content_hash(*(REPOSITORY / tree for tree in trees))
    return roots.ensure_layer(kernel.root, script, inputs=[inputs], share=[REPOSITORY])


def _tools_layer(kernel: DebianKernel) -> roots.Layer:
    traffic = REPOSITORY / "guestlib/traffic"
    names = {"traffic": traffic, "foreign": _FOREIGN, "tools": TOOLS}
    script = _TOOLS.format(**names, release=kernel.release)
    shared = [traffic, _FOREIGN]
    return roots.ensure_layer(kernel.root, script, inputs=[content_hash(*shared)], share=shared)


def bootable(
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
    machine = ensure_machine(name, Setup.INSTALLED, ensure_packages(progress), progress)
    return machine.kernel.release, machine.run
