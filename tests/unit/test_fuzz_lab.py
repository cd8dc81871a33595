# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer's host: which code was reached, what was found, and the shortest program for it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodrop.guest.fuzz.program import Program
from nodrop.guest.fuzz.text import parse, render
from nodrop.lab.findings import title
from nodrop.lab.fuzz_guest import Found
from nodrop.lab.places import find_places
from nodrop.lab.reached import Module, merge, reached
from nodrop.lab.shorten import shorten, simpler

CODE = """
static __attribute__((noinline)) int twice(int a) { return a > 3 ? 5 : a * 2; }
int sum(int a) { int i, s = 0; for (i = 0; i < a; i++) s += twice(i); return s; }
__attribute__((section(".init.text"))) int start(int a) { return sum(a) + twice(a); }
"""
LONG = parse(
    "\n".join(
        (
            "r0 = udp()",
            "r1 = udp()",
            "getpid()",
            "& sendto(r1, zero/60, 0, 64) *20",
            "r4 = eventfd(2048)",
            "signal(r4, 1) @bad",
            "close(r1)",
            "getpid()",
        )
    )
)


@pytest.mark.parametrize("model", ["large", "small"])
def test_places_are_found_in_code(model: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None or shutil.which("objdump") is None:
        pytest.skip("no compiler")
    (tmp_path / "code.c").write_text(CODE, encoding="ascii")
    flags = ["-O2", "-fno-pie", f"-mcmodel={model}", "-fsanitize-coverage=trace-pc", "-c"]
    source, code = str(tmp_path / "code.c"), str(tmp_path / "code.o")
    subprocess.run(["gcc", *flags, source, "-o", code], check=True, timeout=60)
    dump = ["objdump", "--disassemble", "--reloc", "--no-show-raw-insn", code]
    listing = subprocess.run(dump, capture_output=True, text=True, check=True, timeout=60).stdout
    found = find_places(listing)
    assert set(found) == {".text", ".init.text"}
    assert set(found[".text"].values()) == {"twice", "sum"}
    assert len(found[".text"]) >= 5
    assert set(found[".init.text"].values()) == {"start"}


def test_share_of_what_was_reached() -> None:
    module = Module("tun", {".text": {4: "open", 9: "open", 20: "close"}, ".exit.text": {8: "go"}})
    passed = merge([{"tun": {".text": [4]}}, {"tun": {".text": [4, 9, 30]}, "nodrop": {}}])
    found = reached(module, passed["tun"])
    assert found.places == (3, 5)
    assert found.functions == (1, 3)
    assert found.missed == ("close", "go")


def test_findings_with_other_numbers_are_the_same() -> None:
    lines = (
        "BUG: KASAN: use-after-free in tun_get+0x12/0x500 [tun]",
        "BUG: KASAN: use-after-free in tun_get+0x99/0x510 [tun]",
        "BUG: KASAN: use-after-free in tun_put+0x99/0x510 [tun]",
    )
    first, second, third = (title(Found("KASAN", line, "")) for line in lines)
    assert first == second != third


def test_shortest_program_that_fails_is_found() -> None:
    asked = 0

    def first_failing(programs: Sequence[Program]) -> int | None:
        nonlocal asked
        asked += 1
        for number, program in enumerate(programs):
            names = [call.name for call in program]
            if "sendto" in names and "close" in names[names.index("sendto") :]:
                return number
        return None

    short = shorten(LONG, first_failing, 40)
    assert render(short) == "sendto(-1, zero/60, 0, 64)\nclose(-1)\n"
    assert asked < 20
    assert shorten(LONG, first_failing, 0) == LONG
    assert shorten(LONG, lambda _: None, 5) == LONG


def test_simpler_programs_are_simpler() -> None:
    for program in simpler(LONG):
        assert program != LONG
        assert len(program) <= len(LONG)
