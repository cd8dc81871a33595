# SPDX-License-Identifier: GPL-2.0-only
"""What there is to read is there once nodrop is installed, and is found."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

import pytest

from nodrop import cli

REPOSITORY = Path(__file__).resolve().parents[2]
ELSEWHERE = ("../nodrop/", "../contrib/", "kmod/", "COPYING")
"""Links that hold in a clone only: the pages name the place of these in words."""


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that an installation has."""
    folder = tmp_path_factory.mktemp("doc") / "nodrop"
    subprocess.run([REPOSITORY / "scripts/lay", "docs", folder], check=True)
    return folder


def test_links_hold(laid: Path) -> None:
    pages = sorted(laid.rglob("*.md"))
    assert len(pages) > 20
    links = 0
    for page in pages:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not link.startswith(("http", *ELSEWHERE)):
                assert (page.parent / link).exists(), f"{page.relative_to(laid)}: {link}"
                links += 1
    assert links > 30


def test_pages_that_manuals_and_help_name_are_there(laid: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "man").iterdir()]
    for action in cli.parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts += [command.format_help() for command in action.choices.values()]
    named = {name for text in texts for name in re.findall(r"docs/[a-z]+\.md", text)}
    assert {"docs/json.md", "docs/livepatch.md", "docs/prometheus.md"} <= named
    assert [name for name in named if not (laid / name).is_file()] == []


def test_manuals_say_where_the_pages_are() -> None:
    files = (REPOSITORY / "man/nodrop.1.rst").read_text(encoding="utf-8").partition("\nFILES\n")[2]
    installer = (REPOSITORY / "scripts/install").read_text(encoding="utf-8")
    rules = (REPOSITORY / "debian/rules").read_text(encoding="utf-8")
    assert "*/usr/share/doc/nodrop*" in files
    assert "*/usr/local/share/doc/nodrop*" in files
    assert "scripts/lay docs debian/nodrop/usr/share/doc/nodrop\n" in rules
    assert 'scripts/lay docs "$share/doc/nodrop"\n' in installer
    for page in (REPOSITORY / "man").iterdir():
        text = page.read_text(encoding="utf-8")
        if "docs/" in text and page.name != "nodrop.1.rst":
            assert re.search(r"\*\*nodrop\*\*\\ ?\(1\) says where", text), page.name


def test_what_is_installed_is_removed() -> None:
    done = subprocess.run(
        [REPOSITORY / "scripts/install", "-n", "-u"], capture_output=True, encoding="utf-8"
    )
    if "nodrop-dkms is installed" in done.stderr:
        pytest.skip("the package is installed here")
    assert done.returncode == 0, done.stderr
    assert " /usr/local/share/doc/nodrop " in done.stdout


def test_the_package_tells_of_each_command_that_looks() -> None:
    text = (REPOSITORY / "debian/control").read_text(encoding="utf-8")
    description = text.partition("\nPackage: nodrop\n")[2].partition("Description:")[2]
    for command in cli.COMMANDS:
        if command.group == "look":
            assert f'"{command.name}"' in description
