# SPDX-License-Identifier: GPL-2.0-only
"""The lab itself: arguments, output, results, and that a guest leaves nothing behind."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import FLAVOUR
from pseudo_terminal import PseudoTerminal

from lab import guest, uml
from lab.guest import DiedAtBoot
from lab.kernel import Artifacts, Kernel
from lab.uml import Isolation

PROMPT = "lab:"
BLOCKS = (
    'python3 -c "import ctypes, os, time; '
    "ctypes.CDLL(None).vfork() or os.write(1, b'last words\\n'); time.sleep(600)\""
)
"""A task that is blocked until its child ends, which has printed something."""


@pytest.fixture(autouse=True)
def no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep guests that die on purpose out of the run's report."""
    monkeypatch.delenv(guest.REPEATS, raising=False)


def sh(kernel: Kernel, out: Path, script: str, timeout: float = 60.0) -> guest.GuestRun:
    return uml.run(kernel, ["sh", "-c", script], out=out, timeout=timeout)


def remains(mark: Path, pid: int) -> list[str]:
    """Return a process's guests, and processes and mounts that name a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(mark) in words or f"umid=nodrop-{pid} " in words:
                found.append(words)
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    return found + [line for line in mounts.splitlines() if str(mark) in line]


def settles(mark: Path, pid: int | None = None) -> list[str]:
    """Return what remains after the host's kernel has cleaned up, for 60 s at most."""
    deadline = time.monotonic() + 60
    while (found := remains(mark, pid or os.getpid())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


PATIENCE_S = 120.0


def scratch() -> set[Path]:
    places = ((Path("/dev/shm"), "*nodrop-guest*"), (Path.home() / ".uml", "*"))
    return {path for place, pattern in places for path in place.glob(pattern)}


def left(before: set[Path]) -> set[Path]:
    """Return new scratch files that stay; those of other guests disappear."""
    end = time.monotonic() + PATIENCE_S
    while (more := scratch() - before) and time.monotonic() < end:
        time.sleep(0.2)
    return more


def test_status_output_log_and_time(kernel: Kernel, tmp_path: Path) -> None:
    """All output arrives, none of it as the kernel's log; the host's network is absent."""
    lines: list[str] = []
    script = (
        'echo "$GREETING"; echo "a  b"; echo "BUG: not the kernel"; echo "WARNING: nor this" >&2;'
        "nproc; uname -r; id -u; pwd; ls /sys/class/net; ip route; seq 20000; exit 7"
    )
    result = uml.run(
        kernel,
        ["sh", "-c", script],
        out=tmp_path,
        env={"GREETING": 'it\'s "$me"'},
        on_line=lines.append,
    )
    assert result.status == 7
    said = ['it\'s "$me"', "a  b", "BUG: not the kernel", "WARNING: nor this"]
    guests = ["2", kernel.release, "0", str(Path.cwd()), "lo"]
    assert lines == [*said, *guests, *map(str, range(1, 20001))]
    assert result.output.splitlines() == lines
    assert f"Linux version {kernel.release}" in result.log
    assert "GREETING" not in result.log
    assert result.seconds > 0
    assert result.splats == ()


def test_argv_keeps_its_words_and_a_signal_its_status(kernel: Kernel, tmp_path: Path) -> None:
    words = ["", "two words", "$HOME", "*", "line\nbreak", "'"]
    script = 'printf "<%s>" "$@"; kill -9 $$'
    result = uml.run(kernel, ["sh", "-c", script, "sh", *words], out=tmp_path)
    # The shell that runs it may add that it was killed.
    words_seen = result.output.replace("\n", "").removesuffix("Killed")
    assert words_seen == "<><two words><$HOME><*><linebreak><'>"
    assert result.status == 128 + 9


def test_only_results_survive(kernel: Kernel, tmp_path: Path) -> None:
    out, beside = tmp_path / "out", tmp_path / "beside"
    beside.write_text("before", encoding="utf-8")
    result = sh(
        kernel,
        out,
        f"echo changed >{beside}; cat {beside}; echo kept >$LAB_OUT/file; touch /usr/bin/x",
    )
    assert result.status == 0
    assert result.output == "changed"
    assert beside.read_text(encoding="utf-8") == "before"
    assert (out / "file").read_text(encoding="utf-8") == "kept\n"
    assert not Path("/usr/bin/x").exists()


def test_guest_cannot_write_past_its_overlay(kernel: Kernel, tmp_path: Path) -> None:
    """A guest cannot change the host's files even if it mounts them again, writable."""
    if uml.isolation() is Isolation.NONE:
        pytest.skip("this machine allows no namespaces; the host cannot enforce it")
    beside = tmp_path / "beside"
    beside.write_text("before", encoding="utf-8")
    result = sh(
        kernel,
        tmp_path / "out",
        f"mkdir /m; mount -t hostfs -o {tmp_path} x /m || mount -t hostfs -o hostfs={tmp_path} x /m"
        " && cat /m/beside && ! echo changed >/m/beside && ! touch /m/new && ! rm /m/beside",
    )
    assert result.status == 0, result.output
    assert beside.read_text(encoding="utf-8") == "before"


def test_guests_kernel_has_no_right_to_undo_it(kernel: Kernel, tmp_path: Path) -> None:
    if uml.isolation() is Isolation.NONE:
        pytest.skip("this machine allows no namespaces")
    rights: list[int] = []

    def sample(_line: str) -> None:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                status = (entry / "status").read_text(encoding="utf-8")
            except OSError:
                continue
            if words[0] == os.fsencode(kernel.linux) and mine in words:
                lines = dict(line.split(":\t", 1) for line in status.splitlines())
                rights.append(int(lines["CapEff"], 16))

    mine = f"umid=nodrop-{os.getpid()}".encode()
    uml.run(kernel, ["echo", "ready"], out=tmp_path, on_line=sample)
    cap_sys_admin = 1 << 21
    assert rights
    assert not any(right & cap_sys_admin for right in rights)


def test_hanging_guest_is_stopped_and_reported(
    kernel: Kernel, tmp_path: Path, time_passes: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = guest._Guest._deliver

    def delivered(guest: Any, stream: Any, lines: list[str]) -> None:
        deliver(guest, stream, lines)
        if re.search("last words|task:python3", "\n".join(lines)):
            time_passes()

    monkeypatch.setattr(guest._Guest, "_deliver", delivered)
    monkeypatch.setattr(guest, "BLOCKED_S", 600.0)
    before = scratch()
    with pytest.raises(guest.GuestTimeout) as caught:
        sh(kernel, tmp_path, f"echo kept >$LAB_OUT/file; {BLOCKS}", timeout=600)
    assert "last words" in caught.value.hint
    assert "Show Blocked State" in caught.value.hint
    assert re.search(r"task:python3 +state:D", caught.value.hint)
    assert "as init process" not in caught.value.hint  # the boot went well
    assert "lab: the command starts" not in caught.value.hint
    assert caught.value.status == 1
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept\n"
    assert settles(tmp_path) == []
    assert left(before) == set()


def test_panic_is_reported(kernel: Kernel, tmp_path: Path) -> None:
    with pytest.raises(guest.GuestDied) as caught:
        sh(kernel, tmp_path, "echo going; echo c >/proc/sysrq-trigger; sleep 60")
    assert "Kernel panic - not syncing" in caught.value.hint
    assert not isinstance(caught.value, DiedAtBoot)
    assert settles(tmp_path) == []


def test_a_guest_that_does_not_boot_shows_its_boot(kernel: Kernel, tmp_path: Path) -> None:
    with pytest.raises(DiedAtBoot) as caught:
        uml.run(kernel, ["true"], out=tmp_path, memory="17M")
    assert "Last lines of its log:" in caught.value.hint


def test_more_files_than_the_callers_soft_limit(kernel: Kernel, tmp_path: Path) -> None:
    """A guest keeps each of the host's files open that it has used."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = tmp_path / "few"
    few.mkdir()
    for number in range(400):
        (few / str(number)).write_text("x", encoding="utf-8")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        result = sh(kernel, tmp_path / "out", f"cat {few}/* | wc -c")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.output.split() == ["400"]


def test_plain_process_when_there_are_no_namespaces(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.uml.isolation", lambda: Isolation.NONE)
    before = scratch()
    result = sh(kernel, tmp_path, "echo kept >$LAB_OUT/file; touch /usr/bin/x")
    assert result.status == 0
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept\n"
    assert not Path("/usr/bin/x").exists()
    with pytest.raises(guest.GuestTimeout):
        sh(kernel, tmp_path, "sleep 600", timeout=5)  # bound: must expire
    assert settles(tmp_path) == []
    assert left(before) == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["boot", "command"])
def test_ending_the_host_side_leaves_nothing(
    kernel: Kernel, tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    script = (
        "import sys; from pathlib import Path; from lab import uml; from nodrop import errors;"
        "from lab.kernel import Kernel; errors.interrupt_on_signals();"
        f"k = Kernel(Path({str(kernel.linux)!r}), '', Path('/'), Path('/'), '', '');"
        "print('starting', flush=True);"
        f"uml.run(k, ['sh', '-c', 'echo ready; sleep 600'], out=Path({str(tmp_path)!r}),"
        " on_line=lambda line: print(line, flush=True))"
    )
    before = scratch()
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        wanted = "starting" if moment == "boot" else "ready"
        for line in process.stdout:
            if line.strip() == wanted:
                break
        if moment == "boot":
            time.sleep(0.15)
        process.send_signal(number)
        process.wait(60)
    assert process.returncode != 0
    assert settles(tmp_path, process.pid) == []
    assert left(before) == set()


def lab_run(*words: str) -> PseudoTerminal:
    program = Path(sys.executable).with_name("nodrop-lab")
    return PseudoTerminal([program, "run", "--flavour", FLAVOUR, *words], {"TERM": "xterm"})


@pytest.fixture
def shell(artifacts: Artifacts) -> Iterator[PseudoTerminal]:
    assert artifacts
    with lab_run() as made:
        made.sees(PROMPT)
        yield made


def test_shell_runs_and_terminal_is_restored(shell: PseudoTerminal) -> None:
    assert shell.settings() != shell.before
    shell.press("stty size; cat /sys/module/tun/version\r")
    shell.sees(r"30 100\n\d")
    shell.press("tty; echo $((6 * 7))\r")
    shell.sees(r"/dev/tty1\n42\n")
    shell.press("exit 7\r")
    assert shell.ends() == 7
    assert shell.settings() == shell.before


def test_ctrl_c_reaches_the_guest(shell: PseudoTerminal) -> None:
    shell.press("echo before; sleep 600\r")
    shell.sees(r"before\n")
    time.sleep(0.5)
    shell.press("\x03")
    shell.sees(PROMPT)
    shell.press("echo status $?\r")
    # Wait for the prompt: before it, Ctrl-D may not end the shell.
    shell.sees(f"status 130[^$]*{PROMPT}")
    shell.press("\x04")
    assert shell.ends() == 0


def test_its_size_follows(shell: PseudoTerminal) -> None:
    shell.press("trap 'stty size' WINCH; echo $((6 * 7)); sleep 600 & wait\r")
    shell.sees(r"42\n")
    shell.resize(40, 120)
    shell.sees(r"40 120\n")


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGHUP])
def test_terminal_is_restored_whatever_ends_the_run(
    shell: PseudoTerminal, end: signal.Signals | None
) -> None:
    shell.press("trap '' INT TERM HUP; sleep 600\r")
    shell.sees("sleep 600")
    if end:
        shell.process.send_signal(end)
    else:
        shell.press("\x1d")  # the escape
    assert shell.ends() == 130
    assert shell.settings() == shell.before
    mark = f"umid=nodrop-{shell.process.pid}".encode()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # it is no process, or has ended
            assert mark not in (folder / "cmdline").read_bytes()


def test_terminal_is_restored_after_a_panic(shell: PseudoTerminal) -> None:
    shell.press("echo c >/proc/sysrq-trigger\r")
    assert shell.ends() == 1
    assert shell.settings() == shell.before


def test_a_time_limit_holds_for_shells(artifacts: Artifacts) -> None:
    assert artifacts
    with lab_run("--timeout", "5") as shell:
        # Whether or not it has printed a prompt by then.
        assert shell.ends() == 1
        assert re.search(r"did not end within \d+ s", shell.text)
        assert shell.settings() == shell.before
