# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's trace events, from tracefs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import parameter

from guestlib.process import tool

TRACING = Path("/sys/kernel/tracing")
_LINE = re.compile(
    r"\[(?P<cpu>\d+)\] \S+ +(?P<time>[\d.]+): (?P<name>\w+): (?P<fields>.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class Event:
    """An event: where and when (seconds of the kernel's clock) it happened."""

    name: str
    cpu: int
    time: float
    fields: dict[str, str]


def seen() -> list[Event]:
    """Return the events so far."""
    return [
        Event(
            match["name"],
            int(match["cpu"]),
            float(match["time"]),
            dict(word.split("=", 1) for word in match["fields"].split() if "=" in word),
        )
        for match in _LINE.finditer((TRACING / "trace").read_text())
    ]


def events(name: str) -> list[dict[str, str]]:
    """Return the fields of the events of a name so far."""
    return [event.fields for event in seen() if event.name == name]


def forget() -> None:
    """Delete the events so far."""
    (TRACING / "trace").write_text("")


@contextmanager
def tracing(*names: str) -> Iterator[None]:
    """Trace events, such as "nodrop" or "timer/timer_start", during the block."""
    if not (TRACING / "trace").exists():
        tool(["mount", "-t", "tracefs", "none", str(TRACING)])
    forget()
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(parameter(TRACING / "events" / name / "enable", "1"))
        yield
