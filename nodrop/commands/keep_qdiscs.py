# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop keep-qdiscs``: the service that gives new devices the qdiscs that ``set`` keeps."""

from __future__ import annotations

import argparse

from nodrop.commands import common
from nodrop.errors import NodropError
from nodrop.host import procfs, qdisc
from nodrop.screen import clean


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "keep-qdiscs",
        description="Replace noqueue of TUN and TAP devices for which 'nodrop set DEV qdisc "
        f"fq_codel' is kept, until Ctrl-C. {qdisc.SERVICE} runs it. Prints a line for each "
        "device.",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if not procfs.capable(procfs.CAP_NET_ADMIN):
        raise NodropError("Replacing qdiscs needs CAP_NET_ADMIN.", "Run this as root.")
    qdisc.require_here()

    def show(text: str) -> None:
        if arguments.json:
            common.print_json("keep-qdiscs", {"text": text}, compact=True)
        else:
            print(clean(text), flush=True)

    try:
        qdisc.keep(show)
    except OSError as error:
        raise NodropError(f"Netlink failed: {error.strerror}.") from error
    return 0
