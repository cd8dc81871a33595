# SPDX-License-Identifier: GPL-2.0-only
"""The program that makes the fuzzer's calls; only calls that harm nobody, in its own network."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop.guest.failure import GuestError
from nodrop.guest.fuzz import calls
from nodrop.guest.fuzz.executor import Executor
from nodrop.guest.fuzz.text import parse
from nodrop.guest.fuzz.wire import UNENDED, End

TRAFFIC = Path(__file__).resolve().parents[2] / "traffic"
TIMEOUT_S = 120

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fuzz")
    command = ["make", "-s", "-C", str(TRAFFIC), f"OUT={out}", f"{out}/fuzz_exec"]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return out


@pytest.fixture
def executor(folder: Path) -> Iterator[Executor]:
    with Executor(folder) as executor:
        try:
            executor.run(())
        except GuestError as error:
            pytest.skip(f"only root has a network of its own: {error}")
        yield executor


def results(executor: Executor, text: str) -> tuple[int, ...]:
    return executor.run(parse(text)).results


def test_results_are_used_by_later_calls(executor: Executor) -> None:
    text = "r0 = eventfd(2048)\nsignal(r0, 1) *5\nread(r0, 8)\nread(r0, 8)\nclose(r0)\nclose(r0)"
    assert results(executor, text)[1:] == (8, 8, -errno.EAGAIN, 0, -errno.EBADF)


def test_results_come_from_memory(executor: Executor) -> None:
    text = 'r0 = udp()\nr1 = ifindex(r0, "lo")\nr2 = ifindex(r0, "none")'
    assert results(executor, text)[1:] == (1, -errno.ENODEV)


def test_bad_memory_is_bad(executor: Executor) -> None:
    text = "r0 = eventfd(2048)\nsignal(r0, 1) @null\nsignal(r0, 1) @bad\nsignal(r0, 1) @edge"
    assert results(executor, text)[1:] == (-errno.EFAULT, -errno.EFAULT, 8)
    text = 'r0 = udp()\nifindex(r0, "lo") @edge'
    assert results(executor, text)[1] == -errno.EFAULT


def test_calls_that_wait_are_interrupted(executor: Executor) -> None:
    text = "r0 = eventfd(0)\nread(r0, 8)\ngetpid()"
    assert results(executor, text)[1] == -errno.EINTR


def test_calls_aside_go_on(executor: Executor) -> None:
    answer = executor.run(
        parse("r0 = eventfd(0)\n& read(r0, 8)\npause(5)\nsignal(r0, 7)\npause(5)")
    )
    assert answer.end is End.ENDED
    assert answer.results[1] == 8
    assert executor.run(parse("r0 = eventfd(0)\n& read(r0, 8)")).results[1] == UNENDED


def test_programs_that_take_too_long_are_killed(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "LIMIT_MS", 1)
    assert executor.run(parse("pause(9)\n" * 20)).end is End.KILLED
    monkeypatch.undo()
    assert executor.run(parse("pause(1)")).end is End.ENDED


def test_frames_that_make_no_sense_end_it(folder: Path) -> None:
    for frame in (b"\xff" * 16, bytes(4) + b"\x01" + bytes(11), b"\x08" + bytes(15) + bytes(8)):
        done = subprocess.run(
            [folder / "fuzz_exec"], input=frame, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode in (1, 4), done
        assert b"fuzz_exec: " in done.stderr
