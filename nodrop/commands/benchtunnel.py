# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop bench tunnel``: what the parts of the tunnels' series save (docs/tunnels.md)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from nodrop import screen
from nodrop.columns import Column
from nodrop.commands import common
from nodrop.errors import UsageError
from nodrop.guest.tunnels.compare import FEATURES
from nodrop.guest.tunnels.kinds import KINDS
from nodrop.guest.tunnels.topology import Lower

NAME = "tunnel"
TITLE = "What parts of a series for tunnels save, in one kernel with a switch for each"
ALL = "all"
_PARTS = tuple(name for name, bit in FEATURES.items() if bit)
_DEFAULT_TYPES = ("vxlan", "geneve", "gre", "ipip", "sit", "wireguard")
_DEFAULT_BOOTS = 6
_DEFAULT_SECONDS = 2.4
_OPTIONS = ("type", "lower", "senders", "parts")


def _list_of(known: Sequence[str], what: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of words with commas between them, for argparse."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(text.split(",")))
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"no {what} '{word}'; known: {', '.join(known)}")
        return words

    return parse


def _parts(text: str) -> tuple[str, ...]:
    """Parse ``noref,straight+noid``: what is measured one after another; ``+`` is together."""
    together = _list_of((*_PARTS, ALL), "part")
    found = []
    for word in text.split(","):
        names = together(word.replace("+", ","))
        found.append(",".join(_PARTS if ALL in names else names))
    return tuple(dict.fromkeys(found))


def register(parser: argparse.ArgumentParser) -> None:
    """Add the options that only this scenario has; man nodrop-bench explains them."""
    senders = _list_of(("1", "2", "2shared"), "number of senders")
    lower = _list_of([str(lower) for lower in Lower], "device")
    kinds = _list_of(tuple(KINDS), "tunnel")
    parsers = {"type": kinds, "lower": lower, "senders": senders, "parts": _parts}
    for name in _OPTIONS:
        parser.add_argument(f"--{name}", type=parsers[name], help=argparse.SUPPRESS)


def unwanted(arguments: argparse.Namespace) -> None:
    """Check that another scenario is asked for nothing that only this one has.

    Raises:
        UsageError: it is.
    """
    given = [name for name in _OPTIONS if getattr(arguments, name)]
    if given:
        raise UsageError(
            f"--{given[0]} is for the scenario 'tunnel'.",
            "Leave it out, or see man nodrop-bench.",
        )


def run(arguments: argparse.Namespace) -> int:
    """Measure, write and print."""
    from nodrop.bench import tunnel
    from nodrop.report import tunnels
    from nodrop.report.files import MARKDOWN_NAME, read_rows

    if arguments.variants:
        raise UsageError(
            "The scenario 'tunnel' compares no drivers.", "Choose --parts, not --variants."
        )
    types = arguments.type or _DEFAULT_TYPES
    wanted = [
        tunnel.Case(kind, lower, int(senders[0]), part, shared=senders.endswith("shared"))
        for kind in types
        for lower in arguments.lower or (str(Lower.VETH),)
        for senders in arguments.senders or ("1",)
        for part in arguments.parts or ("noref", ",".join(_PARTS))
    ]
    if any(case.shared and case.lower != Lower.VETH for case in wanted):
        raise UsageError(
            "Only over veth somebody is there who tells of a smaller MTU.",
            "Leave out --lower dummy, or --senders 2shared.",
        )
    out = arguments.out or common.default_out(NAME)
    boots = arguments.pairs or _DEFAULT_BOOTS
    with common.progress(arguments) as progress:
        tunnel.measure(wanted, boots, arguments.seconds or _DEFAULT_SECONDS, out, progress)
    lines, meta = read_rows(out)
    found = tunnels.summarise(lines)
    (out / MARKDOWN_NAME).write_text(tunnels.markdown(found, meta), encoding="utf-8")
    if arguments.json:
        common.print_json(f"bench {NAME}", {"cases": found})
        return 0
    columns = [Column(name, right=name in tunnels.NUMBERS) for name in tunnels.HEAD]
    screen.console(arguments).table(columns, tunnels.rows(found))
    print(f"Data and table: {out}")
    return 0
