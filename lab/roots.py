# SPDX-License-Identifier: GPL-2.0-only
"""Debian root file systems for guests, with each release's kernels, and layers over them.

mmdebstrap builds a root once, from this machine's mirrors. The cache keeps it as a directory (to
build in, under an overlay) and as an image (to boot from). Neither is written to afterwards.

A layer has the files that a command changed in a root. The command runs in a chroot on this
machine's kernel, at full speed. It sees the root and the shared directories, nothing else of this
machine, and has no network.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.kernel import cache, kconfig
from lab.kernel.apt import KEYRING, configured, kept_settings, render_settings
from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError
from nodrop.host.system import order
from nodrop.progress import Progress

MAKE_TIMEOUT_S = 1500.0
IMAGE_TIMEOUT_S = 600.0
QUERY_TIMEOUT_S = 60.0
LAYER_TIMEOUT_S = 900.0
IN_ROOT = Path(__file__).with_name("in-root")

NATIVE = "amd64"
"""Debian's name of the architecture of machines on which the lab runs."""
_RECIPE = 2
_COMMON = (
    "bpftrace",  # nodrop drops uses it
    "ca-certificates",  # apt needs them for https mirrors
    "dkms",
    "ethtool",
    "gcc",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libc6-dev",
    "make",
    "openssl",
    "openvpn",  # the VPNs of tests and benchmarks
    "procps",
    "python3",
    "python3-jsonschema",  # validates the command's JSON
    "python3-rich",  # for the command
    "wireguard-go",
    "wireguard-tools",
    "xz-utils",
)
_REALTIME = "-rt"
_KERNEL_PACKAGES = "linux-image-* linux-headers-* linux-source* linux-kbuild* linux-base*"

_OWN_KERNEL = r"""
set -e
cd /usr/src
tar -xf linux-source-*.tar.xz
cd linux-source-*/
make -s KCONFIG_ALLCONFIG=/usr/src/config allnoconfig
if grep '=y$' /usr/src/config | grep -vxFf .config; then
	exit 1 # it depends on another
fi
make -s -j"$(nproc)" LOCALVERSION=-builtin KDEB_PKGVERSION=1 DPKG_FLAGS=-d bindeb-pkg
dpkg --install ../linux-image-*-builtin_1_*.deb ../linux-headers-*-builtin_1_*.deb
cd ..
rm -r config linux-source-*/ *.deb *.buildinfo *.changes
"""
"""Run in a root: build and install a kernel from the source package, with /usr/src/config."""
_SAME_SOURCE = r"""
set -e
dpkg-query -W -f '${Package} ${Version}\n' 'linux-headers-[0-9]*' |
	sed -nE 's/^linux-headers-([0-9]+\.[0-9]+)\.[0-9].*-amd64 /linux-source-\1 /p' |
	while read -r package version; do
		[ "$(dpkg-query -W -f '${Version}' "$package")" = "$version" ] ||
			apt-get install -qq --allow-downgrades "$package=$version"
	done
"""
"""Run in a root: a security update publishes the source some time before the kernel."""
_FOREIGN_KERNEL = r"""
set -e
cd /tmp
of() { apt-cache depends "$1" | sed -n "s/^  Depends: \(linux-$2-.*\):{arch}$/\1/p"; }
headers=$(of linux-headers-{arch}:{arch} headers)
release=${headers#linux-headers-}
version=$(apt-cache show --no-all-versions "$headers:{arch}" | sed -n 's/^Version: //p')
apt-get install -qq "$(of "$headers:{arch}" kbuild)"
apt-get download -qq "$headers:{arch}=$version" "linux-image-$release:{arch}=$version" \
	"linux-headers-${release%-*}-common=$version" "linux-source-{series}=$version"
dpkg --force-depends --install ./*.deb
rm ./*.deb
"""
"""Run in a root: install a kernel of another architecture with its headers and their source.

Its headers depend on a compiler of that architecture. One of the root's own replaces it.
"""


@dataclass(frozen=True)
class Release:
    """A Debian release and the kernels in its root.

    Attributes:
        codename: of the release.
        kernels: their names, as in options: the series, such as "6.12", and "-rt" if it is a
            realtime kernel, or the release's name if another release has that series, too.
        packages: the kernels' packages: image, headers and source of each.
        backports: whether the kernels come from the release's backports.
        fragments: of lab/kernel/flavours.toml; if there are any, the kernel is built with them,
            from the only source package.
        architecture: of the root. Packages of another one than this machine's are unpacked only,
            because their scripts cannot run here.
        foreign: the kernel's architecture if it is another one: the root has its image, headers
            and source, and packages that compile for it.
    """

    codename: str
    kernels: tuple[str, ...]
    packages: tuple[str, ...]
    backports: bool = False
    fragments: tuple[str, ...] = ()
    architecture: str = NATIVE
    foreign: str = ""

    @property
    def included(self) -> tuple[str, ...]:
        """The packages of the root."""
        whole = self.architecture == NATIVE and not self.foreign
        return (*(_COMMON if whole else ()), *self.packages)


RELEASES = (
    Release(
        "bookworm",
        ("6.1", "6.12"),
        (
            "linux-image-amd64",
            "linux-headers-amd64",
            "linux-source-6.1",
            "linux-image-6.12-amd64",
            "linux-headers-6.12-amd64",
            "linux-source-6.12",
        ),
    ),
    Release(
        "trixie",
        ("6.12-trixie",),
        (
            *("linux-image-amd64", "linux-headers-amd64", "linux-source-6.12"),
            # For systemd as init, and sessions that it knows.
            *("dbus", "libpam-systemd", "openssh-server"),
        ),
    ),
    Release(
        "trixie",
        ("7.3", f"7.3{_REALTIME}"),
        (
            "linux-image-amd64",
            "linux-headers-amd64",
            "linux-image-rt-amd64",
            "linux-headers-rt-amd64",
            "linux-source",
        ),
        backports=True,
    ),
)
BUILTIN = Release(
    "bookworm",
    ("6.12-builtin",),
    (
        *("linux-source-6.12", "bc", "bison", "cpio", "debhelper", "dpkg-dev", "flex"),
        *("libelf-dev", "libssl-dev", "rsync", "systemd"),
    ),
    fragments=("common", "pc", "builtin", "macvtap"),
)
"""A small kernel whose tun is built in, as on Ubuntu and Proxmox; packaged as its source does."""


@dataclass(frozen=True)
class Root:
    """A Debian root file system in the cache.

    Attributes:
        path: its directory; never written to.
        image: the same as a squashfs image.
        key: a digest of all inputs.
    """

    path: Path
    image: Path
    key: str


@dataclass(frozen=True)
class DebianKernel:
    """A Debian kernel in a root.

    Attributes:
        name: as in Release.kernels.
        release: as in ``uname -r``.
        root: where it is installed.
        architecture: the root's, Debian's name.
    """

    name: str
    release: str
    root: Root
    architecture: str = field(default=NATIVE, kw_only=True)

    @property
    def series(self) -> str:
        return self.name.partition("-")[0]

    @property
    def vmlinuz(self) -> Path:
        return self.root.path / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        return self.root.path / "lib/modules" / self.release


def kernel_names() -> tuple[str, ...]:
    return tuple(name for release in (*RELEASES, BUILTIN) for name in release.kernels)


def ensure_kernel(name: str, progress: Progress) -> DebianKernel:
    """Return a Debian kernel by its name."""
    for release in (*RELEASES, BUILTIN):
        if name in release.kernels:
            return kernel_of(release, name, progress)
    raise NodropError(f"There is no kernel {name}.", f"Known are: {', '.join(kernel_names())}.")


def kernel_of(release: Release, name: str, progress: Progress) -> DebianKernel:
    """Return a release's kernel by its name."""
    root = ensure_root(release, progress)
    kernel = DebianKernel(name, "", root, architecture=release.architecture)
    found = [
        path.name
        for path in (root.path / "lib/modules").iterdir()
        if path.name.startswith(f"{kernel.series}.")
        and (f"{_REALTIME}-" in path.name) == name.endswith(_REALTIME)
    ]
    if not found:
        raise NodropError(f"The Debian root {root.path} has no kernel {name}.")
    return replace(kernel, release=max(found, key=order))


def ensure_root(release: Release, progress: Progress) -> Root:
    """Return a release's root, built if the cache has none.

    Raises:
        UnsupportedError: it must be built, and this user is not root.
        NodropError: a program is missing, or the mirror failed.
    """
    inputs = [_RECIPE, _COMMON, release.codename, release.packages, release.backports]
    if release.fragments:
        inputs += [_OWN_KERNEL, kconfig.fragments(*release.fragments)]
    if release.architecture != NATIVE or release.foreign:
        inputs += [release.architecture, release.foreign, _FOREIGN_KERNEL]
    key = cache.digest(*inputs)
    store = cache.Cache("roots", keep=20)
    if not store.find(key) and os.geteuid() != 0:
        raise UnsupportedError(
            "Only root can build Debian roots for the lab.",
            "Run this as root: it writes to the cache only.",
        )

    def make(temporary: Path, _final: Path) -> None:
        label = " ".join((release.codename, *release.kernels))
        with progress.step(f"Build a Debian root ({label})"):
            _bootstrap(release, temporary)
        with progress.step(f"Pack the Debian root ({label})"):
            make_image(temporary / "root", temporary / "root.squashfs")

    entry = store.get(key, make)
    return Root(entry / "root", entry / "root.squashfs", key)


def _bootstrap(release: Release, place: Path) -> None:
    proc.require("mmdebstrap", "mmdebstrap")
    sources = place / "sources.list"
    own, machines = configured()
    lines = sources_of(machines, own, release.codename, backports=release.backports)
    sources.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = place / "apt.conf"
    dump = proc.run(["apt-config", "dump"], timeout=QUERY_TIMEOUT_S).output
    settings.write_text(
        kept_settings(dump) + render_settings({"APT::Install-Recommends": "false"}),
        encoding="utf-8",
    )
    pins = place / "kernels"
    pins.write_text(
        f"Package: {_KERNEL_PACKAGES}\nPin: release n={release.codename}-backports\n"
        f"Pin-Priority: {900 if release.backports else 100}\n",
        encoding="utf-8",
    )
    command = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        f"--variant={'minbase' if release.architecture == NATIVE else 'extract'}",
        f"--architectures={','.join(filter(None, (release.architecture, release.foreign)))}",
        f"--aptopt={settings}",
        f'--setup-hook=mkdir -p "$1/etc/apt/preferences.d"; cp {pins} "$1/etc/apt/preferences.d/"',
        f"--include={','.join(release.included)}",
        *_hooks(release, place),
        release.codename,
        str(place / "root"),
        str(sources),
    ]
    # Guests have their own initramfs; the kernels' packages need not build any.
    env = {**os.environ, "INITRD": "No"}
    result = proc.run(command, timeout=MAKE_TIMEOUT_S, cwd=place, env=env)
    if result.status != 0:
        raise NodropError(
            f"The Debian root ({release.codename}) cannot be built from this machine's mirrors.",
            "The lab gets Debian's kernels from there. mmdebstrap printed:\n"
            + proc.tail(result.output, 12),
        )


def _hooks(release: Release, place: Path) -> list[str]:
    """Return options of mmdebstrap: what it runs when the packages are there; $1 is the root."""
    if release.architecture != NATIVE:
        return ['--extract-hook=cd "$1"/lib/modules && depmod --basedir "$1" *']
    script = _SAME_SOURCE
    hooks = []
    if release.fragments:
        config = place / "config"
        wanted = kconfig.parse(kconfig.fragments(*release.fragments))
        config.write_text(kconfig.render(wanted), encoding="utf-8")
        hooks.append(f'--customize-hook=cp {config} "$1/usr/src/config"')
        script = _OWN_KERNEL
    if release.foreign:
        series = release.kernels[0].partition("-")[0]
        script = _FOREIGN_KERNEL.replace("{arch}", release.foreign).replace("{series}", series)
    return [*hooks, f'--customize-hook=chroot "$1" sh -c {shlex.quote(script)}']


def sources_of(
    machines: Iterable[tuple[str, str]], own: str, wanted: str, *, backports: bool
) -> list[str]:
    """Return a release's lines for sources.list, from the mirrors of this machine's own release.

    Args:
        machines: site and suite of each source of this machine.
        own: codename of this machine's release.
        wanted: codename of the wanted release.
        backports: whether to add the release's backports.
    """
    suites: list[tuple[str, str]] = []
    for site, suite in machines:
        if suite == own and backports:
            suites.append((site, f"{wanted}-backports"))
        if suite == own or suite in (f"{own}-updates", f"{own}-security"):
            suites.append((site, wanted + suite.removeprefix(own)))
    return [
        f"deb [signed-by={KEYRING}] {site} {suite} main" for site, suite in dict.fromkeys(suites)
    ]


def make_image(folder: Path, image: Path) -> None:
    """Pack a directory into a squashfs image, quickly."""
    options = ("-comp", "lzo", "-Xalgorithm", "lzo1x_1", "-noappend", "-quiet", "-no-progress")
    program = proc.require("mksquashfs", "squashfs-tools")
    result = proc.run([program, folder, image, *options], timeout=IMAGE_TIMEOUT_S)
    if result.status != 0:
        raise NodropError(f"{folder} cannot be packed.", proc.tail(result.output, 6))


@dataclass(frozen=True)
class Layer:
    """The files that a command changed in a root.

    Attributes:
        image: them as a squashfs image, to boot from.
        files: them as an overlay's upper directory, to add layers to.
        key: a digest of all inputs.
    """

    image: Path
    files: Path
    key: str


def run_in(
    root: Root,
    argv: Sequence[str],
    *,
    upper: Path,
    over: Layer | None = None,
    share: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = LAYER_TIMEOUT_S,
) -> proc.Completed:
    """Run a command in a root; its writes go to ``upper``.

    Args:
        upper: an existing directory, possibly with an earlier command's writes.
        over: a layer between the root and ``upper``.
        share: directories of this machine, visible at the same paths, read-only.
        env: the command's environment besides PATH, HOME, LANG and DEBIAN_FRONTEND.
        timeout: seconds.
    """
    lower = f"{over.files}:{root.path}" if over else str(root.path)
    with tempfile.TemporaryDirectory(prefix=".work-", dir=upper.parent) as work:
        command = [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc"),
            *("/bin/sh", str(IN_ROOT), lower, str(upper), work),
            *(str(len(share)), *(str(folder.resolve()) for folder in share)),
            *argv,
        ]
        own = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        return proc.run(command, timeout=timeout, env=own | dict(env or {}))


def ensure_layer(
    root: Root,
    script: str,
    *,
    inputs: Sequence[object] = (),
    over: Layer | None = None,
    share: Sequence[Path] = (),
) -> Layer:
    """Return the layer that a shell script makes of a root; the script runs once.

    Args:
        script: for sh; exit status 0 if the layer is good.
        inputs: whatever else the layer depends on, as values that JSON can hold.
        over: a layer that the script builds on.
        share: as for :func:`run_in`.
    """
    key = cache.digest(root.key, over.key if over else "", script, list(inputs))

    def make(temporary: Path, _final: Path) -> None:
        files = temporary / "files"
        files.mkdir()
        result = run_in(root, ["sh", "-euc", script], upper=files, over=over, share=share)
        if result.status != 0:
            hint = proc.tail(result.output, 40)
            raise NodropError("Cannot build a layer of the Debian root.", hint)
        (temporary / "log").write_text(result.output, encoding="utf-8")
        make_image(files, temporary / "layer.squashfs")

    entry = cache.Cache("layers", keep=40).get(key, make)
    return Layer(entry / "layer.squashfs", entry / "files", key)
