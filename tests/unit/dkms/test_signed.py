# SPDX-License-Identifier: GPL-2.0-only
"""The keys of DKMS's modules that the machine accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from stubs import Done, programs, run, write

from lab.sources import REPOSITORY

DKMS = REPOSITORY / "dkms"
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
    write(
        machine / "lib/modules/6.1/build/include/config/auto.conf",
        "CONFIG_MODULE_SIG_HASH=sha256\n",
    )
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
