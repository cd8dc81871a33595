# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab run``: choice of guest, arguments, output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from schema import answer

from lab import commands, machines, uml
from lab.cli import main
from lab.guest import GuestRun
from lab.kernel import kbuild
from lab.splats import Splat


class Guests:
    """Replaces UML and the Debian machines."""

    def __init__(self) -> None:
        self.booted: list[dict[str, Any]] = []
        self.result = GuestRun(0, "the log", "hello", (), 1.5)

    def boot(self, argv: Sequence[str], **how: Any) -> GuestRun:
        assert how["out"].is_dir()
        self.booted.append({"argv": list(argv), **how})
        on_line: Callable[[str], None] = how["on_line"]
        for line in self.result.output.splitlines():
            on_line(line)
        return self.result


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch) -> Guests:
    made = Guests()
    kernel = SimpleNamespace(release="7.3.4", arch="um")
    machine = SimpleNamespace(run=made.boot, kernel=SimpleNamespace(release="6.1.0-9"))
    monkeypatch.setattr(kbuild, "ensure_kernel", lambda *_: kernel)
    monkeypatch.setattr(machines, "ensure_artifacts", lambda *_: None)
    monkeypatch.setattr(uml, "run", lambda _, argv, **how: made.boot(argv, **how))
    monkeypatch.setattr(machines, "ensure_packages", lambda *_: ())
    monkeypatch.setattr(machines, "ensure_machine", lambda *_: machine)
    return made


def test_kernels_with_upstreams_flag_exist() -> None:
    assert set(machines.UPSTREAM) < set(commands.KERNELS)


def test_command_with_driver(guests: Guests, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-q", "run", "--", "ls", "-j", "--", "a b"]) == 0
    assert capsys.readouterr().out == "hello\n"
    (boot,) = guests.booted
    loaded = [sys.executable, "-m", "guestlib.drivers", "nodrop"]
    assert boot["argv"] == [*loaded, "ls", "-j", "--", "a b"]
    assert (boot["timeout"], boot["terminal"], boot["cpus"]) == (None, None, 2)
    assert not boot["out"].exists()


def test_debian_kernel_without_driver(guests: Guests, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--kernel", "6.1", "--driver", "none", "--timeout", "9", "--out", str(out), "--cpus"]
    assert main(["-q", "run", *words, "4", "true"]) == 0
    (boot,) = guests.booted
    assert boot["argv"] == ["true"]
    assert (boot["timeout"], boot["cpus"], boot["out"]) == (9.0, 4, out)


@pytest.mark.parametrize(("status", "splats", "wanted"), [(7, 0, 7), (0, 1, 1), (7, 1, 7)])
def test_exit_status(guests: Guests, status: int, splats: int, wanted: int) -> None:
    complaint = (Splat("BUG", "BUG: x", "BUG: x\nmore"),) * splats
    guests.result = GuestRun(status, "the log", "hello", complaint, 1.5)
    assert main(["-q", "run", "true"]) == wanted


def test_json(guests: Guests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.result = GuestRun(3, "the log", "a\nb", (Splat("BUG", "BUG: x", "BUG: x"),), 1.5)
    data = answer(capsys, "run", "--log", "true", status=3, main=main)
    assert (data["status"], data["output"], data["log"]) == (3, "a\nb", "the log")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("", 2),  # a shell, without a terminal
        ("--kernel 6.1 --driver upstream true", 4),
        ("--kernel 2.4 true", 2),
        ("--timeout nan true", 2),
        ("--memory 2048 true", 2),
        ("--cpus 9 true", 2),
        ("--out /dev/null true", 1),
        ("--out /proc/x true", 1),
    ],
)
def test_refused(guests: Guests, monkeypatch: pytest.MonkeyPatch, words: str, status: int) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["-q", "run", *words.split()]) == status
    assert guests.booted == []


@pytest.mark.parametrize(
    ("words", "no_color", "terminal", "wanted"),
    [
        ([], "", True, {"TERM": "xterm", "COLUMNS": "57"}),
        (["--color", "never"], "", True, {"TERM": "xterm", "COLUMNS": "57", "NO_COLOR": "1"}),
        (["--color", "always"], "1", False, {"TERM": "xterm", "COLUMNS": "1000"}),
        (["-j"], "", True, {"TERM": "dumb", "COLUMNS": "1000", "NO_COLOR": "1"}),
    ],
)
@pytest.mark.parametrize("kernel", ["uml", "6.12"])
def test_terminal_environment(
    guests: Guests,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    words: list[str],
    no_color: str,
    terminal: bool,
    wanted: dict[str, str],
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "57")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert main([*words, "-q", "run", "--kernel", kernel, "true"]) == 0
    env = guests.booted[0]["env"]
    assert {name: env[name] for name in ("TERM", "COLUMNS", "NO_COLOR") if name in env} == wanted


def test_build(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[str] = []

    def ensure(name: str, setup: machines.Setup, *_: object) -> None:
        made.append(f"{name} {setup.value}")

    kernel = SimpleNamespace(**{part: f"the {part}" for part in commands.PARTS})
    monkeypatch.setattr(commands, "ensure_kernel", lambda *_: kernel)
    monkeypatch.setattr(machines, "ensure_packages", lambda *_: ())
    monkeypatch.setattr(machines, "ensure_machine", ensure)
    assert main(["-q", "build", "debug", "--part", "objtree"]) == 0
    assert capsys.readouterr().out == "the objtree\n"
    assert main(["-q", "build", "6.12", "--setup", "removed"]) == 0
    assert main(["-q", "build", "7.3"]) == 0
    assert made == ["6.12 removed", "7.3 installed", "7.3 removed"]
    made.clear()
    assert main(["-q", "build", "debian"]) == 0
    assert {line.split()[0] for line in made} == {*commands.KERNELS} - {machines.UML}


@pytest.mark.parametrize(
    ("words", "folder", "setting"),
    [
        ("--flavour kasan tun_guard -x", "tests/guest", ("LAB_TEST_FLAVOUR", "kasan")),
        ("--kernel 6.1 tun_guard -x", "tests/kernels", ("LAB_TEST_KERNELS", "6.1")),
    ],
)
def test_pytest_runs_by_name(
    monkeypatch: pytest.MonkeyPatch, words: str, folder: str, setting: tuple[str, str]
) -> None:
    run: list[Any] = []
    monkeypatch.setattr("os.chdir", lambda _: None)
    monkeypatch.setattr("os.execve", lambda *how: run.append(how))
    main(["test", *words.split()])
    ((_, argv, env),) = run
    assert argv[2:] == ["pytest", folder, "-x", "-k", "tun_guard"]
    assert env[setting[0]] == setting[1]
