# SPDX-License-Identifier: GPL-2.0-only
"""Links, options, commands and names in docs, man pages and help exist."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from script import load

from bench import scenario
from lab import cli as lab
from nodrop import cli

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = REPOSITORY / "packaging/man.rst"
ELSEWHERE = ("../nodrop/", "../bench/", "../packaging/", "kmod/", "dkms/", "COPYING")
"""Links that work only in a clone; the pages also name these places."""
_LINE = re.compile(
    r"(?:`|^\$ |^    |'|sudo |\.venv/bin/)(nodrop(?:-lab)?) ([^`'\n|;>#\\()]+)", re.MULTILINE
)
"""A command line of nodrop or nodrop-lab, in text or as an example."""


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doc") / "nodrop"
    subprocess.run([REPOSITORY / "packaging/lay", "docs", folder], check=True)
    return folder


def parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def options_of_page(text: str) -> set[str]:
    """Return the options in a man page's list: the words before two spaces."""
    text = text.partition("\nOPTIONS\n")[2]
    text = re.split(r"^[A-Z][A-Z ]+\n=+$", text, maxsplit=1, flags=re.MULTILINE)[0]
    heads = re.findall(r"^(-.*?)(?:  |$)", text, flags=re.MULTILINE)
    return {word for head in heads for word in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", head)}


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    found = {word for action in parser._actions for word in action.option_strings}
    return found.union(*(options_of(below) for _, below in parsers(parser)))


def test_links(laid: Path) -> None:
    links = [
        (path, link)
        for path in laid.rglob("*.md")
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
        if not link.startswith(("http", *ELSEWHERE))
    ]
    assert len(links) > 30
    gone = [(path.name, link) for path, link in links if not (path.parent / link).exists()]
    assert gone == []
    texts = [PAGES.read_text(encoding="utf-8")]
    texts += [command.format_help() for _, command in parsers(cli.parser())]
    named = {name for text in texts for name in re.findall(r"docs/[a-z-]+\.md", text)}
    assert [name for name in named if not (laid / name).is_file()] == []


def test_commands_and_options_exist() -> None:
    lines: set[tuple[str, str]] = set()
    for path in [*REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("*.md"), PAGES]:
        if path.name == "CHANGELOG.md":
            continue
        lines.update(_LINE.findall(path.read_text(encoding="utf-8")))
    assert len(lines) > 60
    known = {}
    for program in (cli.NODROP, lab.PROGRAM):
        top = options_of(cli.top_parser(program))
        known[program.name] = top, dict(parsers(cli.parser(program=program)))
    for program_name, line in lines:
        top, below = known[program_name]
        words = line.partition(" -- ")[0].split()
        typed = {word for word in words if word[0] == "-"}
        name = next((word for word in words if word in below), None)
        if name is None:
            assert {*words} <= {*top, "COMMAND", "__complete", "SHELL", "WORDS"}, line
        else:
            assert typed <= top | options_of(below[name]), line
        if words[0] == "bench" and words[1:] and words[1][0] != "-":
            assert words[1] in scenario.known(), line


def test_man_pages_list_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = load("manpages", monkeypatch, REPOSITORY / "packaging").pages()
    common = cli.Parser()
    cli.add_options(common)
    pages = {name: options_of_page(text) for name, text in texts.items()}
    assert pages.pop("nodrop") == options_of(cli.top_parser())
    commands = {f"nodrop-{name}": options_of(parser) for name, parser in parsers(cli.parser())}
    assert pages.keys() == commands.keys()
    for name, listed in pages.items():
        assert listed - options_of(common) == commands[name] - options_of(common), name
