# SPDX-License-Identifier: GPL-2.0-only
"""Show the progress of a long command on stderr.

A step prints a line when it starts and one when it ends. On a terminal, the first is replaced: it
shows the running step with its elapsed time, what it does now, and how much of it is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, RLock, Thread
from typing import TextIO

from nodrop import screen
from nodrop.screen import clean, clean_lines

REFRESH_S = 0.25
_CLEAR = "\r\033[K"


class Step:
    """A running step; created by :meth:`Progress.step`.

    Attributes:
        total: the amount of work in any unit; None: unknown.
    """

    def __init__(self, title: str, total: float | None) -> None:
        self.title = title
        self.total = total
        self.began = time.monotonic()
        self._detail = ""
        self._done = 0.0

    def update(self, detail: str = "", *, done: float | None = None) -> None:
        """Show what is being done now, and how much of ``total`` is done."""
        self._detail = clean(detail) or self._detail
        self._done = self._done if done is None else done

    def line(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        part = f"{min(self._done / self.total, 1):.0%}" if self.total else ""
        return "  ".join(filter(None, (self.title, part, f"{minutes}:{seconds:02}", self._detail)))


class Progress:
    """Steps with elapsed time; a context manager.

    Args:
        stream: where to print; None: stderr.
        color: one of screen.COLORS.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, color: str = "auto"
    ) -> None:
        self.quiet = quiet
        self._stream = stream
        self._color = color
        self._steps: list[Step] = []
        self._lock = RLock()
        self._ended = Event()
        self._ticker: Thread | None = None

    def __enter__(self) -> Progress:
        if screen.can_move(self._stream or sys.stderr) and not self.quiet:
            self._ticker = Thread(target=self._tick, daemon=True)
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._ticker:
            self._ended.set()
            self._ticker.join()

    @contextmanager
    def step(self, title: str, total: float | None = None) -> Iterator[Step]:
        """Run the body as one step.

        Args:
            title: what is done, as a short imperative ("Build the kernel").
            total: the amount of work in any unit; None: unknown.
        """
        step = Step(clean(title), total)
        if not self._ticker:
            self.note(f"{step.title} ...")
        with self._lock:
            self._steps.append(step)
            self._draw()
        end, style = "failed", "red"
        try:
            yield step
            end, style = "done", ""
        finally:
            took = time.monotonic() - step.began
            with self._lock:
                self._steps.remove(step)
                self.note(f"{step.title}: {end} after {took:.1f} s", style)

    def note(self, text: str, style: str = "") -> None:
        if self.quiet:
            return
        stream = self._stream or sys.stderr
        out = screen.Screen(stream, screen.colored(self._color, stream), None)
        with self._lock:
            clear = _CLEAR if self._ticker else ""
            print(clear + out.paint(clean_lines(text), style), file=stream)
            self._draw()

    def _tick(self) -> None:
        while not self._ended.wait(REFRESH_S):
            self._draw()

    def _draw(self) -> None:
        """Draw the innermost running step, without its end if it does not fit."""
        with self._lock:
            if self._ticker and self._steps:
                stream = self._stream or sys.stderr
                line = self._steps[-1].line()
                while screen.width(line) >= screen.terminal_width(stream):
                    line = line[:-1]
                print(_CLEAR + line, end="", file=stream, flush=True)
