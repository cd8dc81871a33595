# SPDX-License-Identifier: GPL-2.0-only
"""Prometheus' text exposition format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Family:
    """All samples of one metric.

    Attributes:
        name: with the unit in it; a counter's ends in ``_total``.
        kind: "counter" or "gauge".
        help: one sentence.
        labels: names of the labels that each sample has.
        samples: the labels' values -> the number; in the order in which they are printed.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: dict[tuple[str, ...], float] = field(default_factory=dict)


def lines(families: Iterable[Family]) -> Iterator[str]:
    """Return the lines of a page, each family together; one without samples is left out."""
    for family in families:
        if not family.samples:
            continue
        yield f"# HELP {family.name} {_help(family.help)}"
        yield f"# TYPE {family.name} {family.kind}"
        for values, number in family.samples.items():
            pairs = zip(family.labels, values, strict=True)
            labels = ",".join(f'{label}="{_value(value)}"' for label, value in pairs)
            yield f"{family.name}{{{labels}}} {number}" if labels else f"{family.name} {number}"


def page(families: Iterable[Family]) -> bytes:
    """Return a whole page; it is UTF-8, whatever the locale."""
    return "".join(f"{line}\n" for line in lines(families)).encode()


def readable(text: str) -> str:
    r"""Return a text that UTF-8 can carry: bytes of a name that are none become ``\xff``.

    Two names stay two.
    """
    text = text.replace("\\", r"\\")
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _value(text: str) -> str:
    return _help(text).replace('"', r"\"")
