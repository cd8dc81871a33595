# SPDX-License-Identifier: GPL-2.0-only
"""The kernels, sources and keys that fit accepts, and the modules that it builds of them."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from stubs import Done, programs, run, write

from lab.sources import REPOSITORY

DKMS = REPOSITORY / "dkms"
KERNEL = "6.12.99-amd64"
MODULES = f"lib/modules/{KERNEL}"
ALL = ("nodrop", "tun", "vhost_net", "tap")
STEPS = {
    "signed": "exit 0",
    "source": '[ "$1" != --given ] || exit 1; mkdir -p "${@: -1}"; touch "${@: -1}/tun.c"',
    "check": "exit 0",
}
TOOLS = {
    "gcc": "echo 'gcc (Debian 12.2) 12.2.0'",
    # Creates the files that the kernel's build would.
    "make": """for word; do case $word in OUT=*) out=${word#*=} ;; KOBJ=*) obj=${word#*=} ;;
        TWIN=*) twin=yes ;; esac; done; [ "${out-}" ] || exit 1; mkdir -p "$out/build"
    touch "$out/build/log"; echo "${twin-no}" >"$NODROP_ROOT/twin"
    for name in nodrop tun vhost_net tap; do case $name in vhost_net | tap)
        grep -q "^CONFIG_${name^^}=m" "$obj/.config" || continue ;; esac
        echo "$name" >"$out/$name.ko"; done""",
}
SOURCE = {
    "Makefile": "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 12\n",
    "drivers/net/tun.c": "case IFF_ONE_QUEUE:\n",
    "drivers/net/tap.c": "",
    "drivers/vhost/net.c": "",
    "drivers/vhost/vhost.h": "",
}
ONCE = SOURCE["drivers/net/tun.c"]
USES = [
    ("struct ptr_ring tx_ring;", True),
    ("/* By tx_ring.consumer_lock */ spin_lock_bh(&ntfile->tx_ring.consumer_lock);", True),
    ("if (a || __ptr_ring_empty(&tfile->tx_ring))", True),
    ("ret = PTR_RING_PEEK_CALL(&tfile->tx_ring, tun_ptr_peek_len);", True),
    ("struct ptr_ring **rings; rings[i++] = &tfile->tx_ring;", True),
    ("struct ptr_ring *tun_get_tx_ring(struct file *file) { return &tfile->tx_ring; }", True),
    ("struct ptr_ring *r = &tfile->tx_ring;", False),
    ("r = &tfile->tx_ring;", False),
    ("tun_use(tfile, &tfile->tx_ring);", False),
    ("static int tun_use(struct ptr_ring *r)", False),
    ("ptr_ring_consume(&tfile->tx_ring); tun_use(&tfile->tx_ring);", False),
    ("x = tfile->tx_ring.consumer_head;", False),
]
"""Accesses of tun.c to its ring, and whether the hooks support them."""
BUILT = {
    "include/generated/uapi/linux/version.h": f"#define LINUX_VERSION_CODE {0x06010C}\n",
    "include/config/auto.conf": "CONFIG_PREEMPT=y\n",
}


def fit(place: Path, config: str, *folder: Path, source: Path | None = None) -> Done:
    write(place / MODULES / "build/.config", config)
    given = () if source is None else ("--source", source)
    return run(place / "bin", place / "dkms/fit", *given, KERNEL, *folder, NODROP_ROOT=place)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("kmod", "dkms"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    programs(tmp_path / "dkms", STEPS)
    programs(tmp_path / "bin", TOOLS)
    write(tmp_path / MODULES / "build/Module.symvers")
    (tmp_path / MODULES / "kernel").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("config", "made"),
    [
        ("TUN=m VHOST_NET=m TAP=m", {"nodrop", "tun", "vhost_net", "tap"}),
        ("TUN=m VHOST_NET=y TAP=m", {"nodrop", "tun", "tap"}),
        ("TUN=m TAP=m", {"nodrop", "tun", "tap"}),
        ("TUN=m VHOST_NET=m TAP=y", {"nodrop", "tun", "vhost_net"}),
        ("TUN=m", {"nodrop", "tun"}),
        ("TUN=y VHOST_NET=m TAP=m", None),
        ("TUN=m VHOST_NET=m TAP=m PREEMPT_RT=y", {"nodrop", "tun", "vhost_net", "tap"}),
    ],
)
def test_modules_of_a_kernel(place: Path, config: str, made: set[str] | None) -> None:
    """DKMS calls fit twice: first to find out whether it can build for the kernel."""
    lines = "".join(f"CONFIG_{word}\n" for word in config.split())
    first = fit(place, lines)
    assert first.returncode == (made is None)
    # A missing module is reported by the first call only.
    assert bool(first.stderr) is (made is None or "VHOST_NET=y" in config or "TAP=y" in config)
    out = place / "out"
    out.mkdir()
    again = fit(place, lines, out)
    assert again.returncode == first.returncode
    assert made is None or not again.stderr
    assert {path.stem for path in out.iterdir()} == (made or set())


@pytest.mark.parametrize(
    ("config", "modules"),
    [
        ("CONFIG_VHOST_NET=m\nCONFIG_TAP=m\n", ALL),
        ("CONFIG_VHOST_NET=y\nCONFIG_TAP=m\n", ("nodrop", "tun", "tap")),
        ("CONFIG_VHOST_NET=m\n", ("nodrop", "tun", "vhost_net")),
        (None, ALL),
    ],
)
def test_dkms_conf_lists_the_kernels_modules(
    tmp_path: Path, config: str | None, modules: tuple[str, ...]
) -> None:
    if config is not None:
        write(tmp_path / MODULES / "build/.config", config)
    shutil.copy(DKMS / "dkms.conf", tmp_path)
    (tmp_path / "dkms").symlink_to(DKMS)
    script = f"""dkms_tree={tmp_path}/tree install_tree={tmp_path}/lib/modules kernelver={KERNEL}
    . {tmp_path}/dkms.conf; echo "${{!BUILT_MODULE_NAME[*]}} ${{!DEST_MODULE_LOCATION[*]}}"
    echo "${{BUILT_MODULE_NAME[*]}}" """
    done = run(tmp_path, "bash", "-c", script)
    numbers = " ".join(map(str, range(len(modules))))
    assert done.stdout == f"{numbers} {numbers}\n{' '.join(modules)}\n"


def test_headers_without_their_kernel(place: Path) -> None:
    (place / MODULES / "kernel").rmdir()
    done = fit(place, "CONFIG_TUN=m\n")
    assert done.returncode == 1
    assert done.stderr.startswith("nodrop: ")


@pytest.mark.parametrize("step", ["signed", "source", "check"])
def test_a_step_that_fails_makes_nothing(place: Path, step: str) -> None:
    programs(place / "dkms", {step: "exit 1"})
    out = place / "out"
    out.mkdir()
    assert fit(place, "CONFIG_TUN=m\n", out).returncode == 1
    assert list(out.iterdir()) == []


def test_given_source_is_compared_with_the_kernels_modules(place: Path) -> None:
    """Also if the source was given earlier, for the same headers."""
    shutil.copy(DKMS / "source", place / "dkms")
    trees(place, place / MODULES / "build")
    for source in (place / "source", None):
        assert compared(place, "CONFIG_TUN=m\n", source)


@pytest.mark.parametrize(
    ("own", "made_by", "are"),
    [
        ("drivers/net/tun.ko.xz", "x86_64-linux-gnu-gcc-12 (Debian 12.2) 12.2.0", True),
        # A newer compiler generates other code.
        ("drivers/net/tun.ko.xz", "gcc-12 (Debian 12.1) 12.2.0", False),
        # An older DKMS has moved tun.ko away.
        ("drivers/net/veth.ko.xz", "gcc-12 (Debian 12.2) 12.2.0", False),
    ],
)
def test_found_source_may_be_compared(place: Path, own: str, made_by: str, are: bool) -> None:
    """If the compiler is the same, and the kernel's own modules are there."""
    write(place / MODULES / "kernel" / own)
    config = f'CONFIG_TUN=m\nCONFIG_CC_VERSION_TEXT="{made_by}"\n'
    assert compared(place, config) is are


def compared(place: Path, config: str, source: Path | None = None) -> bool:
    """Fit modules; return whether fit rebuilt the kernel's own to compare them."""
    assert fit(place, config, source=source).returncode == 0
    shutil.rmtree(place / "var/cache/nodrop/built")
    return (place / "twin").read_text() == "yes\n"


def test_source_given_for_other_headers(place: Path) -> None:
    kept = place / "var/cache/nodrop/sources" / f"given-{KERNEL}"
    write(kept / "drivers/net/tap.c")
    symvers = place / MODULES / "build/Module.symvers"
    write(kept / "headers", f"{sha256(b'these').hexdigest()}  -\n")
    for text, status in (("these", 0), ("others", 1)):
        write(symvers, text)
        done = run(place / "bin", DKMS / "source", "--given", KERNEL, NODROP_ROOT=place)
        assert done.returncode == status


def trees(place: Path, build: Path) -> None:
    for tree, files in ((place / "source", SOURCE), (build, BUILT)):
        for name, text in files.items():
            write(tree / name, text)


def prepare(place: Path, *options: str) -> Done:
    """Run prepare; fail if it leaves anything behind after a refusal."""
    out = place / "out"
    done = run(place, DKMS / "prepare", *options, place / "source", place / "build", out)
    assert done.returncode in (0, 1)
    assert bool(done.stderr) is bool(done.returncode)
    assert (out / "tun/stock/tun.c").exists() is out.exists() is (done.returncode == 0)
    return done


@pytest.mark.parametrize(
    ("file", "text", "taken"),
    [
        ("source/Makefile", "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 13\n", False),
        ("source/drivers/net/tun.c", "", False),
        ("source/drivers/net/tun.c", "IFF_ONE_QUEUE IFF_ONE_QUEUE\nIFF_ONE_QUEUE\n", False),
        *(("source/drivers/net/tun.c", f"{ONCE}{text}\n", taken) for text, taken in USES),
        ("source/drivers/net/tap.c", None, False),
        ("source/drivers/net/tap.c", "ptr_ring_consume(ring);\n", True),
        ("source/drivers/net/tap.c", "ptr_ring_consume_irq(ring);\n", False),
        ("source/drivers/net/tap.c", "spin_lock(&q->ring.producer_lock);\n", True),
        ("source/drivers/net/tap.c", "x = tfile->tx_ring.size;\n", True),
        ("source/drivers/net/tap.c", "x = tfile->tx_ring.queue;\n", False),
        ("source/drivers/net/tap.c", "x = rings[i]->batch;\n", False),
        ("source/drivers/net/tap.c", "r = &q->ring;\n", False),
        ("source/drivers/vhost/net.c", "struct ptr_ring *rx_ring;\n", True),
        ("source/drivers/vhost/net.c", "len = nvq->rx_ring->size;\n", False),
        ("source/drivers/vhost/net.c", "spin_lock(&other);\n", False),
    ],
)
def test_prepare(tmp_path: Path, file: str, text: str | None, taken: bool) -> None:
    trees(tmp_path, tmp_path / "build")
    if text is None:
        (tmp_path / file).unlink()
    else:
        write(tmp_path / file, text)
    assert (prepare(tmp_path).returncode == 0) is taken


def test_prepare_names_the_line(tmp_path: Path) -> None:
    trees(tmp_path, tmp_path / "build")
    write(tmp_path / "source/drivers/net/tun.c", f"{ONCE}\n\tgive(&tfile->tx_ring);\n")
    assert "3:\tgive(&tfile->tx_ring);" in prepare(tmp_path).stderr


@pytest.mark.parametrize(
    ("text", "taken"), [("CONFIG_PREEMPT=y\n", True), ("CONFIG_PREEMPT_RT=y\n", False)]
)
def test_livepatch_of_a_realtime_kernel(tmp_path: Path, text: str, taken: bool) -> None:
    """Unlike the modules, a livepatch has not been tested on one."""
    trees(tmp_path, tmp_path / "build")
    write(tmp_path / "build/include/config/auto.conf", text)
    assert prepare(tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "out")
    done = prepare(tmp_path, "--live")
    assert (done.returncode == 0, "realtime" in done.stderr) == (taken, not taken)


SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
STUBS = {
    # A file's last lines stand for its signature.
    "insmod": """words="Required key not available" taken=$NODROP_ROOT/taken
    ! tail -c "$(stat -c %s "$taken")" "$1" | cmp -s - "$taken" || words="Invalid module format"
    echo "insmod: ERROR: could not insert module $1: $words" >&2; exit 1""",
    "uname": "echo 6.12.99-amd64",
}
TREE = "var/lib/dkms"
SIGN = '[ "$1" = sha256 ] && [ -s "$2" ] && [ -s "$3" ] && cat "$3" >>"$4"'


def call(place: Path, *command: str | Path, **more: str) -> Done:
    return run(place / "bin", *command, NODROP_ROOT=place, **more)


def signed(place: Path) -> bool:
    done = call(place, DKMS / "signed", "6.1")
    assert bool(done.stderr) is bool(done.returncode)
    assert "mokutil --import" in done.stderr or done.returncode == 0
    assert done.stdout == ""
    return done.returncode == 0


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    programs(tmp_path / "bin", STUBS)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "text", "loads"),
    [
        ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n", False),
        ("sys/kernel/security/lockdown", "[none] integrity\n", True),
        ("sys/module/module/parameters/sig_enforce", "Y\n", False),
        ("sys/module/module/parameters/sig_enforce", "N\n", True),
        (SECURE_BOOT, bytes([6, 0, 0, 0, 1]), False),
        (SECURE_BOOT, bytes([6, 0, 0, 0, 0]), True),
    ],
)
def test_signature_enforcement(machine: Path, path: str, text: str | bytes, loads: bool) -> None:
    write(machine / path, text)
    assert signed(machine) is loads


@pytest.fixture
def strict(machine: Path) -> Path:
    """A machine that loads only signed modules; its kernel accepts DKMS's key."""
    write(machine / "sys/module/module/parameters/sig_enforce", "Y\n")
    write(machine / "lib/modules/6.1/build/.config", 'CONFIG_MODULE_SIG_HASH="sha256"\n')
    programs(machine / "lib/modules/6.1/build/scripts", {"sign-file": SIGN})
    for name in ("mok.key", "mok.pub"):
        write(machine / f"{TREE}/{name}", "DKMS's\n")
        (machine / TREE / name).chmod(0o600)
    write(machine / "taken", "DKMS's\n")
    return machine


def test_trusted_key(strict: Path) -> None:
    assert signed(strict)
    write(strict / "taken", "another's\n")
    assert not signed(strict)


def test_no_space_for_temporary_files(strict: Path) -> None:
    done = call(strict, DKMS / "signed", "6.1", TMPDIR="/nope")
    assert done.returncode == 1
    assert "nodrop: " in done.stderr


@pytest.mark.parametrize("missing", ["mok.key", "mok.pub"])
def test_new_key_can_be_enrolled(strict: Path, missing: str) -> None:
    (strict / TREE / missing).unlink()
    assert not signed(strict)
    made = (strict / f"{TREE}/mok.pub").read_bytes()
    assert not signed(strict)
    assert (strict / f"{TREE}/mok.pub").read_bytes() == made
    assert (strict / f"{TREE}/mok.key").stat().st_mode & 0o077 == 0
    write(strict / "taken", made)
    assert signed(strict)


@pytest.mark.parametrize(
    ("path", "program"),
    [
        ("lib/modules/6.1/build/scripts/sign-file", "exit 1"),
        # The kernel refuses a file that is no module before it checks the signature.
        ("bin/uname", "echo 5.10.0-30-amd64"),
        ("bin/insmod", 'echo "insmod: ERROR: could not insert module x: Operation not permitted"'),
    ],
)
def test_unknown_is_refused(strict: Path, path: str, program: str) -> None:
    file = strict / path
    programs(file.parent, {file.name: program})
    assert not signed(strict)


def test_configured_certificate(strict: Path) -> None:
    own = strict / "own.der"
    (strict / f"{TREE}/mok.pub").rename(own)
    write(strict / "etc/dkms/framework.conf", "mok_certificate=/nope\n")
    write(strict / "etc/dkms/framework.conf.d/own.conf", f'mok_certificate="{own}"\n')
    assert signed(strict)


@pytest.mark.parametrize(
    ("conf", "loads"),
    [
        ('sign_file="/usr/lib/linux-kbuild-${kernelver%.*}/scripts/sign-file$unknown"', True),
        ('sign_file="$dkms_tree/sign"', False),
        # The default certificate is in the default tree.
        ('dkms_tree="$dkms_tree/other"', True),
        ('mok_certificate="$dkms_tree/mok.pub"', True),
        ('mok_certificate="$dkms_tree/other.pub"', False),
    ],
)
def test_settings_that_use_variables(strict: Path, conf: str, loads: bool) -> None:
    programs(strict / TREE, {"sign": "exit 1"})
    write(strict / f"{TREE}/other.pub", "another's\n")
    write(strict / "etc/dkms/framework.conf", f"{conf}\n")
    assert signed(strict) is loads


@pytest.mark.parametrize("system", ["ID=ubuntu\n", 'ID=linuxmint\nID_LIKE="ubuntu debian"\n'])
def test_ubuntu_signs_with_shims_key(strict: Path, system: str) -> None:
    """Unless DKMS's settings name another key."""
    shim = "/var/lib/shim-signed/mok/MOK"
    write(strict / "etc/os-release", system)
    script = f". {DKMS}/lib.sh; settings mok_signing_key mok_certificate"
    assert call(strict, "bash", "-c", script).stdout.split() == [f"{shim}.priv", f"{shim}.der"]
    write(strict / "etc/dkms/framework.conf", "mok_signing_key=$dkms_tree/mok.key\n")
    assert signed(strict)
