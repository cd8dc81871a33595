# SPDX-License-Identifier: GPL-2.0-only
"""Which tracer this machine has: the best one that works."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nodrop.errors import NodropError, UnsupportedError
from nodrop.trace import bpftrace, btf
from nodrop.trace.hist import EprobeTracer, HistTracer
from nodrop.trace.model import Target, Tracer
from nodrop.trace.ring import RingTracer
from nodrop.trace.tracefs import EVENT, Tracefs

KINDS = ("auto", "bpftrace", "tracefs")


def start(kind: str, files: Tracefs, target: Target, tell: Callable[[str], None]) -> Tracer:
    """Return a tracer that counts already; its caller closes it.

    Args:
        kind: one of KINDS.
        files: the kernel's tracing files, open.
        tell: called with a sentence when one does not work and the next is tried.

    Raises:
        NodropError: none works.
    """
    failed: NodropError | None = None
    for name, make in _candidates(kind, files, target):
        if failed:
            tell(f"{failed.message} Trying {name}.")
        try:
            return make().__enter__()
        except NodropError as error:
            failed = error
        except btf.BtfError as error:
            failed = NodropError(f"The kernel's type information cannot be used: {error}.")
        except OSError as error:
            failed = files.refused(error)
    raise failed or UnsupportedError(
        "bpftrace cannot be used here: it is not installed, or the kernel has no type information.",
        "apt-get install bpftrace, or leave --tracer out.",
    )


def _candidates(
    kind: str, files: Tracefs, target: Target
) -> Iterator[tuple[str, Callable[[], Tracer]]]:
    """Give what may work here, the best first."""
    typed = (files.root / btf.VMLINUX).exists()
    if kind != "tracefs" and typed and bpftrace.available():
        ready_s = bpftrace.PATIENT_S if kind == "bpftrace" else bpftrace.READY_S
        yield "bpftrace", lambda: bpftrace.BpftraceTracer(files, target, ready_s)
    if kind == "bpftrace":
        return
    if (files.path / "events" / EVENT / "hist").exists():
        if typed and (files.path / "dynamic_events").exists():
            yield (
                "the kernel's own tracing files",
                lambda: EprobeTracer(files, target, btf.load(files.root)),
            )
        yield "without the device", lambda: HistTracer(files)
    else:
        yield "events one by one", lambda: RingTracer(files)
