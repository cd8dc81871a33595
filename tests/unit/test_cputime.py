# SPDX-License-Identifier: GPL-2.0-only
"""CPU times are the kernel's."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from nodrop.guest.cputime import family, family_seconds, process_ns


def test_the_cpu_time_of_a_process() -> None:
    before = process_ns(os.getpid())
    end = time.process_time_ns() + 20_000_000
    while time.process_time_ns() < end:
        pass
    assert 20_000_000 <= process_ns(os.getpid()) - before < 10**9


def test_cpu_time_of_a_process_and_its_children() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\n"
    child_words = [sys.executable, "-c", f"{busy}print(flush=True)\ninput()"]
    parent = f"{busy}import subprocess\nsubprocess.run({child_words})"
    words = [sys.executable, "-c", parent]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        (_, child) = family(process.pid)
        assert child != os.getpid()
        assert 0.4 <= family_seconds(process.pid) < 5
        assert family_seconds(child) >= 0.2
        process.stdin.close()


def test_cpu_time_of_a_process_that_is_gone() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert family_seconds(process.pid) == 0
    assert family_seconds(os.getpid()) <= time.process_time() + 60
