# SPDX-License-Identifier: GPL-2.0-only
"""The screen of ``nodrop top`` on a pseudo-terminal: keys, sizes, and how it is left behind."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path

import pytest
from hosts import HOSTS

from nodrop.kernel.artifacts import REPOSITORY

ENTERED, LEFT = b"\033[?1049h", b"\033[?1049l"
PATIENCE_S = 60.0
# A machine that was recorded; each look finds 100 packets and 50 drops more, a second later.
FAKE = """
import json, sys
from dataclasses import replace
from nodrop.host.raw import Raw
from nodrop.top import look

recorded = Raw.from_json(json.load(open({host!r})))
number = 0

def read(*_, **__):
    global number
    number += 1
    {trouble}
    space = json.loads(json.dumps(recorded.namespaces[0].__dict__))
    for link in space["links"]:
        link["stats64"]["tx"]["packets"] += 100 * number
        link["stats64"]["tx"]["dropped"] += 50 * number
    for more in range({more}):
        link = json.loads(json.dumps(space["links"][0]))
        space["links"].append({{**link, "ifname": f"more{{more}}", "ifindex": 100 + more}})
    space["time_s"] = float(number)
    return replace(recorded, namespaces=[type(recorded.namespaces[0])(**space)])

look.read = read
from nodrop.start import main
sys.exit(main())
"""
# The leader of the terminal's session: like a shell, it starts the command as a job.
SHELL = """
import os, signal, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
report = os.fdopen(int(os.environ["REPORT"]), "w", buffering=1)
print("pid", pid, file=report)
_, status = os.waitpid(pid, 0)
print("ended", os.waitstatus_to_exitcode(status), file=report)
signal.pause()
"""


class Screen:
    """``nodrop top`` on a terminal of its own."""

    def __init__(
        self, *words: str, more: int = 0, trouble: str = "pass", columns: int = 80, lines: int = 24
    ) -> None:
        self.output = b""
        self.ours, theirs = pty.openpty()
        self.resize(columns, lines)
        # What a shell's editor may have changed must come back, too.
        modes = termios.tcgetattr(theirs)
        modes[6][termios.VKILL] = b"\x19"
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        reader, writer = os.pipe()
        self._told = b""
        self._report = reader
        code = FAKE.format(host=str(HOSTS / "nodrop.json"), more=more, trouble=trouble)
        self.shell = os.fork()
        if self.shell == 0:
            os.login_tty(theirs)
            os.set_inheritable(writer, True)
            os.environ.update(REPORT=str(writer), TERM="xterm", PYTHONPATH=str(REPOSITORY))
            for name in ("NO_COLOR", "COLUMNS"):
                os.environ.pop(name, None)
            os.execv(sys.executable, [sys.executable, "-c", SHELL, "-c", code, "top", *words])
        os.close(writer)
        self.pid = int(self.told(r"pid (\d+)"))

    def resize(self, columns: int, lines: int) -> None:
        ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        self.output = b""
        os.write(self.ours, keys.encode())

    def _until(self, what: str, found: Callable[[], str | None]) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if (answer := found()) is not None:
                return answer
            for fd in select.select([self.ours, self._report], [], [], 0.1)[0]:
                try:
                    data = os.read(fd, 65536)
                except OSError:
                    data = b""
                if fd == self.ours:
                    self.output += data
                else:
                    self._told += data
        raise AssertionError(f"no {what} in {self.output!r} {self._told!r}")

    def told(self, pattern: str) -> str:
        """What the shell says of its job."""

        def found() -> str | None:
            match = re.search(pattern, self._told.decode())
            return match[1] if match else None

        answer = self._until(pattern, found)
        self._told = b""
        return answer

    def shows(self, pattern: str) -> list[str]:
        """The lines of the last whole screen, as soon as it has such a line."""
        whole: list[str] = []

        def found() -> str | None:
            for frame in reversed(self.output.split(b"\033[H")[1:]):
                if b"\033[J" not in frame:
                    continue
                whole[:] = text(frame.split(b"\033[J")[0])
                return "" if re.search(pattern, "\n".join(whole), re.MULTILINE) else None
            return None

        self._until(pattern, found)
        return whole

    def ended(self) -> int:
        return int(self.told(r"ended (-?\d+)"))

    def restored(self) -> None:
        """The terminal is as it was: its modes, its screen, its cursor."""
        self._until("other screen", lambda: "" if LEFT in self.output else None)
        assert termios.tcgetattr(self.theirs) == self.before
        assert self.output.rindex(b"\033[?25h") > self.output.rfind(b"\033[?25l")
        assert self.output.rindex(LEFT) > self.output.rfind(ENTERED)
        assert self.output.rindex(b"\033[?7h") > self.output.rfind(b"\033[?7l")

    def close(self) -> None:
        for pid in (self.pid, self.shell):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.waitpid(self.shell, 0)
        for fd in (self.ours, self.theirs, self._report):
            if fd >= 0:
                os.close(fd)


def text(frame: bytes) -> list[str]:
    """The lines of a screen without styles."""
    plain = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", frame.decode())
    return [line.rstrip() for line in plain.split("\r\n")]


@pytest.fixture
def start() -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def begin(*words: str, **settings: object) -> Screen:
        made.append(Screen(*words, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield begin
    for screen in made:
        screen.close()


Start = Callable[..., Screen]


def names(screen: list[str]) -> list[str]:
    """The devices of a screen, from top to bottom."""
    return [line.split()[0] for line in screen[3:-1] if line]


def test_rates_and_quit(start: Start) -> None:
    top = start("--interval", "0.2")
    screen = top.shows(r"^ndtest0 .* 100 ")
    assert len(screen) == 24
    assert screen[1].startswith("2 devices, by drops, 200 pkt/s")
    assert re.search(r"^ndtest0 +nodrop +100 .* 50 +other", "\n".join(screen), re.MULTILINE)
    top.press("q")
    assert top.ended() == 0
    top.restored()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, "Ctrl-C"])
def test_interrupted(start: Start, how: signal.Signals | str) -> None:
    top = start("--interval", "0.2")
    top.shows("ndtest0")
    if isinstance(how, str):
        top.press("\x03")
    else:
        os.kill(top.pid, how)
    assert top.ended() == 130
    top.restored()


@pytest.mark.parametrize(
    "trouble",
    [
        "raise RuntimeError('on purpose')",
        "from nodrop.errors import NodropError; raise NodropError('on purpose')",
    ],
)
def test_exception(start: Start, trouble: str) -> None:
    top = start("--interval", "0.1", trouble=f"if number == 3: {trouble}")
    assert top.ended() == 1
    top.restored()
    assert b"on purpose" in top.output.split(LEFT)[1]
    assert b"Traceback" not in top.output


def test_closed_terminal(start: Start) -> None:
    top = start("--interval", "0.1")
    top.shows("ndtest0")
    os.close(top.theirs)
    os.close(top.ours)
    top.ours = top.theirs = -1
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{top.pid}/stat").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{top.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{top.pid}").exists()


def test_keys_sort_and_queues(start: Start) -> None:
    top = start("--interval", "3600", more=3)
    top.shows("5 devices")
    top.press(" ")
    assert names(top.shows("^more0 .* 100 "))[0] == "idle0"
    top.press("N")
    assert names(top.shows("by name")) == ["idle0", "more0", "more1", "more2", "ndtest0"]
    top.press("r")
    assert names(top.shows("reversed")) == ["ndtest0", "more2", "more1", "more0", "idle0"]
    top.press("r")
    top.press("Q")
    assert re.search(r"^DEVICE +Q ", "\n".join(top.shows("DEVICE +Q")), re.MULTILINE)
    top.press("P")
    top.shows("by packets")
    top.press("h")
    assert len(top.shows("Any key goes back")) <= 24
    top.press("q")
    top.shows("by packets")
    top.press("q")
    assert top.ended() == 0


def test_size_changes(start: Start) -> None:
    top = start("--interval", "3600")
    top.shows(r"3600 s(.|\n)*^ndtest0 .* 100 ")  # the second look, and none soon after it
    top.resize(60, 10)
    assert max(map(len, top.shows(r"\A(.*\n){9}.*\Z"))) <= 60


def test_count_leaves_the_last_table(start: Start) -> None:
    top = start("--interval", "0.1", "--count", "2")
    assert top.ended() == 0
    top.restored()
    assert b"ndtest0" in top.output.split(LEFT)[1]


def test_scrolling(start: Start) -> None:
    top = start("--interval", "3600", "--sort", "name", more=60)
    assert names(top.shows("1-20 of 62"))[:2] == ["idle0", "more0"]
    for keys, first, where in (
        ("\033[B", "more0", "2-21"),
        ("\033[6~", "more27", "22-41"),
        ("\033OA", "more26", "21-40"),
        ("\033[F", "more46", "43-62"),
        ("\033[5~", "more28", "23-42"),
        ("\033[H", "idle0", "1-20"),
    ):
        top.press(keys)
        assert names(top.shows(f"{where} of 62"))[0] == first
