# SPDX-License-Identifier: GPL-2.0-only
"""The livepatch of the running kernel: what state it is in, in and out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from nodrop import proc
from nodrop.columns import clean
from nodrop.errors import NodropError, UnsupportedError
from nodrop.signals import asked_to_end

NAME = "nodrop_live"
CORE = "nodrop"
TOOL_TIMEOUT_S = 60.0
LOOK_S = 0.05
BUILD_TIMEOUT_S = 600.0
_KMOD = Path(__file__).resolve().parents[2] / "kmod"
_UNDO = "'nodrop livepatch unload' removes what is left of it."


class Livepatch:
    """The patch in a running kernel.

    Args:
        root: where ``sys`` and ``proc`` are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._modules = root / "sys/module"
        self._patches = root / "sys/kernel/livepatch"
        self._patch = self._patches / NAME
        self._proc = root / "proc"

    @property
    def present(self) -> bool:
        """Whether the kernel has the patch, in whatever state."""
        return self._patch.exists()

    @property
    def enabled(self) -> bool:
        """Whether the kernel has the patch and it is in, or on its way in."""
        try:
            return (self._patch / "enabled").read_text().strip() == "1"
        except OSError:
            return False

    @property
    def settled(self) -> bool:
        """Whether all tasks are on one side; also when the patch is not there."""
        try:
            return (self._patch / "transition").read_text().strip() == "0"
        except OSError:
            return True

    @property
    def left(self) -> bool:
        """Whether anything of it is in the kernel; a command that was killed may leave a part."""
        return self.present or self.loaded(NAME) or (self.loaded(CORE) and not self._used(CORE))

    def loaded(self, module: str) -> bool:
        """Whether a module is in the kernel."""
        return (self._modules / module).exists()

    def require(self) -> None:
        """Refuse a kernel that cannot be patched.

        Raises:
            UnsupportedError: it has no livepatch.
            NodropError: nodrop's own driver is loaded: there is nothing to patch.
        """
        if not self._patches.is_dir():
            raise UnsupportedError(
                "The running kernel has no livepatch (CONFIG_LIVEPATCH).",
                "Load nodrop's own modules instead; see the README.",
            )
        if (self._modules / "tun/parameters/nodrop").exists():
            raise NodropError(
                "The tun module that is loaded is nodrop's own: there is nothing to patch.",
                "The livepatch is for the distribution's.",
            )

    def holders(self) -> list[str]:
        """Return the tasks that a transition waits for, as ``name (pid)``."""
        found = []
        with suppress(OSError):
            target = (self._patch / "enabled").read_text().strip()
            for state in self._proc.glob("[0-9]*/task/[0-9]*/patch_state"):
                with suppress(OSError):
                    if state.read_text().strip() not in ("-1", target):
                        task = state.parent
                        name = (task / "comm").read_text(errors="replace").strip()
                        found.append(f"{clean(name)} ({task.name})")
        return sorted(found)

    def enter(
        self,
        modules: Path,
        timeout: float,
        tell: Callable[[str], None],
        parameters: Sequence[str] = (),
    ) -> None:
        """Load the patch from a folder of modules and wait until it is complete.

        A signal is held while a module is being loaded; then what was done is undone.

        Args:
            timeout: seconds; when they are over the patch is taken out again.
            tell: called now and then with what it waits for.
            parameters: of the core: insmod does not read what is kept for modprobe.

        Raises:
            NodropError: a module cannot be loaded, or the time was over.
        """
        if self.loaded(NAME) and not self.enabled:
            self.leave(timeout, tell)  # an earlier one is on its way out
        try:
            self._load(modules, parameters)
            complete = self._wait(lambda: self.settled, timeout, tell)
        except KeyboardInterrupt:
            self._retreat()
            raise
        if complete:
            return
        held = self._names()
        self.leave(timeout, tell)
        raise NodropError(
            f"The livepatch was not complete after {timeout:g} s and was taken out again.",
            f"It waited for {held}. Try again when they have less to do.",
        )

    def leave(self, timeout: float, tell: Callable[[str], None]) -> None:
        """Take the patch out and wait until it is gone.

        Args:
            timeout: seconds.
            tell: called now and then with what it waits for.

        Raises:
            NodropError: it is not out after this time; the kernel goes on trying.
        """
        if self.enabled:
            (self._patch / "enabled").write_text("0")
        if not self._wait(lambda: not self.present, timeout, tell):
            raise NodropError(
                f"The livepatch is not out after {timeout:g} s.",
                f"It waits for {self._names()}. The kernel goes on trying: run this again later.",
            )
        self._unload()

    def _load(self, modules: Path, parameters: Sequence[str]) -> None:
        """Load both modules, or none."""
        with asked_to_end() as interrupted:
            for name in (CORE, NAME):
                if self.loaded(name) or interrupted():
                    continue
                try:
                    given = parameters if name == CORE else ()
                    words = ["insmod", str(modules / f"{name}.ko"), *given]
                    done = proc.run(words, timeout=TOOL_TIMEOUT_S)
                except NodropError as error:
                    with suppress(NodropError):
                        self._retreat()
                    error.hint = "\n".join(filter(None, [error.hint, _UNDO]))
                    raise
                if done.status != 0:
                    self._unload()
                    raise NodropError(
                        f"The module {name} could not be loaded.",
                        f"{done.output.strip()}\nThe kernel's log (dmesg) says why; "
                        "the drivers are what they were.",
                    )
        if interrupted():
            raise KeyboardInterrupt

    def _retreat(self) -> None:
        """Begin the way out, which the kernel ends by itself; unload what is not patched in."""
        if self.enabled:
            (self._patch / "enabled").write_text("0")
        elif not self.present:
            self._unload()

    def _unload(self) -> None:
        """Unload what nothing uses of our two modules."""
        for name in (NAME, CORE):
            if self.loaded(name) and not self._used(name):
                done = proc.run(["rmmod", name], timeout=TOOL_TIMEOUT_S)
                if done.status != 0:
                    raise NodropError(f"rmmod {name} failed.", done.output.strip())

    def _used(self, module: str) -> bool:
        return any((self._modules / module / "holders").iterdir())

    def _names(self) -> str:
        return ", ".join(self.holders()[:8]) or "the kernel's idle tasks"

    def _wait(
        self, condition: Callable[[], bool], timeout: float, tell: Callable[[str], None]
    ) -> bool:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() >= deadline:
                return False
            tell(f"waits for {self._names()}")
            time.sleep(LOOK_S)
        return True


def build(kernel: str, source: Path | None, out: Path, tell: Callable[[str], None]) -> None:
    """Build the livepatch for an installed kernel and check that it fits.

    Args:
        kernel: its release.
        source: its source; None: what kmod/source finds.
        out: an empty folder; gets the modules.
        tell: called with each line of output.

    Raises:
        NodropError: it cannot be built, or does not fit; the text says why.
    """
    if source is None:
        if not (_KMOD / "source").exists():
            raise NodropError("The kernel's source is not known.", "Give it by --source DIR.")
        source = out / "source"
        _make([_KMOD / "source", kernel, source], tell)
    modules = Path("/lib/modules") / kernel
    words = [f"KSRC={source}", f"KOBJ={modules / 'build'}", f"LIVE={modules / 'kernel'}"]
    _make(["make", "-C", _KMOD, *words, f"OUT={out}"], tell)


def _make(argv: list[str | Path], tell: Callable[[str], None]) -> None:
    done = proc.run(argv, timeout=BUILD_TIMEOUT_S, on_line=tell)
    if done.status != 0:
        said = [line for line in done.output.splitlines() if line.startswith("nodrop: ")]
        reason = "\n".join(said) or proc.tail(done.output, 12)
        raise NodropError("The livepatch cannot be built; the drivers are what they were.", reason)
