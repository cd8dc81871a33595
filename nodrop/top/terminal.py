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
ENDED = "ended"
"""What :meth:`Terminal.keys` returns beside keys: another size; no more keys."""

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
        before = signal.signal(signal.SIGWINCH, self._ring)
        try:
            self._enter()
            yield
        finally:
            self._leave()
            signal.signal(signal.SIGWINCH, before)
            os.close(bell)
            os.close(self._bell)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        with suppress(BlockingIOError):
            os.write(self._bell, b"w")

    def _enter(self) -> None:
        with _undisturbed():
            if self._input is not None:
                modes = termios.tcgetattr(self._input)
                self._modes = list(modes)
                modes[3] &= ~(termios.ICANON | termios.ECHO)
                modes[6] = list(modes[6])
                modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
                # Ctrl-Z would leave the shell with this screen.
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

        A key is a character, one of the names in this module, RESIZED or ENDED.
        """
        sources = [self._wake] + ([] if self._input is None else [self._input])
        ready = select.select(sources, [], [], max(timeout_s, 0.0))[0]
        found = []
        if self._wake in ready:
            os.read(self._wake, 4096)
            found.append(RESIZED)
        if self._input in ready:
            text = self._read()
            found += [_NAMES.get(key, key) for key in _KEY.findall(text)] or [ENDED]
        return found

    def _read(self) -> str:
        assert self._input is not None
        try:
            return os.read(self._input, 4096).decode(errors="replace")
        except OSError:
            return ""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let nobody end us in the middle of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
