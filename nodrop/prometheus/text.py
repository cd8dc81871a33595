# SPDX-License-Identifier: GPL-2.0-only
"""Prometheus' text exposition format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Family:
    """All samples of one metric.

    Attributes:
        name: includes the unit; that of a counter ends in ``_total``.
        kind: "counter" or "gauge".
        help: one sentence.
        labels: names of the labels of each sample.
        samples: label values -> value, in printing order.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: dict[tuple[str, ...], float] = field(default_factory=dict)


def lines(families: Iterable[Family]) -> Iterator[str]:
    """Yield the lines of a page by family, without families that have no sample."""
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
    """Return a whole page in UTF-8, whatever the locale."""
    return "".join(f"{line}\n" for line in lines(families)).encode()


def readable(text: str) -> str:
    r"""Return a text that UTF-8 can encode; bytes of a name that are not UTF-8 become ``\xff``.

    Different names stay different.
    """
    text = text.replace("\\", r"\\")
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _value(text: str) -> str:
    return _help(text).replace('"', r"\"")
