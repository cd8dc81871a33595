# SPDX-License-Identifier: GPL-2.0-only
"""The man pages say what the commands do, and can be read."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

import pytest

from nodrop import cli, options

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = REPOSITORY / "man"
SECTIONS = ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]


def sections(page: Path) -> dict[str, str]:
    parts = re.split(r"^([A-Z][A-Z ]+)\n=+$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def options_of_page(page: Path) -> set[str]:
    """Return the options of an option list: what stands before two spaces."""
    heads = re.findall(r"^(-.*?)(?:  |$)", sections(page)["OPTIONS"], flags=re.MULTILINE)
    return {word for head in heads for word in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", head)}


def options_of_parser(parser: argparse.ArgumentParser) -> set[str]:
    found: set[str] = set()
    for action in parser._actions:
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= options_of_parser(below)
    return found


def common() -> set[str]:
    parser = options.Parser()
    options.add(parser)
    return options_of_parser(parser)


def parser_of(command: cli.Command) -> argparse.ArgumentParser:
    for action in cli.parser(command)._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser: argparse.ArgumentParser = action.choices[command.name]
            return parser
    raise AssertionError(command)


def test_each_command_has_a_page_and_each_page_a_command() -> None:
    pages = {path.name for path in PAGES.iterdir()}
    assert pages == {"nodrop.1.rst", *(f"nodrop-{one.name}.1.rst" for one in cli.COMMANDS)}


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda one: one.name)
def test_options(command: cli.Command) -> None:
    page = PAGES / f"nodrop-{command.name}.1.rst"
    assert options_of_page(page) - common() == options_of_parser(parser_of(command)) - common()


def test_options_of_all_commands() -> None:
    assert options_of_page(PAGES / "nodrop.1.rst") == options_of_parser(cli.top_parser())


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda one: one.name)
def test_sections(command: cli.Command) -> None:
    parts = sections(PAGES / f"nodrop-{command.name}.1.rst")
    assert [name for name in parts if name in SECTIONS] == SECTIONS
    assert f"nodrop {command.name}" in parts["EXAMPLES"]
    named = re.findall(r"\*\*nodrop-(\w+)\*\*", parts["SEE ALSO"])
    assert set(named) <= {one.name for one in cli.COMMANDS}


def test_pages_are_made_and_read_without_a_word(tmp_path: Path) -> None:
    made = subprocess.run(
        [REPOSITORY / "scripts/man", tmp_path], capture_output=True, encoding="utf-8"
    )
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    pages = sorted(tmp_path.glob("*.1"))
    assert [page.name for page in pages] == sorted(path.stem for path in PAGES.iterdir())
    for page in pages:
        read = subprocess.run(
            ["groff", "-man", "-ww", "-z", "-Tutf8", page], capture_output=True, encoding="utf-8"
        )
        assert (read.returncode, read.stderr) == (0, "")
        assert "\n.ft C" not in page.read_text(encoding="utf-8"), "a font that groff 1.23 warns of"
    whole = (tmp_path / "nodrop.1").read_text(encoding="utf-8")
    assert "@COMMANDS@" not in whole
    for command in cli.COMMANDS:
        assert command.summary.split()[0] in whole
