# SPDX-License-Identifier: GPL-2.0-only
"""Which tracer this machine has: bpftrace where it works, else the kernel's events."""

from __future__ import annotations

from collections.abc import Callable

from nodrop.errors import NodropError, UnsupportedError
from nodrop.trace import bpftrace
from nodrop.trace.events import EventsTracer
from nodrop.trace.model import Target, Tracer
from nodrop.trace.tracefs import Tracefs

KINDS = ("auto", "bpftrace", "tracefs")


def start(kind: str, files: Tracefs, target: Target, tell: Callable[[str], None]) -> Tracer:
    """Return a tracer that counts already; its caller closes it.

    Args:
        kind: one of KINDS.
        files: the kernel's tracing files, open.
        tell: called with a sentence when bpftrace does not work.

    Raises:
        NodropError: none works.
    """
    if kind != "tracefs" and bpftrace.available(files.root):
        ready_s = bpftrace.PATIENT_S if kind == "bpftrace" else bpftrace.READY_S
        try:
            return _started(bpftrace.BpftraceTracer(files, target, ready_s))
        except NodropError as error:
            if kind == "bpftrace":
                raise
            tell(f"{error.message} Reading the kernel's events.")
    elif kind == "bpftrace":
        raise UnsupportedError(
            "bpftrace cannot be used here: it is not installed, or the kernel has no type "
            "information.",
            "apt-get install bpftrace, or leave --tracer out.",
        )
    return _started(EventsTracer(files))


def _started(tracer: Tracer) -> Tracer:
    try:
        tracer.start()
    except BaseException:
        tracer.close()
        raise
    return tracer
