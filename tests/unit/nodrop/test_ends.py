# SPDX-License-Identifier: GPL-2.0-only
"""How the command starts and ends, as a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop import cli
from nodrop.errors import INTERRUPTED

LIST = ["--help"]
CHILD = """
from nodrop.host.netns import Child
with Child(lambda: 7) as child:
    print(child.result(""))
"""
HEAVY = ("rich", "matplotlib", "lab", "bench", "proof")
RUN = "import sys; from nodrop.start import main; status = main(); "
END = RUN + "sys.exit(status)"


def begin(
    words: list[str],
    *,
    code: str = END,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    environment: dict[str, str] | None = None,
    before: Callable[[], object] | None = None,
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


def instead(body: str) -> str:
    """Return the code of a command whose main program does something else."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"import nodrop.cli as cli\ndef other():\n{lines}cli.main = other\n{END}"


def test_closed_pipe() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = begin(LIST, stdout=writer)
    os.close(writer)
    assert end(process) == (141, "", "")


def test_full_disk() -> None:
    with Path("/dev/full").open("wb") as full:
        status, _, err = end(begin(LIST, stdout=full.fileno()))
    assert (status, len(err.splitlines())) == (1, 1)


def test_closed_streams(tmp_path: Path) -> None:
    status, _, err = end(begin(LIST, stdout=None, before=lambda: os.close(1)))
    assert (status, len(err.splitlines())) == (1, 1)
    process = begin(["teleport"], stderr=None, before=lambda: os.close(2))
    assert end(process) == (2, "", "")
    # The first file that is opened must not become stdout.
    code = (
        "import os, sys; from nodrop import start; start.prepare_streams(); "
        f"sys.exit(os.open({str(tmp_path / 'first')!r}, os.O_CREAT | os.O_WRONLY))"
    )
    status, _, _ = end(begin([], code=code, stdout=None, before=lambda: os.closerange(0, 3)))
    assert status > 2


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "? ? 3 ?s ? ?\n"),
        ({"PYTHONIOENCODING": "utf-8"}, "✓ → 3 µs 隧 ?\n"),
    ],
)
def test_characters_that_stdout_cannot_encode(environment: dict[str, str], expected: str) -> None:
    code = instead(r"print('\u2713 \u2192 3 \u00b5s \u96a7 \udcff')")
    status, out, err = end(begin([], code=code, environment=environment))
    assert (status, out, err) == (0, expected, "")


@pytest.mark.parametrize(
    ("raised", "debug", "names"),
    [
        (r"ValueError('no\nsuch thing')", "", "ValueError: no such thing"),
        ("RecursionError", "1", "RecursionError"),
        ("ModuleNotFoundError('No module', name='rich')", "", "python3-rich"),
    ],
)
def test_bug_is_reported_by_name(raised: str, debug: str, names: str) -> None:
    code = instead(f"raise {raised}")
    status, out, err = end(begin([], code=code, environment={"NODROP_DEBUG": debug}))
    assert (status, out) == (1, "")
    assert names in err
    assert ("Traceback" in err) is bool(debug)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(number: int) -> None:
    code = instead("import time; print('begun', flush=True); time.sleep(60)")
    process = begin([], code=code, before=lambda: signal.signal(number, signal.SIG_DFL))
    assert process.stdout
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    status, out, err = end(process)
    assert (status, out, len(err.splitlines())) == (INTERRUPTED, "", 1)


def test_ignored_children() -> None:
    """The command waits for its children although its caller ignores SIGCHLD."""
    code = f"import nodrop.errors; nodrop.errors.interrupt_on_signals(); {CHILD}"
    process = begin([], code=code, before=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert end(process) == (0, "7\n", "")


def test_nohup() -> None:
    code = instead("import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nreturn 0")
    process = begin([], code=code, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert end(process) == (0, "", "")


def test_interrupted_while_printing() -> None:
    # Text must not be printed twice.
    code = (
        "import itertools; import nodrop.cli as cli\n"
        "def count():\n"
        "    for number in itertools.count(): print(number, flush=True)\n"
        f"cli._run = lambda *_: count()\n{END}"
    )
    for _ in range(3):
        process = begin([], code=code)
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        numbers = [int(line) for line in process.stdout.read().split()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert end(process)[0] == INTERRUPTED


@pytest.mark.parametrize("words", [["--version"], LIST])
def test_unneeded_modules_are_not_imported(words: list[str]) -> None:
    code = RUN + "print(*sys.modules, file=sys.stderr)"
    status, _, err = end(begin(words, code=code))
    assert status == 0
    loaded = err.split()
    assert "nodrop.cli" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    # Only the named command is imported.
    commands = {
        one.module for one in cli.NODROP.commands if f"nodrop.commands.{one.module}" in loaded
    }
    assert commands <= {words[0]}
