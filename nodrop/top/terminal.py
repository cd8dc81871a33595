# SPDX-License-Identifier: GPL-2.0-only
"""A terminal that is drawn on as a whole, read key by key, and left as it was found."""

from __future__ import annotations

import os
import re
import select
import signal
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from nodrop.streams import Lost

DEFAULT_SIZE = os.terminal_size((80, 24))
RESIZED = "resized"
SUSPEND = "\x1a"
ENDED = "ended"
"""What :meth:`Terminal.keys` returns beside keys: another size; Ctrl-Z; no more keys."""
PARTIAL_S = 0.05
"""How long the rest of a key may take that sends several bytes."""

# The other screen, no cursor, lines that do not fit end at the margin; and back.
_ENTER = "\033[?1049h\033[?25l\033[?7l\033[2J"
_LEAVE = "\033[?7h\033[?25h\033[?1049l"
_NAMES = {
    **{f"\033{kind}{letter}": name for kind in "[O" for letter, name in {
        "A": "up", "B": "down", "H": "home", "F": "end"
    }.items()},
    **{f"\033[{number}~": name for number, name in {
        1: "home", 4: "end", 5: "page-up", 6: "page-down", 7: "home", 8: "end"
    }.items()},
}  # fmt: skip
_KEY = re.compile(r"\033\[[0-9;]*[A-Za-z~]|\033O[A-Za-z]|.", re.DOTALL)
_PARTIAL = re.compile(r"\033([\[O][0-9;]*)?\Z")
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Terminal:
    """A terminal; :meth:`opened` makes it ours for a while.

    Args:
        output: its file descriptor.
        keys: where keys come from; None: nowhere.
    """

    def __init__(self, output: int, keys: int | None) -> None:
        self._output = output
        self._input = keys
        self._modes: list[object] | None = None
        self._ours = False

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Take it over for the block; whatever ends the block, it is as it was before."""
        bell, self._bell = os.pipe()
        self._wake = bell
        os.set_blocking(self._bell, False)
        before = {
            number: signal.signal(number, self._ring)
            for number in (signal.SIGWINCH, signal.SIGTSTP)
        }
        try:
            self._enter()
            yield
        finally:
            self._leave()
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(bell)
            os.close(self._bell)

    def _ring(self, number: int, _frame: FrameType | None) -> None:
        with suppress(BlockingIOError):
            os.write(self._bell, b"z" if number == signal.SIGTSTP else b"w")

    def _enter(self) -> None:
        with _undisturbed():
            if self._input is not None:
                modes = termios.tcgetattr(self._input)
                self._modes = list(modes)
                modes[3] &= ~(termios.ICANON | termios.ECHO)
                modes[6] = list(modes[6])
                modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
                # Ctrl-Z must not stop what reads the machine for us.
                modes[6][termios.VSUSP] = b"\0"
                termios.tcsetattr(self._input, termios.TCSANOW, modes)
            self._ours = True
            self._write(_ENTER)

    def _leave(self) -> None:
        with _undisturbed():
            if self._ours:
                self._ours = False
                with suppress(Lost):
                    self._write(_LEAVE)
            if self._input is not None and self._modes is not None:
                with suppress(termios.error):
                    termios.tcsetattr(self._input, termios.TCSANOW, self._modes)  # type: ignore[arg-type]

    def suspend(self) -> None:
        """Stop, as Ctrl-Z does, until somebody has us go on."""
        self._leave()
        ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, ours)
        self._enter()

    def size(self) -> os.terminal_size:
        """Return columns and lines."""
        try:
            told = os.get_terminal_size(self._output)
        except OSError:
            return DEFAULT_SIZE
        return os.terminal_size((told.columns or 80, told.lines or 24))

    def draw(self, lines: Sequence[str]) -> None:
        """Draw the whole screen; in one piece, over what is there, so that nothing flickers.

        Raises:
            Lost: the terminal is gone.
        """
        self._write("\033[H" + "\033[K\r\n".join(lines) + "\033[K\033[J")

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        try:
            while data:
                data = data[os.write(self._output, data) :]
        except OSError as error:
            raise Lost(error) from error

    def keys(self, timeout_s: float) -> list[str]:
        """Return the keys that were pressed, as soon as there are some.

        A key is a character, one of the names in this module, or RESIZED, SUSPEND, ENDED.
        """
        sources = [self._wake] + ([] if self._input is None else [self._input])
        ready = select.select(sources, [], [], max(timeout_s, 0.0))[0]
        found = []
        if self._wake in ready:
            rung = os.read(self._wake, 4096)
            found += [SUSPEND] * (b"z" in rung) + [RESIZED] * (b"w" in rung)
        if self._input in ready:
            text = self._read()
            while _PARTIAL.search(text) and select.select([self._input], [], [], PARTIAL_S)[0]:
                text += (more := self._read())
                if not more:
                    break
            found += _split(text) if text else [ENDED]
        return found

    def _read(self) -> str:
        assert self._input is not None
        try:
            return os.read(self._input, 4096).decode(errors="replace")
        except OSError:
            return ""


def _split(text: str) -> list[str]:
    return [_NAMES.get(key, key) for key in _KEY.findall(text)]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let nobody end us in the middle of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
