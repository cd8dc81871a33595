# SPDX-License-Identifier: GPL-2.0-only
"""Failures on an administrator's machine: the cause is named, and the stock module stays."""

from __future__ import annotations

import pytest

from lab.sources import REPOSITORY
from packages.conftest import WritableRoot

OURS = "/usr/src/nodrop-0.0.1"
SCRIPTS = f"{OURS}/dkms"

# A correct set-up, in which each test spoils one thing.
SET_UP = f"""
{REPOSITORY}/packaging/lay modules {OURS}
sed s/#MODULE_VERSION#/0.0.1/ {REPOSITORY}/dkms/dkms.conf >{OURS}/dkms.conf
dkms add nodrop/0.0.1 >/dev/null
{SCRIPTS}/source $KERNEL /tmp/source
"""
SOURCES = "/var/cache/nodrop/sources"
STATUS = "/var/lib/dpkg/status"
HIDE = f"mv {SOURCES} /var/kept"
COPY = f"cp -a {SOURCES} /var/kept"
RESTORE = f"rm -rf {SOURCES}; mv /var/kept {SOURCES}"
TUN = f"{SOURCES}/*/drivers/net/tun.c"
NO_LOST_FILES = 'test -z "$(find /var/cache/nodrop -name ".*.*" -o -name "*.new")"'


@pytest.fixture(scope="module")
def ready(root: WritableRoot) -> WritableRoot:
    root.succeed(SET_UP)
    return root


CASES = {
    "no source": (
        f"{HIDE}; mv /usr/src/linux-source-6.1.tar.xz /var/",
        f"{RESTORE}; mv /var/linux-source-6.1.tar.xz /usr/src/",
        "linux-source-6.1.tar.xz",
    ),
    "missing headers": (
        "mv /lib/modules/$KERNEL/build /var/",
        "mv /var/build /lib/modules/$KERNEL/",
        "linux-headers-$KERNEL",
    ),
    "no compiler": (
        "mv /usr/bin/gcc-12 /var/",
        "mv /var/gcc-12 /usr/bin/",
        "gcc-12",
    ),
    "hook that does not take": (
        f"{COPY}; sed -i 's/tun_chr_open/tun_chr_open_other/g' {TUN}",
        RESTORE,
        "do not compile for kernel $KERNEL",
    ),
    "source of another build": (
        f"{COPY}; sed -i 's/return -EINVAL;/return -EPERM;/' {TUN}",
        RESTORE,
        "does not make the kernel's own tun again",
    ),
    "full disk": (
        "mount -t tmpfs -o size=2M tmpfs /var/cache/nodrop",
        "true",
        "/var/cache/nodrop",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refusal_keeps_the_stock_module(ready: WritableRoot, case: str) -> None:
    spoil, mend, words = CASES[case]
    words = words.replace("$KERNEL", ready.releases[0])
    try:
        done = ready.run(f"{spoil}; {SCRIPTS}/fit $KERNEL; s=$?; {NO_LOST_FILES} || s=99; exit $s")
        assert done.status == 1
        assert words in done.output
        # The kernel package's postinst hook must not fail.
        done = ready.run(f"{spoil}; /etc/kernel/postinst.d/dkms $KERNEL")
        assert done.status == 0, done.output
        # Explicitly, DKMS refuses: it skips the kernel (77), or has no headers.
        done = ready.run(f"{spoil}; dkms install -m nodrop -v 0.0.1 -k $KERNEL")
        assert done.status in (1, 77)
        assert "updates" not in ready.module(ready.releases[0], "tun")
    finally:
        ready.succeed(mend)


def test_given_source_that_does_not_match_is_discarded(ready: WritableRoot) -> None:
    wrong = "/var/wrong"
    ready.succeed(
        f"mkdir {wrong}; cp -a {SOURCES}/$VERSION/. {wrong}/; "
        f"sed -i 's/^SUBLEVEL = .*/SUBLEVEL = 170/' {wrong}/Makefile"
    )
    done = ready.run(f"{SCRIPTS}/fit --source {wrong} $KERNEL")
    assert done.status == 1
    assert "6.1.170" in done.output
    ready.succeed(f"mkdir /tmp/modules; {SCRIPTS}/fit $KERNEL /tmp/modules")


def test_given_source_that_matches_is_kept(ready: WritableRoot) -> None:
    given, tarball = "/var/given", "/usr/src/linux-source-6.1.tar.xz"
    ready.succeed(f"cp -a {SOURCES}/$VERSION {given}")
    ready.succeed(f"mkdir /tmp/modules; {SCRIPTS}/fit --source {given} $KERNEL /tmp/modules")
    only_given = f"{HIDE}; mkdir {SOURCES}; mv /var/kept/given-* {SOURCES}/; mv {tarball} /var/"
    mend = f"mv /var/linux-source-6.1.tar.xz {tarball}; {RESTORE}"
    done = ready.run(f"{only_given}; {SCRIPTS}/source $KERNEL /tmp/s; s=$?; {mend}; exit $s")
    assert done.status == 0, done.output
    assert "sources/given-" in done.output


def test_source_that_cannot_be_kept(ready: WritableRoot) -> None:
    full = 'cp() { [[ ${@: -1} != /var/cache/* ]] && command cp "$@"; }; export -f cp'
    done = ready.run(f"{HIDE}; {full}; {SCRIPTS}/source $KERNEL /tmp/s; s=$?; {RESTORE}; exit $s")
    assert done.status == 0, done.output


def test_kernel_that_is_being_installed(ready: WritableRoot) -> None:
    """dpkg's state while a new kernel's packages are configured."""
    status = "s/^Status: .*/Status: install ok"
    half = (
        f"sed -i -e '/^Package: linux-headers-'$KERNEL'$/,/^$/{status} half-configured/' "
        f"-e '/^Package: linux-source-6.1$/,/^$/{status} unpacked/' {STATUS}"
    )
    spoil = f"cp {STATUS} {STATUS}-kept; {half}; {HIDE}"
    mend = f"cp {STATUS}-kept {STATUS}; {RESTORE}"
    done = ready.run(f"{spoil}; {SCRIPTS}/source $KERNEL /tmp/s; s=$?; {mend}; exit $s")
    assert done.status == 0, done.output
    assert "from /usr/src/linux-source-6.1.tar.xz" in done.output


def test_interrupted(ready: WritableRoot) -> None:
    script = f"""set -m; rm -rf /var/cache/nodrop/built; {SCRIPTS}/fit $KERNEL & pid=$!
    objects=/var/cache/nodrop/.build.*/out/build/*/*.o
    for i in $(seq 200); do ls $objects >/dev/null 2>&1 && break; sleep 0.1; done
    kill -INT -- -$pid; wait $pid; s=$?; {NO_LOST_FILES} || s=99; exit $s"""
    done = ready.run(script)
    assert done.status == 130
    assert "updates" not in ready.module(ready.releases[0], "tun")


def test_killed_build_is_removed(ready: WritableRoot) -> None:
    ready.succeed(
        f"mkdir -p /var/cache/nodrop/.build.x {SOURCES}/$VERSION.new; {SCRIPTS}/fit $KERNEL /tmp; "
        "test ! -e /var/cache/nodrop/.build.x"
    )
