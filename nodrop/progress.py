# SPDX-License-Identifier: GPL-2.0-only
"""Show the progress of a long command on stderr.

On a terminal, each step is a live line with its elapsed time. Otherwise a step prints a line
when it starts and one when it ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from nodrop import screen
from nodrop.screen import clean, clean_lines


class Step:
    """A running step; created by :meth:`Progress.step`."""

    def __init__(self, live: RichProgress | None, title: str, total: float | None) -> None:
        self._live = live
        self._task = TaskID(0)
        if live:
            self._task = live.add_task(escape(title), total=total, detail="")

    def update(self, detail: str = "", *, done: float | None = None) -> None:
        """Show what is being done now, and how much of ``total`` is done."""
        if self._live:
            fields: dict[str, Any] = {"detail": clean(detail)} if detail else {}
            self._live.update(self._task, completed=done, **fields)

    def finish(self, title: str, *, ok: bool) -> None:
        """Stop the clock, and fill the bar if the step succeeded."""
        if self._live:
            task = self._live.tasks[self._task]
            total = task.total or 1
            done = total if ok else task.completed
            title = escape(title) if ok else f"[red]{escape(title)}: failed[/]"
            self._live.update(self._task, description=title, total=total, completed=done)
            self._live.stop_task(self._task)


class Progress:
    """Steps with elapsed time; a context manager.

    Args:
        console: where to print; None: stderr.
        color: one of screen.COLORS, for stderr.
    """

    def __init__(
        self, *, quiet: bool = False, console: Console | None = None, color: str = "auto"
    ) -> None:
        self.quiet = quiet
        colored = screen.colored(color, sys.stderr)
        self.console = console or Console(
            stderr=True,
            highlight=False,
            force_terminal=screen.can_move(sys.stderr),
            color_system="auto" if colored else None,
            no_color=not colored,
        )
        self._live: RichProgress | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.quiet:
            self._live = RichProgress(
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TimeElapsedColumn(),
                TextColumn("{task.fields[detail]}", style="dim", markup=False),
                console=self.console,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    @contextmanager
    def step(self, title: str, total: float | None = None) -> Iterator[Step]:
        """Run the body as one step.

        Args:
            title: what is done, as a short imperative ("Build the kernel").
            total: the amount of work in any unit; None: unknown.
        """
        title = clean(title)
        began = time.monotonic()
        if not self._live:
            self.note(f"{title} ...")
        step = Step(self._live, title, total)
        ok = False
        try:
            yield step
            ok = True
        finally:
            step.finish(title, ok=ok)
            if not self._live:
                took = time.monotonic() - began
                self.note(f"{title}: {'done' if ok else 'failed'} after {took:.1f} s")

    def note(self, text: str) -> None:
        if not self.quiet:
            self.console.print(clean_lines(text), markup=False)
