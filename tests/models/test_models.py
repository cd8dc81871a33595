# SPDX-License-Identifier: GPL-2.0-only
"""The model of a queue (Spin) and the litmus tests (herd7) hold, and their twins can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop import proc
from proof.herd import LITMUS, TWINS, Herd, Twin, twin_text

MODEL = Path(__file__).parents[2] / "proof/spin" / "queue.pml"
LIMIT_S = 120.0
MEMORY_MB = 2000
COMPILE = f"-w -DSAFETY -DMEMLIM={MEMORY_MB}".split()

MODELS = {
    "stop and wake": "-DPACKETS=3 -DBIG=2 -DLATE=2 -DADAPT",
    "ring of one": "-DPACKETS=5 -DBIG=1 -DLATE=2",
    "past the qdisc": "-DPACKETS=2 -DBIG=2 -DLATE=2 -DDIRECT=1",
    "past the qdisc, waiting": "-DPACKETS=2 -DBIG=1 -DLATE=2 -DDIRECT=1 -DWAITS",
    "XDP and put back": "-DPACKETS=3 -DBIG=2 -DLATE=2 -DXDP=1 -DBACK=1",
    "event": "-DPACKETS=4 -DBIG=3 -DLATE=2 -DEVENT",
    "switched off": "-DPACKETS=2 -DBIG=1 -DLATE=2 -DSWITCH",
    "no consumer": "-DPACKETS=6 -DBIG=4 -DLATE=1 -DXDP=1 -DDEAD -DEVENT -DBINDS=2",
    "waits for an edge": "-DPACKETS=2 -DBIG=2 -DLATE=2 -DGUARD -DEDGE",
    "consumer that goes": "-DPACKETS=3 -DBIG=2 -DLATE=2 -DGUARD -DLEAVES",
}
BROKEN = {
    "RECHECK": ("the sender stops and does not read taken again", "stop and wake", "stack_off"),
    "DRY": ("a consumer with nothing to read does not kick", "stop and wake", "!(backlog)"),
    "KICK": ("a kick ends without a run", "stop and wake", "!(backlog)"),
    "BITS": ("a wake clears one bit alone", "stop and wake", "!(backlog)"),
    "UNDO": ("a stop is undone and no qdisc runs", "past the qdisc", "!(backlog)"),
    "UNAWARE": ("an unaware consumer's txq stays stopped", "event", "!(backlog)"),
    "REOPEN": ("the txq is woken and no qdisc runs", "event", "!(backlog)"),
    "STOP": ("the txq is not stopped", "no consumer", "beyond<="),
    "VOID": ("a resize leaves the budget", "no consumer", "beyond<="),
    "SLACK": ("late senders get a part of the slack alone", "no consumer", "why!="),
    "FULL": ("a full ring is woken", "no consumer", "why!="),
    "NOTIFY": ("the guard notifies only if the txq is stopped", "waits for an edge", "asleep"),
    "MARK": ("one packet begins a window", "consumer that goes", "stop_mark"),
    "TRIP": ("the guard does not trip", "consumer that goes", "!(backlog)"),
    "STALL": ("an empty ring does not end a stall", "consumer that goes", "stalled"),
}


def verify(folder: Path, optimization: str, *defines: str) -> str:
    """Try every order of steps and return what the verifier printed.

    Args:
        folder: an empty one.
        optimization: gcc's option. -O2 takes seconds more than -O0, and a verifier that has
            millions of states before it is twice as fast.
        defines: the preprocessor's options.
    """
    made = proc.run(["spin", "-a", *defines, str(MODEL)], timeout=LIMIT_S, cwd=folder)
    assert made.status == 0, made.output
    built = proc.run(
        ["gcc", optimization, *COMPILE, "-o", "pan", "pan.c"], timeout=LIMIT_S, cwd=folder
    )
    assert built.status == 0, built.output
    # The deepest run is some hundred steps long.
    return proc.run([folder / "pan", "-n", "-m5000"], timeout=LIMIT_S, cwd=folder).output


@pytest.mark.parametrize("name", MODELS)
def test_holds(name: str, tmp_path: Path) -> None:
    output = verify(tmp_path, "-O2", *MODELS[name].split())
    assert "errors: 0" in output, output
    # Anything less than all is no proof.
    for word in ("max search depth too small", "Search not completed", "out of memory"):
        assert word not in output, output


@pytest.mark.parametrize("name", BROKEN)
def test_fails_without(name: str, tmp_path: Path) -> None:
    what, where, why = BROKEN[name]
    output = verify(tmp_path, "-O0", *MODELS[where].split(), f"-DBREAK_{name}")
    found = [line for line in output.splitlines() if "assertion violated" in line]
    assert found, f"nothing is wrong although {what}"
    assert why in found[0].replace(" ", ""), output


@pytest.mark.parametrize("test", LITMUS)
def test_verdict(herd: Herd, test: str) -> None:
    assert "\n * Result: Never\n" in LITMUS[test].read_text(encoding="utf-8")
    assert herd.judge(LITMUS[test]) == "Never"


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_twin(herd: Herd, tmp_path: Path, twin: Twin) -> None:
    broken = tmp_path / f"{twin.name}.litmus"
    broken.write_text(twin_text(twin), encoding="utf-8")
    assert herd.judge(broken) == "Sometimes", twin.why
