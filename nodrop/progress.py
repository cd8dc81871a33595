# SPDX-License-Identifier: GPL-2.0-only
"""Shows what a long command is doing, on stderr.

On a terminal each step is one live line with its elapsed time. Elsewhere a step
prints a line when it starts, one every few seconds while it lasts, and one when it
ends, so that a log of a run shows that it moves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from nodrop import screen
from nodrop.columns import clean, clean_lines

PLAIN_INTERVAL_S = 10.0
"""Seconds between two signs of life of a step when stderr is not a terminal."""


def format_seconds(seconds: float) -> str:
    """Return a duration as ``4.2 s`` or ``3 min 05 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


class Step:
    """One step that is under way; made by :meth:`Progress.step`."""

    def __init__(self, progress: Progress, title: str, total: float | None) -> None:
        self.title = clean(title)
        self.total = total
        self.done = 0.0
        self.detail = ""
        self.started = time.monotonic()
        self._progress = progress
        self._task: TaskID | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the step started."""
        return time.monotonic() - self.started

    @property
    def eta_s(self) -> float | None:
        """Seconds that are probably left, or None when that is unknown."""
        if not self.total or self.done <= 0:
            return None
        return self.elapsed_s * max(self.total - self.done, 0.0) / self.done

    def update(self, detail: str = "", *, done: float | None = None) -> None:
        """Tell what is happening now, and how much of ``total`` is done."""
        if detail:
            self.detail = clean(detail)
        if done is not None:
            self.done = done
        self._progress.refresh(self)

    def advance(self, amount: float = 1.0, detail: str = "") -> None:
        """Count ``amount`` more of ``total`` as done."""
        self.update(detail, done=self.done + amount)

    def describe(self) -> str:
        """Return detail, share done and time left, for one line of text."""
        parts = [self.detail] if self.detail else []
        if self.total:
            parts.append(f"{min(self.done / self.total, 1.0):.0%}")
        if (eta := self.eta_s) is not None and eta >= 1:
            parts.append(f"{format_seconds(eta)} left")
        return ", ".join(parts)


class Progress:
    """Steps with elapsed time; a context manager.

    Args:
        quiet: print nothing at all.
        console: where to print; stderr when None.
        color: one of screen.COLORS, for stderr.
    """

    def __init__(
        self, *, quiet: bool = False, console: Console | None = None, color: str = "auto"
    ) -> None:
        self.quiet = quiet
        self.console = console or screen.rich_console(color, stderr=True)
        self._live: RichProgress | None = None
        self._lock = threading.Lock()
        self._running: list[Step] = []
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        if self.console.is_terminal:
            self._live = RichProgress(
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TimeElapsedColumn(),
                TextColumn("[dim]{task.fields[detail]}[/]"),
                console=self.console,
                transient=False,
            )
            self._live.start()
        else:
            self._stop.clear()
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._ticker:
            self._ticker.join(timeout=1.0)
            self._ticker = None
        if self._live:
            self._live.stop()
            self._live = None

    @contextmanager
    def step(self, title: str, total: float | None = None) -> Iterator[Step]:
        """Run the body as one step.

        Args:
            title: what is done, as a short imperative ("Build the kernel").
            total: the amount of work in any unit, when it is known.
        """
        step = Step(self, title, total)
        self._begin(step)
        try:
            yield step
        except BaseException:
            self._finish(step, ok=False)
            raise
        self._finish(step, ok=True)

    def note(self, text: str) -> None:
        """Print one line of text that stays."""
        if not self.quiet:
            self.console.print(clean_lines(text), markup=False)

    def refresh(self, step: Step) -> None:
        """Show the state of a step again; called by the step itself."""
        if self._live and step._task is not None:
            self._live.update(step._task, completed=step.done, detail=step.describe())

    def _begin(self, step: Step) -> None:
        with self._lock:
            self._running.append(step)
        if self._live:
            step._task = self._live.add_task(step.title, total=step.total, detail="")
        else:
            self.note(f"{step.title} ...")

    def _finish(self, step: Step, *, ok: bool) -> None:
        with self._lock:
            self._running.remove(step)
        took = format_seconds(step.elapsed_s)
        if self._live and step._task is not None:
            title = step.title if ok else f"[red]{step.title}: failed[/]"
            total = step.total or 1
            self._live.update(
                step._task,
                description=title,
                detail=step.detail,
                total=total,
                completed=total if ok else step.done,
            )
            self._live.stop_task(step._task)
        else:
            self.note(f"{step.title}: {'done' if ok else 'failed'} after {took}")

    def _tick(self) -> None:
        while not self._stop.wait(PLAIN_INTERVAL_S):
            with self._lock:
                step = self._running[-1] if self._running else None
            if step and step.elapsed_s >= PLAIN_INTERVAL_S:
                text = step.describe()
                tail = f" ({text})" if text else ""
                self.note(f"{step.title}: {format_seconds(step.elapsed_s)}{tail}")
