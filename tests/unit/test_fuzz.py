# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer's programs: how they are made, what their calls hand over, and how one runs again."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lab import uml
from lab.hearing import GuestDied, GuestRun
from lab.kernel import Artifacts, Kernel
from proof.fuzz import campaign as fuzz
from proof.fuzz import memory
from proof.fuzz.execute import settles
from proof.fuzz.generate import MAKERS, MOST, SPECS, program_of
from proof.fuzz.program import AWAY, HERE, Call, Data, Program, Ref
from proof.fuzz.run import KINDS, RUNNING

SOME = [program_of(1, number) for number in range(400)]


def unmade(program: Program) -> list[str]:
    """Return the calls that use what no call before them makes."""
    return [
        str(call)
        for number, call in enumerate(program)
        for value in call.values
        if isinstance(value, Ref) and value.call not in (HERE, AWAY)
        if value.call >= number or not SPECS[program[value.call].name].makes
    ]


def test_a_seed_gives_the_same_programs_again() -> None:
    assert [program_of(1, number) for number in range(20)] == SOME[:20]
    assert program_of(1, 1) != program_of(2, 1)


def test_programs_use_what_they_have_made() -> None:
    assert [unmade(program) for program in SOME if unmade(program)] == []
    assert all(0 < len(program) <= MOST for program in SOME)
    calls = [call for program in SOME for call in program]
    assert [str(call) for call in calls if len(call.values) != len(SPECS[call.name].params)] == []


def test_every_call_is_made_up() -> None:
    assert set(SPECS) <= {call.name for program in SOME for call in program}
    for name, spec in SPECS.items():
        kinds = [kind for param in spec.params if isinstance(param, tuple) for kind in param]
        assert all(kind == "space" or kind in MAKERS for kind in kinds), name


def test_every_call_becomes_a_system_call() -> None:
    memory.allocate()
    for program in SOME:
        for number, call in enumerate(program):
            values: list[int | bytes] = []
            for value in call.values:
                if isinstance(value, str):
                    values.append(value.encode()[:16].ljust(16, b"\0"))
                elif isinstance(value, Data):
                    values.append(memory.content(value.kind, value.size))
                else:
                    values.append(7 if isinstance(value, Ref) else value)
            words = SPECS[call.name].make(memory.Memory(number), *values)
            assert 1 <= len(words) <= 7, call
            assert all(isinstance(word, int) for word in words), call


def test_whose_packets_must_go() -> None:
    program = (Call("open_vhost", (2,)), Call("open_tun", (2,)), Call("set_backend", (Ref(0), 0)))
    assert not settles(program)
    assert settles(program[:2])


def test_a_kernel_that_dies_leaves_the_command_that_runs_its_program_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def run(_kernel: Kernel, argv: list[str], *, out: Path, **_: object) -> GuestRun:
        ran.append(shlex.join(argv))
        which = f"--kind {KINDS[-1]} --seed 9 --first 3000005 --programs 1"
        (out / RUNNING).write_text(f"# {which}\nr0 = udp()\n")
        if len(ran) == len(KINDS):
            raise GuestDied("The guest died.", "BUG: here")
        return GuestRun(status=0, output="", log="", splats=(), seconds=1.0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(uml, "run", run)
    monkeypatch.setattr(fuzz, "ensure_kernel", lambda *_: Kernel)
    monkeypatch.setattr(fuzz, "ensure_artifacts", lambda *_: Artifacts)
    assert fuzz.main(["--seed", "9", "--seconds", "900"]) == 1
    printed = capsys.readouterr().out
    assert "BUG: here" in printed
    assert "r0 = udp()" in printed
    assert f"--seed 9 --kind {KINDS[-1]} --first 3000000 --programs 0" in ran[-1]
    again = shlex.split(printed.splitlines()[-1].partition("proof.fuzz.campaign ")[2])
    fuzz.main([*again, "--seconds", "1"])
    assert f"--seed 9 --kind {KINDS[-1]} --first 3000005 --programs 1" in ran[-1]
