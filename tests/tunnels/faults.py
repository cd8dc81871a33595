# SPDX-License-Identifier: GPL-2.0-only
"""The series, broken on purpose in one place at a time: does the torture see it?

``python -m tests.tunnels.faults NAME [--flavour tunnel-kasan] [--seconds 60]`` builds the
flavour's kernel with the fault, in a folder of its own where the next one needs few new
objects, and tortures the kind of tunnel that the fault is in. Exit status 0: it was seen.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nodrop import lab, proc
from nodrop.kernel import Kernel, cache, ensure_kernel, kconfig
from nodrop.kernel.build import make
from nodrop.lab.hearing import GuestDied, GuestTimeout
from nodrop.progress import Progress


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        name: what is broken.
        file: in the kernel's source, the series applied.
        old: a text that occurs there once.
        new: what replaces it.
        kind: of tunnel that meets it.
        events: those that bring it out; "": all.
    """

    name: str
    file: str
    old: str
    new: str
    kind: str
    events: str = ""


FAULTS = (
    Fault(
        "sit_puts_what_it_borrowed",
        "net/ipv6/sit.c",
        "icmpv6_ndo_send(skb, ICMPV6_PKT_TOOBIG, 0, mtu);\n\t\t\tdst_ref_put(ref);",
        "icmpv6_ndo_send(skb, ICMPV6_PKT_TOOBIG, 0, mtu);\n\t\t\tip_rt_put(rt);",
        "sit",
    ),
    Fault(
        "a_route_from_the_table_is_not_put",
        "net/ipv4/udp_tunnel_core.c",
        "*ref = dst_ref_owned(&rt->dst);",
        "*ref = dst_ref_borrowed(&rt->dst);",
        "vxlan",
    ),
    Fault(
        "a_queue_keeps_a_borrowed_route",
        "net/core/dev.c",
        "\t\tskb_dst_drop(skb);\n\telse\n\t\tskb_dst_force(skb);",
        "\t\tskb_dst_drop(skb);",
        "gre",
        "nested",
    ),
    Fault(
        "fib_puts_at_once",
        "net/ipv4/fib_semantics.c",
        "later\n\t * than that grace period began: the last one to let go waits again.\n\t */\n"
        "\tdst_release(&rt->dst);",
        "later\n\t * than that grace period began: the last one to let go waits again.\n\t */\n"
        "\tdst_release_immediate(&rt->dst);",
        "gre",
    ),
    Fault(
        "sctp_borrows_outside",
        "net/sctp/protocol.c",
        "\trcu_read_lock();\n\tdst = t->dst;\n",
        "\tdst = t->dst;\n\trcu_read_lock();\n",
        "sctp",
    ),
)


@contextmanager
def broken(fault: Fault, tree: Path) -> Iterator[None]:
    """Have a fault in a source tree for the block; its files may have other names elsewhere."""
    path = tree / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.file} has the text of {fault.name} not once")
    _write(path, text.replace(fault.old, fault.new))
    try:
        yield
    finally:
        # Anew, so that make sees it.
        _write(path, text)


def _write(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text, encoding="utf-8")


def built(fault: Fault, kernel: Kernel, flavour: str, progress: Progress) -> Kernel:
    """Return the flavour's kernel with a fault."""
    place = cache.root() / "faults" / flavour
    tree, objtree = place / "linux", place / "obj"
    if not tree.exists():
        objtree.mkdir(parents=True, exist_ok=True)
        copied = proc.run(["cp", "-al", str(kernel.source), str(tree)], timeout=300.0)
        assert copied.status == 0, copied.output
    wanted = place / "wanted.config"
    wanted.write_text(kconfig.render(kconfig.parse(kconfig.fragment(flavour))))
    common = ["-C", str(tree), "ARCH=um", f"O={objtree}"]
    with progress.step(f"Build the {flavour} kernel with {fault.name}"), broken(fault, tree):
        if not (objtree / ".config").exists():
            configure = [*common, f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"]
            make(configure, what="The configuration", scratch=place)
        make([*common, "linux"], what="The kernel", scratch=place)
    return replace(kernel, linux=objtree / "linux", objtree=objtree, source=tree)


def seen(fault: Fault, kernel: Kernel, seconds: float) -> str:
    """Torture; return how the fault was seen, "" if it was not."""
    command = ["python3", "-m", "nodrop.guest.tunnels.torture", "--type", fault.kind]
    command += ["--seconds", str(seconds), "--events", fault.events]
    with tempfile.TemporaryDirectory() as out:
        try:
            run = lab.run(kernel, command, out=Path(out), timeout=seconds * 3 + 200)
        except (GuestDied, GuestTimeout) as error:
            return str(error).splitlines()[0]
    if run.splats:
        return run.splats[0].line
    return run.output.strip().splitlines()[-1][:200] if run.status else ""


def main(argv: list[str]) -> int:
    """Build, torture, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[fault.name for fault in FAULTS])
    parser.add_argument("--flavour", default="tunnel-kasan")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args(argv)
    (fault,) = (fault for fault in FAULTS if fault.name == given.name)
    with Progress() as progress:
        kernel = ensure_kernel(progress, given.flavour)
        kernel = built(fault, kernel, given.flavour, progress)
    how = seen(fault, kernel, given.seconds)
    print(f"{fault.name}: {how or 'not seen'}")
    return 0 if how else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
