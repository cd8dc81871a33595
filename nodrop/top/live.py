# SPDX-License-Identifier: GPL-2.0-only
"""The screen of ``nodrop top``, and what its keys do."""

from __future__ import annotations

import time
from collections.abc import Callable

from nodrop.host.model import Host
from nodrop.screen import Screen
from nodrop.top import frame, terminal
from nodrop.top.look import FIRST_S, Look, Looks
from nodrop.top.terminal import Terminal
from nodrop.top.view import LEAST_S, Sort, View

SORTS = {
    "D": Sort.DROPS,
    "P": Sort.PACKETS,
    "B": Sort.BYTES,
    "S": Sort.STOPS,
    "L": Sort.WAIT,
    "F": Sort.FILL,
    "N": Sort.NAME,
    "n": Sort.NAME,
}


class Live:
    """The screen.

    Args:
        looks: where rows come from.
        chosen: what is shown at first.
        console: the terminal to show it on.
        keys: where keys come from; None: nowhere.
        interval_s: between refreshes.
        headline: what the machine runs, in a line.
    """

    def __init__(
        self,
        looks: Looks,
        chosen: View,
        console: Screen,
        keys: int | None,
        interval_s: float,
        headline: Callable[[Host], str],
    ) -> None:
        self._looks = looks
        self._view = chosen
        self._console = console
        self._terminal = Terminal(console.stream.fileno(), keys)
        self._interval_s = interval_s
        self._headline = headline
        self._offset = 0
        self._page = 1
        self._help = False
        self._quit = False
        self._due = 0.0
        self._seen = 0.0

    def run(self, look: Look, count: int | None) -> Look | None:
        """Show what there is until somebody quits.

        Args:
            look: the first, without rates.
            count: end after so many others; None: never.

        Returns:
            The last one, if ``count`` is what ended it.

        Raises:
            NodropError: the machine cannot be read any more.
            Lost: the terminal is gone.
        """
        done = 0
        self._seen = time.monotonic()
        self._due = self._seen + min(self._interval_s, FIRST_S)
        with self._terminal.opened():
            while not self._quit:
                self._terminal.draw(self.frame(look, self._terminal.size()))
                for key in self._terminal.keys(self._due - time.monotonic()):
                    self.press(key)
                if not self._quit and time.monotonic() >= self._due:
                    look = self._looks.look()
                    done += 1
                    if done == count:
                        return look
                    self._seen = time.monotonic()
                    self._due = max(self._due + self._interval_s, self._seen)
        return None

    def press(self, key: str) -> None:
        """Do what a key says."""
        if key == terminal.ENDED:
            self._quit = True
        elif key == terminal.RESIZED:
            pass
        elif self._help:
            self._help = False
        else:
            self._command(key)

    def _command(self, key: str) -> None:
        shown = self._view
        if key == "q":
            self._quit = True
        elif key == " ":
            # Rates of a shorter time would be noise.
            self._due = max(time.monotonic(), self._seen + LEAST_S)
        elif key in SORTS:
            shown.sort = SORTS[key]
        elif key in "rR":
            shown.reverse = not shown.reverse
        elif key in "1Q":
            shown.queues = not shown.queues
        elif key in "h?":
            self._help = True
        else:
            self._scroll(key)

    def _scroll(self, key: str) -> None:
        steps = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "page-up": -self._page,
            "page-down": self._page,
            "home": -self._offset,
            "end": 1 << 30,
        }
        # frame() keeps it within bounds.
        self._offset = max(self._offset + steps.get(key, 0), 0)

    def frame(self, look: Look, size: tuple[int, int]) -> list[str]:
        """Return the lines of the whole screen."""
        if self._help:
            return frame.help_frame(*size)
        title = frame.title(look, self._headline(look.host), self._interval_s)
        made = frame.frame(look, self._view, self._console, size, title, self._offset)
        self._offset, self._page = made.offset, made.page
        return made.lines
