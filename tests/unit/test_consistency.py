# SPDX-License-Identifier: GPL-2.0-only
"""What must agree: imports and layers, barriers and litmus tests, mutants and cases, documents."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import itertools
import re
import runpy
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from guest.conftest import PROGRAMS
from guest.test_sweep import ROWS
from mutants.test_caught import KUNIT, MUTANTS, mutated
from script import load

from bench import scenario
from lab import arm64, roots
from lab import cli as lab
from lab.machines import LIVE_KERNELS
from lab.sources import REPOSITORY
from nodrop import cli
from proof.herd import LITMUS, TWINS, code, twin_text
from proof.selftests import PROGRAMS as PROGRAM_FOLDER
from proof.selftests import find_cases, find_selftests
from proof.sweep.rows import NAMES, VALUES, choose, excluded, parse

KMOD = REPOSITORY / "kmod"
TESTS = REPOSITORY / "tests"

LAYERS = {
    "nodrop": set(),
    "lab": {"nodrop"},
    "guestlib": {"lab", "nodrop"},
    "bench": {"lab", "nodrop"},
    "bench.guest": {"bench", "guestlib", "lab", "nodrop"},
    "proof": {"proof.commands", "guestlib", "lab", "nodrop"},
    "proof.commands": {"lab", "nodrop"},
    "tunnels": {"bench", "bench.guest", "guestlib", "lab", "nodrop"},
}
"""Packages, and others that they may import. A subpackage named here is one of its own."""


def package(module: str) -> str:
    """Return the key of LAYERS that a module belongs to, '' if there is none."""
    return max(
        (name for name in LAYERS if f"{module}.".startswith(f"{name}.")), default="", key=len
    )


def module_files() -> dict[str, Path]:
    """Return the modules of LAYERS and of the tests."""
    paths = [path for name in LAYERS for path in (REPOSITORY / name).rglob("*.py")]
    files = {path.relative_to(REPOSITORY): path for path in paths}
    files |= {path.relative_to(TESTS): path for path in TESTS.rglob("*.py")}
    assert len(files) > 200
    names = {path: ".".join(path.with_suffix("").parts) for path in files}
    return {names[path].removesuffix(".__init__"): file for path, file in files.items()}


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return what each of those modules imports.

    Imports in functions and for types count, too: they hide a cycle, and do not break it.
    """
    modules = module_files()
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found[name].update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= {one if one in modules else f"{node.module}" for one in names}
    return found


def test_imports_have_no_cycle() -> None:
    # Modules of Python itself form no cycle. The error names the modules of the cycle.
    TopologicalSorter(imports()).prepare()


def test_packages_import_only_lower_ones() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if package(name) and package(other) not in {"", package(name), *LAYERS[package(name)]}
    ]
    assert not wrong


def test_no_two_public_classes_have_one_name() -> None:
    statements = [
        node for path in module_files().values() for node in ast.parse(path.read_bytes()).body
    ]
    names = Counter(node.name for node in statements if isinstance(node, ast.ClassDef))
    assert [name for name, times in names.items() if times > 1 and name[0] != "_"] == []


def with_imports(names: Iterable[str]) -> set[str]:
    """Return modules and all that they import, directly or not."""
    graph, waiting = imports(), [*names]
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in graph and name not in used:
            used.add(name)
            waiting += [*graph[name], name.rpartition(".")[0]]
    return used


def test_host_code_imports_no_guest_code() -> None:
    """Not indirectly either, nor by a name in a table of commands or scenarios."""
    named = {command.module for command in lab.PROGRAM.commands}
    kernels = [scenario.load(name).kernel for name in scenario.known()]
    named |= {kernel.partition(":")[0] for kernel in kernels if ":" in kernel}
    hosts = named | {name for name in imports() if package(name) in ("bench", "lab")}
    assert {"bench.session", "lab.commands", "proof.commands", "tunnels.kernels"} <= hosts
    reached = {name: with_imports([name]) for name in hosts}
    guests = ("bench.guest", "guestlib")
    assert not [name for name in hosts if {*map(package, reached[name])} & {*guests}]


def run_by(words: str) -> set[Path]:
    """Return the modules that pytest imports for the tests that a command line names."""
    files = module_files()
    named = [REPOSITORY / word for word in words.split() if "tests/" in word and word[0] != "-"]
    tests = {path for test in named for path in (test, *test.rglob("test_*.py"))}
    names = [name for name, path in files.items() if path in tests]
    folders = {"", *(".".join(name.split(".")[:n]) for name in names for n in range(1, 9))}
    conftests = [f"{folder}.conftest".removeprefix(".") for folder in folders]
    return {files[name] for name in with_imports([*names, *conftests])}


def test_checks_cover_what_their_tests_import(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = load("checks.py", monkeypatch)
    for check in checks.CHECKS:
        used = {str(path.relative_to(REPOSITORY)) for path in run_by(check.run)}
        assert "tests/conftest.py" in used or not check.run.startswith("pytest")
        assert used - {*checks.covered(check)} == set(), check.name


TEXTS = {
    str(path.relative_to(KMOD)): path.read_text(encoding="utf-8")
    for path in sorted(KMOD.rglob("*.[ch]"))
    if "test" not in path.relative_to(KMOD).parts
}
BARRIER = re.compile(r"\b(?:smp_\w*(?:mb|release|acquire)\w*|smp_store_mb|clear_bit_unlock)\(")
NAMED = re.compile(
    r"Litmus: (?:proof/litmus/)?(\S+?)(?:\.litmus)?(?: \*/)?(?:\s*\\)?$", re.MULTILINE
)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CODE = re.compile(r"^ \* Code: (.*)$", re.MULTILINE)
"""In a litmus test: the barriers of the code that it proves."""


def barriers(text: str) -> list[tuple[str, set[str]]]:
    """Return each barrier, and the litmus tests named in its statement's comment."""
    comments = list(COMMENT.finditer(text))
    found = []
    for barrier in BARRIER.finditer(text):
        around = [c for c in comments if c.start() < barrier.start()]
        if around and barrier.start() < around[-1].end():
            continue  # in a comment
        between = text[around[-1].end() : barrier.start()].strip() if around else "{"
        near = not re.search(r"[;{}]", between)
        found.append((barrier[0], set(NAMED.findall(around[-1][0])) if near else set()))
    return found


ALL = [
    (f"{one}) in {name}", tests) for name, text in TEXTS.items() for one, tests in barriers(text)
]


def test_every_barrier_names_an_existing_litmus_test() -> None:
    assert len(ALL) >= 8
    assert [where for where, tests in ALL if not tests] == []
    named = {name for text in TEXTS.values() for name in NAMED.findall(text)}
    assert named == LITMUS.keys()


def test_each_litmus_test_matches_the_code() -> None:
    manual = (REPOSITORY / "docs/memory-ordering.md").read_text(encoding="utf-8")
    for test, path in LITMUS.items():
        proof = path.read_text(encoding="utf-8")
        assert f"`{test}`" in manual
        assert test in proof.splitlines()[0]
        proved = sorted(where for where, tests in ALL if test in tests)
        assert CODE.findall(proof) == [", ".join(proved) or "none"], test
        assert all(f"{barrier.partition('(')[0]}(" in code(test) for barrier in proved), test


def test_each_litmus_test_has_twins_that_differ() -> None:
    assert {twin.test for twin in TWINS} == LITMUS.keys()
    codes = [code(test) for test in LITMUS]
    codes += [twin_text(twin).partition("\n")[2] for twin in TWINS]
    assert len({*codes}) == len(codes)


def test_each_mutant_changes_its_file() -> None:
    for mutant in MUTANTS:
        text = (KMOD / mutant.file).read_text(encoding="utf-8")
        assert mutated(mutant, text) != text


def test_each_is_caught_by_an_existing_test() -> None:
    rows = [parse(mutant.caught_by) for mutant in MUTANTS if "=" in mutant.caught_by]
    assert rows
    tried = [parse(row) for row in ROWS]
    assert all(row in tried for row in rows)
    named = {mutant.caught_by for mutant in MUTANTS if "=" not in mutant.caught_by}
    cases = {f"{program.name}::{case}" for program in PROGRAMS for case in find_cases(program)}
    assert named <= cases | {path.name for path in PROGRAMS} | {KUNIT}


CASES = """
def case_plain() -> None: ...

@each("mq", "pfifo limit 5", 8)
def case_of(value: object) -> None: ...

def helper() -> None: ...
"""


def test_the_cases_are_those_that_the_harness_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CASES, encoding="utf-8")
    monkeypatch.setenv("LAB_MODULES", str(tmp_path))
    monkeypatch.syspath_prepend(PROGRAM_FOLDER)
    harness = importlib.import_module("harness")
    names = runpy.run_path(str(program), {"each": harness.each})
    cases = [value for name, value in names.items() if name.startswith("case_")]
    assert list(harness.by_name(cases)) == find_cases(program)
    assert all(find_cases(one) for one in PROGRAMS)
    assert find_cases(program) == ["plain", "of_mq", "of_pfifo_limit_5", "of_8"]


def test_each_program_runs() -> None:
    """The lab takes executable files only."""
    programs = [path for path in PROGRAM_FOLDER.glob("*.py") if path.read_bytes()[:2] == b"#!"]
    assert sorted(programs) == find_selftests(PROGRAM_FOLDER)


def test_each_file_of_the_core_and_of_tap_has_a_mutant() -> None:
    files = {
        str(path.relative_to(KMOD))
        for name in ("flow", "tap")
        for path in (KMOD / name).glob("*.c")
    }
    # module.c only registers the module.
    assert files - {"flow/module.c"} <= {mutant.file for mutant in MUTANTS}


def test_a_seed_has_every_possible_pair() -> None:
    assert choose(3) == choose(3) != choose(4)
    rows = [asdict(row) for row in choose(3)]
    assert not any(excluded(row) for row in rows)
    for one, other in itertools.combinations(NAMES, 2):
        rest = [name for name in NAMES if name not in (one, other, "ring")]
        for first, second in itertools.product(VALUES[one], VALUES[other]):
            pair = {one: first, other: second}
            if excluded(pair) or any(pair.items() <= row.items() for row in rows):
                continue
            # Two values may be possible together and yet in no row: no third one goes with both.
            for values in itertools.product(*(VALUES[name] for name in rest)):
                row = pair | dict(zip(rest, values, strict=True))
                assert excluded(row), row


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
            assert {*words} <= {*top, "COMMAND", "__complete", "help", "SHELL", "WORDS"}, line
        else:
            assert typed <= top | options_of(below[name]), line
        if words[0] == "bench" and words[1:] and words[1][0] != "-":
            assert words[1] in scenario.known(), line


def row_of(release: roots.Release, name: str, runs: bool) -> str:
    """Return a kernel's row in the table of tested kernels."""
    kernel = name.removesuffix(f"-{release.codename}").removesuffix("-builtin")
    kernel += " (backports)" if release.backports else ""
    foreign = release.foreign or release.architecture
    live = not release.foreign and name in LIVE_KERNELS
    answers = ("yes" if one else "no" for one in (True, runs, live))
    system = {"bookworm": "Debian 12", "trixie": "Debian 13"}[release.codename]
    system, tun = (f"{system}, own build", "y") if release.fragments else (system, "m")
    return f"| {' | '.join((system, kernel, foreign, tun, *answers))} |"


def test_table_of_tested_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = load("checks.py", monkeypatch).CHECKS
    booted = {name for check in checks for name in check.kernels.split()}
    rows = [
        row_of(release, name, name in booted)
        for release in (*roots.RELEASES, roots.BUILTIN)
        for name in release.kernels
    ]
    assert any(
        row.get("flavour") == "builtin" for row in load("checks.py", monkeypatch).TABLE["gate"]
    )
    rows.append("| user mode | 7.3 | amd64 | y | yes | yes | no |")
    rows += [
        row_of(release, name, release.codename == arm64.BOOTED.codename)
        for name, release in arm64.BUILT.items()
    ]
    page = (REPOSITORY / "docs/install.md").read_text(encoding="utf-8")
    table = page.partition("## Tested kernels")[2].partition("|---|")[2]
    assert table.splitlines()[1:] == rows


def test_man_pages_list_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = load("manpages", monkeypatch, REPOSITORY / "packaging").pages()
    common = cli.Parser()
    cli.add_options(common)
    pages = {name.rpartition(".")[0]: options_of_page(text) for name, text in texts.items()}
    assert {"nodrop-status.1", "nodrop-set.8"} <= texts.keys()
    named = re.findall(r"\*(nodrop[a-z-]*)\*\*\\ \((\d)\)", "".join(texts.values()))
    assert {f"{name}.{section}" for name, section in named if name != "nodrop-"} <= texts.keys()
    assert pages.pop("nodrop") == options_of(cli.top_parser())
    commands = {f"nodrop-{name}": options_of(parser) for name, parser in parsers(cli.parser())}
    assert pages.keys() == commands.keys()
    for name, listed in pages.items():
        assert listed - options_of(common) == commands[name] - options_of(common), name
