# SPDX-License-Identifier: GPL-2.0-only
"""What a guest says is heard while it says it."""

from __future__ import annotations

import subprocess

from nodrop.lab import hearing

SAYS = "echo a log >&{0}; echo two >&{0}; echo output >&{1}; echo 3 >&{2}"


def test_each_line_is_given_on() -> None:
    log: list[str] = []
    output: list[str] = []
    with hearing.channels() as (ours, theirs):
        fds = [end.fileno() for end in theirs]
        with subprocess.Popen(["bash", "-c", SAYS.format(*fds)], pass_fds=fds) as process:
            for end in theirs:
                end.close()
            made = hearing.hear(process, ours, timeout=20, on_line=output.append, on_log=log.append)
    assert (log, output) == (["a log", "two"], ["output"])
    assert (made.status, made.log) == (3, "a log\ntwo")
