# SPDX-License-Identifier: GPL-2.0-only
"""The kernels and sources that fit accepts, and the modules that it builds of them."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from dkms_tree import ALL
from stubs import Done, programs, run, write

from lab.sources import REPOSITORY

DKMS = REPOSITORY / "dkms"
KERNEL = "6.12.99-amd64"
MODULES = f"lib/modules/{KERNEL}"
STEPS = {
    "signed": "exit 0",
    "source": '[ "$1" != --given ] || exit 1; mkdir -p "${@: -1}"; touch "${@: -1}/tun.c"',
    "check": "exit 0",
}
TOOLS = {
    "gcc": "echo 'gcc (Debian 12.2) 12.2.0'",
    # Creates the files that the kernel's build would.
    "make": """for word; do case $word in OUT=*) out=${word#*=} ;; KOBJ=*) obj=${word#*=} ;;
        CC=*) cc=${word#*=} ;; TWINS=*) twins=${word#*=} ;; esac; done
    [ "${out-}" ] || { sed -n 's/^CC = //p' "$NODROP_ROOT/variables"; exit; }
    mkdir -p "$out/build"; touch "$out/build/log"
    echo "${twins-}" >"$NODROP_ROOT/twins"; echo "${cc-}" >"$NODROP_ROOT/cc"
    conf=$obj/include/config/auto.conf
    echo nodrop >"$out/nodrop.ko"; ! grep -q "^CONFIG_TUN=y" "$conf" || beside=nodrop_
    echo tun >"$out/${beside-}tun.ko"
    for name in vhost_net tap; do
        ! grep -q "^CONFIG_${name^^}=m" "$conf" || echo "$name" >"$out/$name.ko"; done""",
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
    write(place / MODULES / "build/include/config/auto.conf", config)
    given = () if source is None else ("--source", source)
    return run(place / "bin", place / "dkms/fit", *given, KERNEL, *folder, NODROP_ROOT=place)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("kmod", "dkms"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    programs(tmp_path / "dkms", STEPS)
    programs(tmp_path / "bin", TOOLS)
    write(tmp_path / MODULES / "build/Module.symvers")
    write(tmp_path / "variables", "CC = gcc\n")
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
        ("TUN=y VHOST_NET=m TAP=m", {"nodrop", "nodrop_tun", "vhost_net", "tap"}),
        ("TUN=y TAP=y", {"nodrop", "nodrop_tun"}),
        # A built-in vhost_net would refuse the devices of nodrop_tun.
        ("TUN=y VHOST_NET=y TAP=m", None),
        ("VHOST_NET=m TAP=m", None),
        ("TUN=m VHOST_NET=m TAP=m PREEMPT_RT=y", {"nodrop", "tun", "vhost_net", "tap"}),
    ],
)
def test_modules_of_a_kernel(place: Path, config: str, made: set[str] | None) -> None:
    """DKMS calls fit twice: first to find out whether it can build for the kernel."""
    lines = "".join(f"CONFIG_{word}\n" for word in config.split())
    first = fit(place, lines)
    assert first.returncode == (made is None)
    # What is built in is reported by the first call only.
    assert bool(first.stderr) is (made is None or "=y" in config.replace("RT=y", ""))
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
        ("CONFIG_TUN=y\nCONFIG_TAP=m\n", ("nodrop", "nodrop_tun", "tap")),
        (None, ALL),
    ],
)
def test_dkms_conf_lists_the_kernels_modules(
    tmp_path: Path, config: str | None, modules: tuple[str, ...]
) -> None:
    if config is not None:
        write(tmp_path / MODULES / "build/include/config/auto.conf", config)
    shutil.copy(DKMS / "dkms.conf", tmp_path)
    (tmp_path / "dkms").symlink_to(DKMS)
    script = f"""dkms_tree={tmp_path}/tree install_tree={tmp_path}/lib/modules kernelver={KERNEL}
    . {tmp_path}/dkms.conf; echo "${{!BUILT_MODULE_NAME[*]}} ${{!DEST_MODULE_LOCATION[*]}}"
    echo "${{BUILT_MODULE_NAME[*]}}" """
    done = run(tmp_path, "bash", "-c", script)
    numbers, names = done.stdout.splitlines()
    assert numbers.split() == 2 * [*map(str, range(len(modules)))]
    assert sorted(names.split()) == sorted(modules)


def test_what_is_built_in_is_known_without_headers(place: Path) -> None:
    """It is said before the user gets the headers."""
    (place / MODULES / "build/Module.symvers").unlink()
    builtin = place / MODULES / "modules.builtin"
    said = []
    for names in ((), ("net/tun",), ("net/tun", "vhost/vhost_net")):
        write(builtin, "".join(f"kernel/drivers/{name}.ko\n" for name in names))
        done = run(place / "bin", place / "dkms/fit", KERNEL, NODROP_ROOT=place)
        assert done.returncode == 1
        said.append((len(done.stderr.splitlines()), "headers" in done.stderr))
    assert said == [(1, True), (2, True), (1, False)]


@pytest.mark.parametrize(
    ("kernel", "is_supported"),
    [
        ("5.15.0-164-generic", False),
        ("6.0.12", False),
        ("6.1.0-56-amd64", True),
        ("6.14.11-4-pve", True),
    ],
)
def test_oldest_kernel(tmp_path: Path, kernel: str, is_supported: bool) -> None:
    write(tmp_path / f"lib/modules/{kernel}/build/include/config/auto.conf", "CONFIG_TUN=m\n")
    script = f". {DKMS}/lib.sh; supported {kernel}"
    done = run(tmp_path, "bash", "-c", script, NODROP_ROOT=tmp_path)
    assert (done.returncode == 0) is is_supported


@pytest.mark.parametrize(
    ("config", "said", "fits"),
    [("TUN=m", 0, True), ("TUN=y", 1, True), ("TUN=y VHOST_NET=y", 1, False)],
)
def test_dry_run_says_what_is_built_in(place: Path, config: str, said: int, fits: bool) -> None:
    programs(place / "bin", {"dkms": "exit 0"})
    lines = "".join(f"CONFIG_{word}\n" for word in config.split())
    write(place / MODULES / "build/include/config/auto.conf", lines)
    done = run(place / "bin", place / "dkms/install", "-n", "-k", KERNEL, NODROP_ROOT=place)
    assert len(done.stderr.splitlines()) == said
    assert ("dkms/fit" in done.stdout, done.returncode == 0) == (fits, fits)
    assert not (place / "var").exists()


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
        assert compared(place, "CONFIG_TUN=m\n", source) == "tun"


@pytest.mark.parametrize("config", ["TUN=y", "TUN=y VHOST_NET=m", "TUN=y VHOST_NET=m TAP=m"])
def test_a_built_in_tun_is_not_compared(place: Path, config: str) -> None:
    shutil.copy(DKMS / "source", place / "dkms")
    trees(place, place / MODULES / "build")
    lines = "".join(f"CONFIG_{word}\n" for word in config.split())
    others = [name for name in ("vhost_net", "tap") if name.upper() in config]
    assert compared(place, lines, place / "source") == " ".join(others)


@pytest.mark.parametrize(
    ("level", "own", "text", "twins"),
    [(12, "gcc", "", "tap"), (12, "gcc-9", "", ""), (4, "gcc", "is 6.1.12", "")],
)
def test_another_patch_level_is_not_compared(
    place: Path, level: int, own: str, text: str, twins: str
) -> None:
    """Where it is accepted. The user sees one line, in the call that builds."""
    shutil.copy(DKMS / "source", place / "dkms")
    trees(place, place / MODULES / "build")
    write(place / "etc/os-release", "ID=ubuntu\n")
    write(place / "source/Makefile", f"VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = {level}\n")
    write(place / MODULES / "kernel/drivers/net/tap.ko.zst")
    built_by = f"CONFIG_CC_VERSION_TEXT={own} (Debian 12.2) 12.2.0\n"
    if own == "gcc-9":
        built_by = built_by.replace("12.2.0", "9.1.0")
    config = f"CONFIG_TUN=y\nCONFIG_TAP=m\n{built_by}"
    done = fit(place, config, source=place / "source")
    assert done.returncode == 0
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1 + bool(text)
    assert (place / "twins").read_text().strip() == twins


@pytest.mark.parametrize(
    ("variables", "text", "used"),
    [
        ("CC = gcc\n", "gcc-77 (X) 1", ""),
        (None, "x86_64-linux-gnu-gcc-77 (X) 1", "x86_64-linux-gnu-gcc-77"),
        (None, "gcc-not-here (X) 1", ""),
        (None, "clang version 1", ""),
    ],
)
def test_compiler_of_kernels_that_are_not_debians(
    place: Path, variables: str | None, text: str, used: str
) -> None:
    """Ubuntu's newer kernels for an older release are not built by its gcc."""
    programs(place / "bin", dict.fromkeys(("gcc-77", "x86_64-linux-gnu-gcc-77"), "echo 77"))
    (place / "variables").unlink()
    if variables:
        write(place / "variables", variables)
    assert fit(place, f"CONFIG_TUN=m\nCONFIG_CC_VERSION_TEXT={text}\n").returncode == 0
    assert (place / "cc").read_text().strip() == used


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
    config = f"CONFIG_TUN=m\nCONFIG_CC_VERSION_TEXT={made_by}\n"
    assert compared(place, config) == ("tun" if are else "")


def compared(place: Path, config: str, source: Path | None = None) -> str:
    """Fit modules; return which of the kernel's own fit rebuilt to compare them."""
    assert fit(place, config, source=source).returncode == 0
    shutil.rmtree(place / "var/cache/nodrop/built")
    return (place / "twins").read_text().strip()


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
    where = (place / "source", place / "build", out)
    done = run(place, DKMS / "prepare", *options, *where, NODROP_ROOT=place)
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
    ("release", "system", "source", "taken"),
    [
        ("6.1.0-12-amd64", "ID=debian\n", "6.1.13", False),
        ("6.1.12-4-pve", "ID=debian\n", "6.1.13", True),
        ("6.1.12-4-pve", "ID=debian\n", "6.2.12", False),
        ("6.1.0-51-generic", "ID=ubuntu\n", "6.1.4", True),
        ("6.1.0-51-generic", 'ID=pop\nID_LIKE="ubuntu debian"\n', "6.1.4", True),
        ("6.1.0-51-generic", "ID=ubuntu\n", "5.1.12", False),
    ],
)
def test_patch_levels_that_prepare_takes(
    tmp_path: Path, release: str, system: str, source: str, taken: bool
) -> None:
    trees(tmp_path, tmp_path / "build")
    header = tmp_path / "build/include/generated/utsrelease.h"
    write(header, f'#define UTS_RELEASE "{release}"\n')
    write(tmp_path / "etc/os-release", system)
    version = zip(("VERSION", "PATCHLEVEL", "SUBLEVEL"), source.split("."), strict=True)
    write(tmp_path / "source/Makefile", "".join(f"{name} = {n}\n" for name, n in version))
    assert (prepare(tmp_path).returncode == 0) is taken


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
