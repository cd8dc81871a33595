# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab list``: the scenarios."""

from __future__ import annotations

import argparse

from bench import scenario
from nodrop.commands.common import print_json


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("list", description="List the scenarios with their titles.")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    scenarios = {name: scenario.load(name) for name in scenario.known()}
    if arguments.json:
        listed = {name: {"title": entry.title} for name, entry in scenarios.items()}
        print_json("list", {"scenarios": listed})
        return 0
    width = max(map(len, scenarios), default=0)
    for name, entry in scenarios.items():
        print(f"{name:{width}}  {entry.title}")
    return 0
