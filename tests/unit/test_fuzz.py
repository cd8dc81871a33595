# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer's programs: how they are made, changed, written down and kept."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from nodrop.guest.fuzz import wire
from nodrop.guest.fuzz.build import MOST, generate
from nodrop.guest.fuzz.calls import MAKERS, SPECS, encode, mistake, settles
from nodrop.guest.fuzz.corpus import Corpus, keep, kept
from nodrop.guest.fuzz.cover import addresses, places, sections
from nodrop.guest.fuzz.memory import END, Memory
from nodrop.guest.fuzz.mutate import drop, mutate
from nodrop.guest.fuzz.program import Call, Ref, Where, without
from nodrop.guest.fuzz.state import Recent, State, numbered, read_states, recent_text, state_path
from nodrop.guest.fuzz.text import FormError, parse, render
from nodrop.guest.fuzz.watch import Finding

SOME = [generate(random.Random(number)) for number in range(400)]
TEXT = """\
r0 = open_tun(RDWR|NONBLOCK)
tunsetiff(r0, "fz0", TAP|NO_PI)
& read(r0, 1500) *20
r3 = netlink()
move(r3, "fz0", away)
write(r0, eth4/60)
tunsetqueue(r0, DETACH) @edge
"""


def test_a_seed_gives_the_same_programs_again() -> None:
    assert [generate(random.Random(number)) for number in range(20)] == SOME[:20]
    assert generate(random.Random(1)) != generate(random.Random(2))


def test_programs_are_as_the_grammar_wants_them() -> None:
    assert [mistake(program) for program in SOME if mistake(program)] == []
    assert all(0 < len(program) <= MOST for program in SOME)


def test_every_call_is_made_up_and_can_be_made() -> None:
    used = {call.name for program in SOME for call in program}
    assert set(SPECS) <= used
    for spec in SPECS.values():
        for param in spec.params:
            kinds = getattr(param, "kinds", ())
            assert all(kind == "space" or kind in MAKERS for kind in kinds), spec.name


def test_text_and_program_are_the_same() -> None:
    for program in SOME:
        assert parse(render(program)) == program
    assert render(parse(TEXT)) == TEXT


@pytest.mark.parametrize(
    "line",
    [
        "no call",
        "nothing_known(1)",
        "close()",
        "close(r0)",
        "close(1, 2)",
        "write(-1, water/5)",
        "r0 = udp()\nr1 = getpid() @somewhere",
        "tunsetpersist(0, yes)",
        "getpid() *5000",
    ],
)
def test_what_is_no_program_is_refused(line: str) -> None:
    with pytest.raises(FormError):
        parse(line)


def test_mutants_are_as_the_grammar_wants_them() -> None:
    rng = random.Random(3)
    programs, sizes = list(SOME), set()
    for _ in range(800):
        fresh = mutate(rng, rng.choice(programs), rng.choice(programs))
        assert mistake(fresh) == "", render(fresh)
        assert len(fresh) <= MOST
        sizes.add(len(fresh))
        programs[rng.randrange(len(programs))] = fresh
    assert len(sizes) > 20


def test_who_used_a_removed_call_gets_what_is_like_it() -> None:
    program = parse("r0 = udp()\nr1 = udp()\nr2 = getpid()\nclose(r1)\nset_signalled(r1, r2)")
    assert drop(program, 1)[2:] == (
        Call("close", (Ref(0),)),
        Call("set_signalled", (Ref(0), Ref(1))),
    )
    assert drop(program, 2)[-1] == Call("set_signalled", (Ref(1), -1))
    assert without(program, 0)[2] == Call("close", (Ref(0),))


def test_frames_are_as_the_executor_reads_them() -> None:
    raws = [
        wire.Raw(39, keeps=True),
        wire.Raw(
            1,
            (Ref(0), wire.MEMORY, -1),
            flags=wire.ASYNC,
            times=3,
            copies=[(wire.MEMORY, b"12345")],
            patches=[(wire.MEMORY, Ref(0))],
        ),
    ]
    frame = wire.frame(raws, limit_ms=7, settle_ms=9)
    call = 72
    assert len(frame) == 16 + 2 * call + (16 + 8) + 16
    assert frame[:16] == b"".join(
        number.to_bytes(4, "little") for number in (len(frame) - 16, 2, 7, 9)
    )
    second = frame[16 + call :]
    assert second[:16] == bytes((1, 0, 0, 0, 1, 0, 1, 0, 255, 255, 3, 0, 1, 0, 1, 0))
    assert second[24:32] == wire.slot(Ref(0)).to_bytes(8, "little")
    assert second[40:48] == b"\xff" * 8


def test_memory_is_where_it_should_be_bad() -> None:
    raw = wire.Raw(0)
    fine = Memory(raw, 3, Where.FINE)
    at = fine.put(b"1234", {0: Ref(1)})
    assert at == wire.MEMORY + 3 * 4096
    assert fine.put(b"56") == at + 16
    assert raw.patches == [(at, Ref(1))]
    for where, address in ((Where.NULL, 0), (Where.BAD, END + 4096), (Where.EDGE, END - 8)):
        raw = wire.Raw(0)
        memory = Memory(raw, 0, where)
        assert memory.put(bytes(40), {36: Ref(0)}) == address
        assert raw.patches == []
        assert [len(data) for _, data in raw.copies] == ([8] if where is Where.EDGE else [])
        assert memory.put(b"1") == wire.MEMORY


def test_all_programs_can_be_told_to_the_executor() -> None:
    for program in SOME:
        assert len(encode(program)) < 1 << 20
    program = parse("r0 = open_vhost(2)\nr1 = open_tun(RDWR)\nset_backend(r0, 0, r1)")
    assert not settles(program)
    assert settles(program[:2])
    assert not settles(parse("r0 = open_tun(WRONLY|NONBLOCK)"))
    assert encode(program) != encode(program, settle=True)


def test_corpus_takes_what_reaches_something_new() -> None:
    corpus = Corpus()
    first, second, third = SOME[:3]
    assert corpus.consider(first, {1, 2}, {"a:done"})
    assert not corpus.consider(second, {2}, {"a:done"})
    assert corpus.consider(second, {2, 3}, {"a:done"})
    assert corpus.consider(third, set(), {"a:EBUSY"})
    assert corpus.programs == [first, second, third]
    assert corpus.passed == {1, 2, 3}
    assert corpus.choose(random.Random(1)) in corpus.programs


def test_kept_programs_are_found_again(tmp_path: Path) -> None:
    for program in SOME[:5]:
        path = keep(tmp_path / "corpus", program)
        assert keep(tmp_path / "corpus", program) == path
    (tmp_path / "corpus/old.txt").write_text("call_of_old(1)\n", encoding="utf-8")
    found = list(kept(tmp_path / "corpus"))
    assert len(found) == 5
    assert {render(program) for program in found} == {render(program) for program in SOME[:5]}


def test_addresses_become_places(tmp_path: Path) -> None:
    for module, name, address in (
        ("tun", ".text", 0x1000),
        ("tun", ".init.text", 0x9000),
        ("nodrop", ".text", 0x5000),
    ):
        folder = tmp_path / module / "sections"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{address:#018x}\n", encoding="ascii")
        (folder / ".data").write_text("0x0000000000007000\n", encoding="ascii")
    known = sections(tmp_path)
    assert places({0x10, 0x1004, 0x1002, 0x5001, 0x9010}, known) == {
        "tun": {".text": [2, 4], ".init.text": [0x10]},
        "nodrop": {".text": [1]},
    }
    assert addresses({"tun": {".text": [2], ".gone": [1]}, "old": {".text": [1]}}, known) == {
        0x1002
    }


def test_recent_programs_are_on_disk_before_they_run(tmp_path: Path) -> None:
    recent = Recent(tmp_path)
    for number in range(100):
        recent.begins(number, render(SOME[number]))
        assert numbered(recent_text(tmp_path))[-1] == render(SOME[number])
    recent.close()
    assert numbered(recent_text(tmp_path)) == [render(program) for program in SOME[64:100]]


def test_state_is_the_same_again(tmp_path: Path) -> None:
    state = State(3, 7, programs=5, places={"tun": {".text": [1, 2]}})
    state.finding = Finding("KASAN", "line", "text")
    state.write(tmp_path)
    text = state_path(tmp_path, 3).read_text(encoding="utf-8")
    assert State.from_json(json.loads(text)) == state
    state_path(tmp_path, 4).write_text("{", encoding="utf-8")
    assert read_states(tmp_path) == [state]
    assert state.figures()["places"] == 2
