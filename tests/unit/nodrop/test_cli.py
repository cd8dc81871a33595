# SPDX-License-Identifier: GPL-2.0-only
"""The command line: arguments, statuses, JSON, completion, odd names; its start and its end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from hosts import NAME, raw, recorded
from jsonschema import Draft202012Validator, ValidationError
from schema import SCHEMAS, answer, validate

from bench import scenario
from lab import cli as lab
from nodrop import cli, complete, proc, screen, start
from nodrop.commands import common
from nodrop.commands.monitor import KINDS
from nodrop.commands.top import SORTS
from nodrop.errors import INTERRUPTED, NodropError, UnsupportedError
from nodrop.host import netns
from nodrop.progress import Progress
from nodrop.screen import Column, Screen, clean_lines

Capture = pytest.CaptureFixture[str]


USAGE = """\
nodrop fly
nodrop help fly
nodrop help status doctor
nodrop -A
nodrop -n blue install
nodrop -n blue status -A
nodrop drops lo --seconds -1
nodrop top --interval nan
nodrop top --count 0
nodrop top --limit -1
nodrop set
nodrop -n blue set --default backpressure on
nodrop-lab
nodrop-lab status
nodrop-lab -n blue list
nodrop-lab bench teleport
nodrop-lab bench tap --pairs 0
nodrop-lab bench tap --variants x
nodrop-lab bench tap --variants old
"""


@pytest.mark.parametrize("line", USAGE.splitlines())
def test_usage_errors(line: str, capsys: Capture) -> None:
    program, *words = line.split()
    main = lab.main if program == "nodrop-lab" else cli.main
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


@pytest.mark.parametrize(
    ("error", "status"),
    [(NodropError("It broke."), 1), (UnsupportedError("Not here."), 4), (KeyboardInterrupt(), 130)],
)
def test_errors_become_statuses(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(common, "read", Mock(side_effect=error))
    assert cli.main(["-q", "status"]) == status
    assert capsys.readouterr().out == ""
    for words in (["-qj", "status"], ["status", "--json"]):
        assert cli.main(words) == status
        out, err = capsys.readouterr()
        validate("error", json.loads(err))
        assert (out, json.loads(err)["error"]["status"]) == ("", status)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        *((line, True) for line in ("-jn no status", "status -Aj no", "status -jA no", "-qj top")),
        *((line, False) for line in ("-nj status", "-n x status", "status -- -j", "--color j top")),
    ],
)
def test_options_in_one_word(line: str, wanted: bool) -> None:
    assert start.wants_json(line.split()) is wanted


@pytest.mark.parametrize("line", ["-j fly", "-j set", "status -A -n x -j", "-j top --sort x"])
def test_usage_errors_are_objects_too(line: str, capsys: Capture) -> None:
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    validate("error", json.loads(err))
    assert out == ""


def test_error_with_a_name_that_is_not_utf8(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    error = NodropError(r"No \udc80" "\udcff\x1b\\u.")
    monkeypatch.setattr(common, "read", Mock(side_effect=error))
    assert cli.main(["-j", "status"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["message"] == "No \\udc80\\xff\x1b\\u."


def test_without_a_command_it_is_status(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    recorded(monkeypatch, raw("stock"))
    assert answer(capsys)["command"] == "status"
    assert cli.main(["--color", "never"]) == 0
    assert NAME in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        *((line, "[COMMAND] ...") for line in ("help", "help help", "help --help", "-j help -h")),
        *((line, "nodrop status [-h]") for line in ("help status", "-j help status")),
        *((line, "nodrop status [-h]") for line in ("status --help", "help status --help")),
        ("-V", "nodrop "),
    ],
)
def test_help_and_version(line: str, shown: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(line.split())
    assert end.value.code == 0
    assert shown in capsys.readouterr().out


def test_options_before_and_after() -> None:
    for line in ("-j -q --color never top", "top --color never -j -q", "-j top -q --color=never"):
        words = line.split()
        arguments = cli.parser(cli.named(words)[0]).parse_args(words)
        assert (arguments.color, arguments.quiet, arguments.json) == ("never", True, True)


def test_schemas(capsys: Capture) -> None:
    """Each schema is self-contained, and refuses an empty object and unknown keys."""
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert '"$ref": "' not in json.dumps(schema).replace('"$ref": "#', "")
        assert not Draft202012Validator(schema).is_valid({}), name
    error = {"message": "", "hint": None, "status": 1}
    for wrong in ({}, {**error, "more": 1}, {**error, "status": -1}):
        with pytest.raises(ValidationError):
            validate("error", {"schema": start.SCHEMA, "error": wrong})
    validate("error", {"schema": start.SCHEMA, "error": error})
    result = answer(capsys, "list", main=lab.main)
    assert set(result["scenarios"]) == set(scenario.known())
    for more in ({"more": 1}, {"schema": 1}):
        with pytest.raises(ValidationError):
            validate("list", {**result, **more})


LINKS = [
    {"ifname": "lo"},
    {"ifname": "tun0", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tun"}}},
    {"ifname": "tap1", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tap"}}},
    {"ifname": "macv", "linkinfo": {"info_kind": "macvtap", "info_data": {"mode": "vepa"}}},
    {"ifname": "t\udcff\x1b", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tap"}}},
    {"ifname": "veth0", "linkinfo": {"info_kind": "veth"}},
]


def words(*typed: str) -> list[str]:
    return [word for word, _ in complete.complete(typed)]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("", [*(one.name for one in cli.NODROP.commands), "help"]),
        ("help to", ["top"]),
        ("help set ", []),
        ("to", ["top"]),
        ("-j --color never to", ["top"]),
        ("fly ", []),
        ("top --int", ["--interval"]),
        ("top -- --int", []),
        ("--color ", ["auto", "always", "never"]),
        ("top --color=ne", ["--color=never"]),
        ("top --interval ", []),
        ("install --source ", [":dirs"]),
        ("top --sort ", [*SORTS]),
        ("monitor --events stop,g", ["stop,guard"]),
        ("monitor --events=stop,", [f"--events=stop,{one}" for one in KINDS if one != "stop"]),
        ("install --kernel a", ["all"]),
        ("doctor --ignore qdisc-s", ["qdisc-stalled"]),
        ("set tun0 b", ["backpressure"]),
        ("-n blue set tun0 backpressure ", ["on", "off", "default"]),
        ("set --now tun0 backpressure ", ["on", "off"]),
        ("set tun0 backpressure on ", []),
        ("set --default ", ["backpressure", "stall-ms"]),
    ],
)
def test_words(typed: str, wanted: list[str]) -> None:
    assert words(*typed.split(" ")) == wanted


def test_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns, "NAMED", tmp_path)
    (tmp_path / "blue").touch()
    assert words("-n", "") == ["blue"]
    assert words("--netns", "re") == []


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = json.dumps(LINKS, ensure_ascii=False).replace("\\u001b", "\x1b")
    ask = Mock(return_value=subprocess.CompletedProcess((), 0, printed))
    monkeypatch.setattr(proc, "ask", ask)
    assert list(complete.devices(None)) == [
        *(("tun0", "tun"), ("tap1", "tap"), ("macv", "macvtap"), ("t\udcff\x1b", "tap"))
    ]
    assert words("-n", "blue", "status", "tu") == ["tun0"]
    assert words("status", "tun0", "--netns=red", "ta") == ["tap1"]
    asked = [call.args[1:-3] for call in ask.call_args_list]
    assert asked == [(), ("-n", "blue"), ("-n", "red")]


@pytest.mark.parametrize("failure", [NodropError("no ip"), ValueError("no JSON")])
def test_unreadable_devices(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "ask", Mock(side_effect=failure))
    assert list(complete.devices(None)) == []


def test_output_for_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert complete.main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(cli.NODROP.commands) + 1
    for typed, printed in (
        ("bash top --color = ne", ["never"]),
        ("bash top --color =", ["auto", "always", "never"]),
        ("zsh top --color=ne", ["--color=never"]),
        ("bash top --int", ["--interval"]),
    ):
        assert complete.main(typed.split()) == 0
        assert capsys.readouterr().out.splitlines() == printed
    assert complete.main(["fish", "top", "--int"]) == 0
    assert capsys.readouterr().out.startswith("--interval\t")


def test_width_of_wide_characters() -> None:
    assert [screen.width(text) for text in ("tun", "隧道", "e\u0301")] == [3, 4, 1]


def test_terminal_escapes_are_removed() -> None:
    assert screen.clean("a\033[31mb\nc\udc80") == "a?[31mb c?"
    assert clean_lines("a\x1b]0;x\x07\nb\x9b31m") == "a?]0;x?\nb?31m"
    text = io.StringIO()
    Screen(text, False, None).table([Column("device")], [["tap\033]0;x\a"]])
    assert text.getvalue().replace("\n", "").isprintable()


def test_shell_quoting() -> None:
    for name in ("a;id", "$(id)", "it's", "a\\b", "e\x1b[31mx", "b\udcff\udcfez", "-n", "ü", "*"):
        line = f"printf %s {proc.join(name)}"
        assert line.isprintable()
        done = subprocess.run(["bash", "-c", os.fsencode(line)], capture_output=True, check=True)
        assert done.stdout == os.fsencode(name)


def test_step_prints_two_lines() -> None:
    text = io.StringIO()
    with Progress(stream=text) as progress, progress.step("Build it"):
        assert len(text.getvalue().splitlines()) == 1
    progress = Progress(stream=text)
    with pytest.raises(ValueError, match="x"), progress, progress.step("Build it"):
        raise ValueError("x")
    assert len(text.getvalue().splitlines()) == 4


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [True, False])
def test_on_a_terminal(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodrop.progress.REFRESH_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    text = FakeTerminal()
    with Progress(quiet=quiet, stream=text) as progress, progress.step("Build it", 2) as step:
        step.update("half of all the\x1b files there are", done=1)
        until = time.monotonic() + 60
        while "50%" not in text.getvalue() and not quiet and time.monotonic() < until:
            time.sleep(0.01)
    # Each drawn line replaces the one before it, which must not have wrapped.
    *drawn, last = text.getvalue().rstrip().split("\r\033[K")
    assert bool(last) is not quiet
    assert any("half of" in line for line in drawn) is not quiet
    assert all(len(line) < 30 and clean_lines(line) == line for line in drawn)


LIST = ["--help"]
CHILD = """
from nodrop.errors import interrupt_on_signals
from nodrop.host.netns import Child
interrupt_on_signals()
with Child(lambda: 7) as child:
    print(child.result(""))
"""
HEAVY = ("rich", "matplotlib", "lab", "bench", "proof")
RUN = "import sys; from nodrop.start import main; status = main(); "
END = RUN + "sys.exit(status)"


def begin(
    words: list[str],
    *,
    code: str = END,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    environment: dict[str, str] | None = None,
    before: Callable[[], object] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the command; ``code`` runs in its Python."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **(environment or {})},
        preexec_fn=before,
    )


def end(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def instead(body: str) -> str:
    """Return the code of a command whose main program does something else."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"import nodrop.cli as cli\ndef other():\n{lines}cli.main = other\n{END}"


def test_closed_pipe_and_full_disk() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = begin(LIST, stdout=writer)
    os.close(writer)
    assert end(process) == (141, "", "")
    with Path("/dev/full").open("wb") as full:
        status, _, err = end(begin(LIST, stdout=full.fileno()))
    assert (status, len(err.splitlines())) == (1, 1)


def test_closed_streams(tmp_path: Path) -> None:
    status, _, err = end(begin(LIST, stdout=None, before=lambda: os.close(1)))
    assert (status, len(err.splitlines())) == (1, 1)
    process = begin(["teleport"], stderr=None, before=lambda: os.close(2))
    assert end(process) == (2, "", "")
    # The first file that is opened must not become stdout.
    code = (
        "import os, sys; from nodrop import start; start.prepare_streams(); "
        f"sys.exit(os.open({str(tmp_path / 'first')!r}, os.O_CREAT | os.O_WRONLY))"
    )
    status, _, _ = end(begin([], code=code, stdout=None, before=lambda: os.closerange(0, 3)))
    assert status > 2


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "? ? 3 ?s ? ?\n"),
        ({"PYTHONIOENCODING": "utf-8"}, "✓ → 3 µs 隧 ?\n"),
    ],
)
def test_characters_that_stdout_cannot_encode(environment: dict[str, str], expected: str) -> None:
    code = instead(r"print('\u2713 \u2192 3 \u00b5s \u96a7 \udcff')")
    status, out, err = end(begin([], code=code, environment=environment))
    assert (status, out, err) == (0, expected, "")


@pytest.mark.parametrize(
    ("raised", "debug", "names"),
    [
        (r"ValueError('no\nsuch thing')", "", "ValueError: no such thing"),
        ("RecursionError", "1", "RecursionError"),
    ],
)
def test_bug_is_reported_by_name(raised: str, debug: str, names: str) -> None:
    code = instead(f"raise {raised}")
    status, out, err = end(begin([], code=code, environment={"NODROP_DEBUG": debug}))
    assert (status, out) == (1, "")
    assert names in err
    assert ("Traceback" in err) is bool(debug)
    _, _, err = end(begin(["-j"], code=code))
    validate("error", json.loads(err))
    assert names in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(number: int) -> None:
    code = instead("import time; print('begun', flush=True); time.sleep(60)")
    process = begin([], code=code, before=lambda: signal.signal(number, signal.SIG_DFL))
    assert process.stdout
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    status, out, err = end(process)
    assert (status, out, len(err.splitlines())) == (INTERRUPTED, "", 1)


@pytest.mark.parametrize(
    ("ignored", "code", "printed"),
    [
        # The command waits for its children nevertheless.
        (signal.SIGCHLD, CHILD, "7\n"),
        (signal.SIGHUP, instead("import os, signal\nos.kill(os.getpid(), signal.SIGHUP)"), ""),
    ],
)
def test_signals_that_the_caller_ignores(ignored: int, code: str, printed: str) -> None:
    process = begin([], code=code, before=lambda: signal.signal(ignored, signal.SIG_IGN))
    assert end(process) == (0, printed, "")


def test_interrupted_while_printing() -> None:
    # Text must not be printed twice.
    code = (
        "import itertools; import nodrop.cli as cli\n"
        "def count():\n"
        "    for number in itertools.count(): print(number, flush=True)\n"
        f"cli._run = lambda *_: count()\n{END}"
    )
    for _ in range(3):
        process = begin([], code=code)
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        numbers = [int(line) for line in process.stdout.read().split()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert end(process)[0] == INTERRUPTED


@pytest.mark.parametrize("words", [["--version"], LIST])
def test_unneeded_modules_are_not_imported(words: list[str]) -> None:
    code = RUN + "print(*sys.modules, file=sys.stderr)"
    status, _, err = end(begin(words, code=code))
    assert status == 0
    loaded = err.split()
    assert "nodrop.cli" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    # Only the named command is imported.
    commands = {
        one.module for one in cli.NODROP.commands if f"nodrop.commands.{one.module}" in loaded
    }
    assert commands <= {words[0]}
