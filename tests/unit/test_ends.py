# SPDX-License-Identifier: GPL-2.0-only
"""How the command begins and ends, as a process of its own."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop import cli

LIST = ["bench", "--list"]
HEAVY = ("rich", "matplotlib", "nodrop.lab", "nodrop.kernel", "nodrop.report")
RUN = "import sys; from nodrop.start import main; status = main(); "


def start(
    words: list[str],
    *,
    code: str = RUN + "sys.exit(status)",
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    environment: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the command; ``code`` runs in its Python."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **(environment or {})},
        preexec_fn=before,
    )


def end(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def test_module_and_program() -> None:
    for argv in ([sys.executable, "-m", "nodrop"], [str(Path(sys.executable).parent / "nodrop")]):
        done = subprocess.run([*argv, *LIST], capture_output=True, timeout=60, check=True)
        assert b"nullvpn" in done.stdout
        assert done.stderr == b""


@pytest.mark.parametrize("words", [LIST, ["--help"], ["--version"], ["bench", "-h"]])
def test_reader_of_the_pipe_is_gone(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start(words, stdout=writer)
    os.close(writer)
    assert end(process) == (141, "", "")


@pytest.mark.parametrize("words", [LIST, ["--help"], ["-j", *LIST]])
def test_full_disk(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        status, _, err = end(start(words, stdout=full.fileno()))
    assert status == 1
    assert err == "nodrop: Cannot write to standard output: No space left on device.\n"


def test_closed_stdout() -> None:
    status, _, err = end(start(LIST, stdout=None, before=lambda: os.close(1)))
    assert (status, err) == (1, "nodrop: Cannot write to standard output: Bad file descriptor.\n")


def test_closed_stdout_is_nobody_elses(tmp_path: Path) -> None:
    # The first file that is opened must not be what print() writes to.
    place = tmp_path / "first"
    code = (
        "import os, sys; from nodrop import streams; streams.prepare(); "
        f"number = os.open({str(place)!r}, os.O_CREAT | os.O_WRONLY); sys.exit(number)"
    )
    status, _, _ = end(start([], code=code, stdout=None, before=lambda: os.closerange(0, 3)))
    assert status > 2


def test_closed_stderr() -> None:
    process = start(["bench", "teleport"], stderr=None, before=lambda: os.close(2))
    assert end(process) == (2, "", "")


def test_talk_that_cannot_be_written_is_dropped() -> None:
    code = RUN.replace("status = main()", "from nodrop import streams; streams.prepare()") + (
        "print('talk', file=sys.stderr); print('more', file=sys.stderr); print('data')"
    )
    with Path("/dev/full").open("wb") as full:
        assert end(start([], code=code, stderr=full.fileno())) == (0, "data\n", "")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PYTHONIOENCODING": "ascii"}, "ok -> 3 us ? ?\n"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "ok -> 3 us ? ?\n"),
        ({"PYTHONIOENCODING": "utf-8"}, "✓ → 3 µs 隧 ?\n"),
    ],
)
def test_characters_that_stdout_does_not_have(environment: dict[str, str], expected: str) -> None:
    code = (
        "import nodrop.cli as cli; "
        r"cli.main = lambda: print('\u2713 \u2192 3 \u00b5s \u96a7 \udcff') or 0; "
    ) + RUN
    assert end(start([], code=code, environment=environment)) == (0, expected, "")


def broken(raised: str) -> str:
    """Return the code of a command that has a mistake."""
    return (
        "import nodrop.cli as cli\n"
        f"def fail(): raise {raised}\n"
        "cli.main = fail\n"
        f"{RUN}sys.exit(status)"
    )


def test_mistake_in_nodrop_is_a_sentence() -> None:
    status, out, err = end(start([], code=broken("ValueError('no\\nsuch thing')")))
    assert (status, out) == (1, "")
    assert err == (
        "nodrop: This is a mistake in nodrop, please report it: ValueError: no such thing\n"
        "Run the command again with NODROP_DEBUG=1 and add what it prints to the report.\n"
    )


def test_mistake_in_nodrop_in_full() -> None:
    environment = {"NODROP_DEBUG": "1"}
    status, _, err = end(start([], code=broken("RecursionError"), environment=environment))
    assert status == 1
    assert "Traceback" in err
    assert "line 2, in fail" in err
    assert "please report it: RecursionError\n" in err


def test_missing_package_is_named() -> None:
    raised = "ModuleNotFoundError('No module', name='rich')"
    assert end(start([], code=broken(raised))) == (
        1,
        "",
        "nodrop: Python has no rich: apt-get install python3-rich\n",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(number: int) -> None:
    code = (
        "import time; import nodrop.cli as cli\n"
        "def wait():\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(60)\n"
        "cli.main = wait\n"
    ) + f"{RUN}sys.exit(status)"
    process = start([], code=code)
    assert process.stdout
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    assert end(process) == (130, "", "nodrop: interrupted\n")


def test_interrupted_while_it_prints() -> None:
    # What is printed again would spoil it for a reader of lines.
    code = (
        "import itertools; import nodrop.cli as cli\n"
        "def count():\n"
        "    for number in itertools.count(): print(number, flush=True)\n"
        "cli._run = lambda _argv: count()\n"
    ) + f"{RUN}sys.exit(status)"
    for _ in range(4):
        process = start([], code=code)
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        numbers = [int(line) for line in process.stdout.read().split()]
        assert numbers == list(range(1, len(numbers) + 1))
        status, _, err = end(process)
        assert (status, err) == (130, "nodrop: interrupted\n")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["bench", "--help"], LIST])
def test_nothing_is_loaded_that_is_not_needed(words: list[str]) -> None:
    code = RUN + "print(*sys.modules, file=sys.stderr)"
    status, _, err = end(start(words, code=code))
    assert status == 0
    loaded = err.split()
    assert "nodrop.cli" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    # Of the commands the one that was named.
    commands = [one.module for one in cli.COMMANDS if f"nodrop.commands.{one.module}" in loaded]
    assert set(commands) <= {words[0]}


def test_help_comes_at_once() -> None:
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert end(start(["--help"]))[0] == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took) < 0.1
