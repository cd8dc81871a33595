# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer's programs: how they are made, what their calls hand over, and how one runs again."""

from __future__ import annotations

import ctypes
import shlex
from pathlib import Path

import pytest

from nodrop.guest.fuzz import memory
from nodrop.guest.fuzz.build import MAKERS, MOST, SPECS
from nodrop.guest.fuzz.execute import settles
from nodrop.guest.fuzz.memory import END, MEMORY, PAGE, Memory, pack
from nodrop.guest.fuzz.program import AWAY, HERE, Call, Data, Fd, Program, Ref, render
from nodrop.guest.fuzz.run import KINDS, RUNNING, program_of
from nodrop.kernel import Artifacts, Kernel
from nodrop.lab import fuzz, uml
from nodrop.lab.hearing import GuestDied, GuestRun

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
    assert all(
        len(call.values) == len(SPECS[call.name].params) for program in SOME for call in program
    )


def test_every_call_is_made_up_and_can_be_made() -> None:
    assert set(SPECS) <= {call.name for program in SOME for call in program}
    for spec in SPECS.values():
        for param in spec.params:
            kinds = param.kinds if isinstance(param, Fd) else ()
            assert all(kind == "space" or kind in MAKERS for kind in kinds), spec.name


def test_a_program_as_text() -> None:
    program = (
        Call("udp"),
        Call("read", (Ref(0), 1500), aside=True, times=20),
        Call("move", (Ref(0), "fz0", Ref(AWAY)), where="edge"),
        Call("write", (-1, Data("eth4", 60))),
    )
    assert render(program) == (
        "r0 = udp()\n"
        "r1 = & read(r0, 0x5dc) *20\n"
        "r2 = move(r0, fz0, away) @edge\n"
        "r3 = write(-1, eth4/60)\n"
    )


@pytest.fixture(scope="module")
def mapped() -> None:
    memory.allocate()


@pytest.mark.usefixtures("mapped")
def test_memory_is_where_it_should_be_bad() -> None:
    fine = Memory(3, "")
    at = fine.put(b"1234")
    assert at == MEMORY + 3 * PAGE
    assert fine.put(b"56") == at + 16
    assert ctypes.string_at(at, 4) == b"1234"
    for where, address in (("null", 0), ("bad", END + PAGE), ("edge", END - 8)):
        bad = Memory(0, where)
        assert bad.put(b"12345678" + bytes(40)) == address
        assert bad.put(b"1") == MEMORY
    assert ctypes.string_at(END - 8, 8) == b"12345678"


@pytest.mark.usefixtures("mapped")
def test_every_call_becomes_a_system_call() -> None:
    for program in SOME:
        for number, call in enumerate(program):
            values = [
                value.encode()[:16].ljust(16, b"\0")
                if isinstance(value, str)
                else bytes(value.size)
                if isinstance(value, Data)
                else 7
                if isinstance(value, Ref)
                else value
                for value in call.values
            ]
            words = SPECS[call.name].make(Memory(number, call.where), *values)
            assert 1 <= len(words) <= 7, call
            assert all(isinstance(word, int) for word in words), call


def test_numbers_are_cut_to_their_width() -> None:
    assert pack("<HI2s2x", 0x12345, -1, b"ab") == b"\x45\x23\xff\xff\xff\xffab\0\0"


def test_whose_packets_must_go() -> None:
    program = (Call("open_vhost", (2,)), Call("open_tun", (2,)), Call("set_backend", (Ref(0), 0)))
    assert not settles(program)
    assert settles(program[:2])
    assert not settles((Call("open_tun", (0x801,)),))


def test_a_kernel_that_dies_leaves_the_command_that_runs_its_program_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []

    def run(_kernel: Kernel, argv: list[str], *, out: Path, **_: object) -> GuestRun:
        ran.append(argv)
        number = int(argv[argv.index("--first") + 1])
        seed = argv[argv.index("--seed") + 1]
        (out / RUNNING).write_text(f"# --seed {seed} --first {number + 5}\nr0 = udp()\n")
        died = len(ran) == len(KINDS)
        if died:
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
    last = [word for word in ran[-1] if word.isdigit()]
    again = shlex.split(printed.splitlines()[-1].partition("nodrop.lab.fuzz ")[2])
    fuzz.main([*again, "--seconds", "1"])
    words = " ".join(ran[-1])
    assert f"--seed 9 --kind {last[1]} --first {int(last[2]) + 5} --programs 1" in words
