# SPDX-License-Identifier: GPL-2.0-only
"""How the test programs run their cases, and report them.

A program runs as root in a guest that it shares with other programs. LAB_MODULES and LAB_BIN are
set. Its arguments are the names of cases; none: all. It prints KTAP and ends with kselftest's exit
status. proof/selftests.py finds the names of the cases in the source.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from guestlib.drivers import Drivers, tun_module
from guestlib.environment import (
    GuestError,
    Unsupported,
    prepare_system,
    setting,
    time_limit,
    wait_until,
)
from lab.variant import Variant

PARAMETERS = {
    "nodrop": tun_module() / "parameters/nodrop",
    "guard_ms": Path("/sys/module/nodrop/parameters/guard_ms"),
    "target_us": Path("/sys/module/nodrop/parameters/target_us"),
}

drivers = Drivers(Path(os.environ["LAB_MODULES"]), late_guard=True)

Case = Callable[..., None]


class Skip(Exception):
    """This kernel or machine cannot run the case; the text is the reason."""


def check(condition: bool, text: str) -> None:
    """Fail the case with a text unless the condition holds."""
    if not condition:
        raise AssertionError(text)


def equal(got: object, wanted: object, what: str) -> None:
    """Fail the case unless both values are equal."""
    check(got == wanted, f"{what}: got {got}, wanted {wanted}")


def each(*values: object) -> Callable[[Case], Case]:
    """Make a function a case for each of the values, its argument; "a_b 1" is named a_b_1."""

    def mark(case: Case) -> Case:
        vars(case)["values"] = values
        return case

    return mark


def by_name(cases: Iterable[Case]) -> dict[str, Callable[[], None]]:
    """Return cases by their names, one for each value of each()."""
    found: dict[str, Callable[[], None]] = {}
    for case in cases:
        name = case.__name__.removeprefix("case_")
        if "values" not in vars(case):
            found[name] = case
        for value in vars(case).get("values", ()):
            found[f"{name}_{value}".replace(" ", "_")] = partial(case, value)
    return found


def run(
    *cases: Case,
    vhost: Variant | None = None,
    tun: Variant | None = Variant.NODROP,
    load: Callable[[], None] | None = None,
    at_end: Callable[[], None] = drivers.unload,
) -> None:
    """Run the chosen cases, each with nodrop's driver loaded; print KTAP and exit.

    Args:
        cases: by default all of the program, in the order of their definitions.
        vhost: the variant of vhost_net to load, too; None: none.
        tun: the variant of tun; None: the cases load modules themselves.
        load: loads the modules instead.
        at_end: unloads the modules, for the programs that follow.
    """
    defined = vars(sys.modules["__main__"]).items()
    chosen = by_name(cases or [case for name, case in defined if name.startswith("case_")])
    if names := sys.argv[1:]:
        chosen = {name: chosen[name] for name in names}
    prepare_system()
    print("KTAP version 1", f"1..{len(chosen)}", sep="\n", flush=True)
    failed = 0
    for number, (name, case) in enumerate(chosen.items(), start=1):
        try:
            if load:
                load()
            elif tun:
                drivers.use(tun, vhost=vhost)
            case()
            print(f"ok {number} {name}", flush=True)
        except (Skip, Unsupported) as reason:
            print(f"ok {number} {name} # SKIP {reason}", flush=True)
        except Exception as error:
            failed += 1
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
            print(f"not ok {number} {name} # {error}", flush=True)
    try:
        at_end()
    except GuestError as error:
        failed += 1
        print(f"# {error}", flush=True)
    sys.exit(1 if failed else 0)


def parameter(name: str, value: str) -> AbstractContextManager[None]:
    """Set a parameter of nodrop's modules for the block."""
    return setting(PARAMETERS[name], value)


def soon(
    condition: Callable[[], bool], text: str | Callable[[], str], timeout: float = 10.0
) -> None:
    """Fail the case unless the condition holds within time_limit(timeout)."""
    if not wait_until(condition, timeout, step_s=0.005):
        raise AssertionError(text if isinstance(text, str) else text())


@contextmanager
def repeating(action: Callable[[], None]) -> Iterator[None]:
    """Repeat an action in a thread during the block; fail the case if it fails or hangs."""
    end = threading.Event()
    errors: list[Exception] = []

    def repeat() -> None:
        try:
            while not end.is_set():
                action()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(time_limit(60))
    check(not thread.is_alive(), "a thread hangs")
    if errors:
        raise errors[0]
