# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab``: command lines, choice of guest, statuses, JSON output."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import ValidationError
from schema import answer, validate

from bench import session
from bench.rundir import META_NAME
from lab import DEADLINE, commands, machines, uml
from lab.cli import main
from lab.guest import GuestRun
from lab.kernel import kbuild
from lab.sources import REPOSITORY
from lab.splats import Splat
from nodrop import proc

RESULTS = REPOSITORY / "results"
Capture = pytest.CaptureFixture[str]


class FakeGuests:
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
def guests(monkeypatch: pytest.MonkeyPatch) -> FakeGuests:
    made = FakeGuests()
    kernel = SimpleNamespace(release="7.3.4", arch="um")
    machine = SimpleNamespace(run=made.boot, kernel=SimpleNamespace(release="6.1.0-9"))
    monkeypatch.setattr(kbuild, "ensure_kernel", lambda *_: kernel)
    monkeypatch.setattr(machines, "ensure_artifacts", lambda *_: None)
    monkeypatch.setattr(uml, "run", lambda _, argv, **how: made.boot(argv, **how))
    monkeypatch.setattr(machines, "ensure_packages", lambda *_: ())
    monkeypatch.setattr(machines, "ensure_machine", lambda *_: machine)
    return made


def test_deadline_bounds_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "deadline", None)
    monkeypatch.setenv(DEADLINE, "0")
    assert main(["list"]) == 0
    assert proc.at_most(60.0) == 0.0


def test_kernels_with_upstreams_flag_exist() -> None:
    assert set(machines.UPSTREAM) < set(commands.KERNELS)


def test_command_with_driver(guests: FakeGuests, capsys: Capture) -> None:
    assert main(["-q", "run", "--", "ls", "-j", "--", "a b"]) == 0
    assert capsys.readouterr().out == "hello\n"
    (boot,) = guests.booted
    loaded = [sys.executable, "-m", "guestlib.drivers", "nodrop"]
    assert boot["argv"] == [*loaded, "ls", "-j", "--", "a b"]
    assert (boot["timeout"], boot["terminal"], boot["cpus"]) == (None, None, 2)
    assert not boot["out"].exists()


def test_debian_kernel_without_driver(guests: FakeGuests, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--kernel", "6.1", "--driver", "none", "--timeout", "9", "--out", str(out), "--cpus"]
    assert main(["-q", "run", *words, "4", "true"]) == 0
    (boot,) = guests.booted
    assert boot["argv"] == ["true"]
    assert (boot["timeout"], boot["cpus"], boot["out"]) == (9.0, 4, out)


@pytest.mark.parametrize(("status", "splats", "wanted"), [(7, 0, 7), (0, 1, 1), (7, 1, 7)])
def test_exit_status(
    guests: FakeGuests, capsys: Capture, status: int, splats: int, wanted: int
) -> None:
    complaint = (Splat("BUG", "BUG: x", "BUG: x\nmore"),) * splats
    guests.result = GuestRun(status, "the log", "a\nb", complaint, 1.5)
    assert main(["-q", "run", "true"]) == wanted
    data = answer(capsys, "run", "--log", "true", status=wanted, main=main)
    assert (data["status"], data["output"], data["log"]) == (status, "a\nb", "the log")


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
def test_refused(
    guests: FakeGuests, monkeypatch: pytest.MonkeyPatch, words: str, status: int
) -> None:
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
    guests: FakeGuests,
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


def test_build(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
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


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace a measurement by recorded results, as if they were measured now."""

    def measure(_scenarios: Any, _variants: Any, out: Path, _progress: Any, **_: Any) -> None:
        shutil.copytree(RESULTS / "series/tap", out)
        meta = json.loads((out / META_NAME).read_text())
        meta["source"]["measured_by"] = "0" * 16
        (out / META_NAME).write_text(json.dumps(meta))

    monkeypatch.setattr(session, "measure", measure)
    monkeypatch.setattr("bench.report.plot.svg", lambda *_: "")
    return tmp_path / "out"


def test_bench_and_demo(measured: Path, capsys: Capture) -> None:
    found = answer(capsys, "bench", "tap", "--out", f"{measured}/1", main=main)
    assert found["scenario"] == "tap"
    assert {*found["variants"]} == {"stock", "upstream", "nodrop", "series"}
    for more in ({"more": 1}, {"command": "demo"}, {"schema": 1}):
        with pytest.raises(ValidationError):
            validate("bench", {**found, **more})
    assert answer(capsys, "demo", "--out", f"{measured}/2", main=main)["command"] == "demo"


def test_report(tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(RESULTS / "guard", tmp_path / "run")
    assert answer(capsys, "report", f"{tmp_path}/run", main=main)["command"] == "report"
    assert main(["report", str(tmp_path / "none")]) == 1
