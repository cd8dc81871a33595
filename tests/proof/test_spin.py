# SPDX-License-Identifier: GPL-2.0-only
"""The model of a queue's life holds in every order of steps, and can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop import proc

MODEL = Path(__file__).parents[1] / "spin" / "queue.pml"
LIMIT_S = 120.0
MEMORY_MB = 2000
COMPILE = f"-w -DSAFETY -DMEMLIM={MEMORY_MB}".split()

WHOLE = {
    "stop and wake": "-DPACKETS=4 -DEVENTS=0",
    "events": "-DPACKETS=3 -DEVENTS=1 -DFOREIGN",
    "reader that goes": "-DPACKETS=3 -DEVENTS=0 -DBIG=2 -DGUARD -DLEAVES",
}
BROKEN = {
    "RECHECK": ("the sender stops and does not look again", "stop and wake", "!(ring)"),
    "CLAIM": ("no room is needed", "stop and wake", "!(stopped)"),
    "KNOCK": ("a reader that finds nothing sleeps", "stop and wake", "!(backlog)"),
    "KICK": ("a kick that has looked is relied on", "stop and wake", "!(backlog)"),
    "BURST": ("a burst that is stopped calls nobody", "stop and wake", "!(backlog)"),
    "CHARGE": ("bytes are charged after the packet is in", "stop and wake", "bytes<=charged"),
    "PROMISE": ("a resize fills the sender's slot", "events", "!(stopped)"),
    "UNCHARGED": ("a reset forgets what is held", "events", "bytes<=charged"),
    "FOREIGN": ("a foreign ring stays stopped", "events", "!(backlog)"),
    "REOPEN": ("only a stopped txq is run when it is opened", "events", "!(backlog)"),
    "TRIP": ("the guard ends when it trips", "reader that goes", "!(backlog)"),
}


def verify(place: Path, optimization: str, *defines: str) -> str:
    """Try every order of steps and return what the verifier printed.

    Args:
        place: an empty directory.
        optimization: gcc's option. -O1 takes two seconds more than -O0, and a verifier that has
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
    output = verify(tmp_path, "-O1", *WHOLE[name].split())
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
