# SPDX-License-Identifier: GPL-2.0-only
"""The model of a queue's life holds in every order of steps, and can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop import proc

MODEL = Path(__file__).parents[2] / "proof/spin" / "queue.pml"
LIMIT_S = 120.0
MEMORY_MB = 2000
COMPILE = f"-w -DSAFETY -DMEMLIM={MEMORY_MB}".split()

WHOLE = {
    "stop and wake": "-DPACKETS=4 -DBIG=3 -DDIRECT=0 -DADAPT",
    "past the qdisc": "-DPACKETS=2 -DBIG=2 -DDIRECT=1",
    "event": "-DPACKETS=3 -DBIG=2 -DDIRECT=0 -DEVENT",
    "switched off": "-DPACKETS=1 -DBIG=1 -DDIRECT=1 -DOFF",
    "consumer that goes": "-DPACKETS=2 -DBIG=1 -DDIRECT=0 -DGUARD -DLEAVES",
}
BROKEN = {
    "RECHECK": ("the sender stops and does not read taken again", "stop and wake", "!(backlog)"),
    "RESERVE": ("no slot is needed", "stop and wake", "free"),
    "DRY": ("a consumer with nothing to read does not kick", "stop and wake", "!(backlog)"),
    "KICK": ("a kick that has looked is relied on", "stop and wake", "!(backlog)"),
    "STOPPED": ("a sender says that it stopped before it does", "stop and wake", "!(xoff)"),
    "BURST": ("a stop does not end a burst", "stop and wake", "!(backlog)"),
    "UNDO": ("a stop is undone and no qdisc runs", "past the qdisc", "!(backlog)"),
    "UNAWARE": ("an unaware consumer's txq stays stopped", "event", "!(backlog)"),
    "REOPEN": ("only a stopped txq is run when it is woken", "event", "!(backlog)"),
    "SLACK": ("no slot is left for a sender whose own was taken", "event", "free"),
    "OFF": ("the end of flow control takes a slot back", "switched off", "free"),
    "TRIP": ("the guard ends when it trips", "consumer that goes", "!(backlog)"),
}


def verify(place: Path, optimization: str, *defines: str) -> str:
    """Try every order of steps and return what the verifier printed.

    Args:
        place: an empty directory.
        optimization: gcc's option. -O2 takes seconds more than -O0, and a verifier that has
            millions of states before it is twice as fast.
        defines: the preprocessor's options.
    """
    made = proc.run(["spin", "-a", *defines, str(MODEL)], timeout=LIMIT_S, cwd=place)
    assert made.status == 0, made.output
    built = proc.run(
        ["gcc", optimization, *COMPILE, "-o", "pan", "pan.c"], timeout=LIMIT_S, cwd=place
    )
    assert built.status == 0, built.output
    # The deepest run is some hundred steps long.
    return proc.run([place / "pan", "-n", "-m5000"], timeout=LIMIT_S, cwd=place).output


@pytest.mark.parametrize("name", WHOLE)
def test_holds(name: str, tmp_path: Path) -> None:
    output = verify(tmp_path, "-O2", *WHOLE[name].split())
    assert "errors: 0" in output, output
    # Anything less than all is no proof.
    for word in ("max search depth too small", "Search not completed", "out of memory"):
        assert word not in output, output


@pytest.mark.parametrize("name", BROKEN)
def test_fails_without(name: str, tmp_path: Path) -> None:
    what, where, why = BROKEN[name]
    output = verify(tmp_path, "-O0", *WHOLE[where].split(), f"-DBREAK_{name}")
    found = [line for line in output.splitlines() if "assertion violated" in line]
    assert found, f"nothing is wrong although {what}"
    assert why in found[0].replace(" ", ""), output
