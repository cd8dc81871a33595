# SPDX-License-Identifier: GPL-2.0-only
"""What ``nodrop set`` is going to do, whatever the setting, and on which devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodrop.errors import NodropError
from nodrop.host.settings import is_pattern, matches

Action = tuple[str, Callable[[], None]]
"""The equivalent shell command, and the function that does the same."""


@dataclass
class Plan:
    """Actions, and what to print about them.

    Attributes:
        kept: settings that new devices get; None: not read.
    """

    actions: list[Action] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    kept: dict[str, str] | None = None
    default: dict[str, Any] | None = None
    sentences: list[str] = field(default_factory=list)

    def select(self, names: Iterable[str], here: Mapping[str, bool], *, now: bool) -> list[str]:
        """Return the devices to set at once, and say which names and patterns match none.

        Args:
            here: existing devices -> whether they are TUN or TAP; a pattern matches no others.
            now: the setting is not kept, so it is for existing devices only.

        Raises:
            NodropError: nothing matches, and the setting is not kept.
        """
        selected: dict[str, None] = {}
        for name in names:
            if name in here or (now and not is_pattern(name)):
                matching = [name]
            else:
                matching = [other for other, tun in here.items() if tun and matches(name, other)]
                if not matching and now:
                    raise NodropError(
                        f"No TUN or TAP device matches {name} here.",
                        "'nodrop status' lists devices.",
                    )
                if not matching:
                    self.sentences.append(f"No TUN or TAP device matches {name} now.")
            selected.update(dict.fromkeys(matching))
        return list(selected)

    def do(self) -> None:
        """Do all; NodropError, whose hint names what was done before, if one fails."""
        done: list[str] = []
        for text, action in self.actions:
            try:
                action()
            except NodropError as error:
                if done:
                    error.hint = "\n".join(filter(None, [error.hint, "Already done:", *done]))
                raise
            done.append(text)
