# SPDX-License-Identifier: GPL-2.0-only
"""The livepatch: its state in the running kernel, loading and unloading it."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError, deferred
from nodrop.host.modules import driver, tun_built_in
from nodrop.screen import clean

NAME = "nodrop_live"
CORE = "nodrop"
TOOL_TIMEOUT_S = 60.0
POLL_S = 0.05
BUILD_TIMEOUT_S = 600.0
_PREFIX = "nodrop: "
_REPOSITORY = Path(__file__).resolve().parents[2]
_UNDO = "Run 'nodrop livepatch unload' to remove what is left of it."


class Livepatch:
    """The livepatch of a running kernel.

    Args:
        root: parent of ``sys`` and ``proc``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._modules = root / "sys/module"
        self._patches = root / "sys/kernel/livepatch"
        self._patch = self._patches / NAME
        self._proc = root / "proc"

    @property
    def present(self) -> bool:
        """Whether the kernel has the patch, in any state."""
        return self._patch.exists()

    @property
    def enabled(self) -> bool:
        """Whether the patch is loaded, or in transition to that."""
        try:
            return (self._patch / "enabled").read_text().strip() == "1"
        except OSError:
            return False

    @property
    def settled(self) -> bool:
        """Whether no transition is under way; also if there is no patch."""
        try:
            return (self._patch / "transition").read_text().strip() == "0"
        except OSError:
            return True

    @property
    def left(self) -> bool:
        """Whether any part of it is loaded: a killed command may leave one."""
        return self.present or self.loaded(NAME) or (self.loaded(CORE) and not self._used(CORE))

    def loaded(self, module: str) -> bool:
        """Return whether a module is loaded."""
        return (self._modules / module).exists()

    def require(self) -> None:
        """Check that the kernel can be patched.

        Raises:
            UnsupportedError: it does not support livepatches, or its tun is not a module.
            NodropError: nodrop's own driver is loaded: there is nothing to patch.
        """
        if not self._patches.is_dir():
            raise UnsupportedError(
                "The running kernel does not support livepatches (CONFIG_LIVEPATCH).",
                "Use 'nodrop install' instead.",
            )
        if tun_built_in(self._root):
            raise UnsupportedError(
                "tun is built into this kernel, and the livepatch only patches modules.",
                "Use 'nodrop install' instead.",
            )
        if driver(self._root) == "nodrop":
            raise NodropError(
                "nodrop's own tun is loaded: there is nothing to patch.",
                "The livepatch is for the stock driver.",
            )

    def holders(self) -> list[str]:
        """Return the tasks that a transition waits for, as ``name (pid)``."""
        tasks = []
        with suppress(OSError):
            target = (self._patch / "enabled").read_text().strip()
            # Unlike Path.glob(), it goes on when a process ends.
            for state in glob.iglob(f"{self._proc}/[0-9]*/task/[0-9]*/patch_state"):
                with suppress(OSError):
                    if Path(state).read_text().strip() not in ("-1", target):
                        task = Path(state).parent
                        name = (task / "comm").read_text(errors="replace").strip()
                        tasks.append(f"{clean(name)} ({task.name})")
        return sorted(tasks)

    def enter(
        self,
        modules: Path,
        timeout: float,
        update: Callable[[str], None],
        parameters: Sequence[str] = (),
    ) -> None:
        """Load the patch from a directory of modules and wait until the transition ends.

        A signal is deferred while a module is being loaded; then the patch is unloaded again.

        Args:
            timeout: seconds after which the patch is unloaded again.
            update: called repeatedly with what the transition waits for.
            parameters: of the core, since insmod does not read modprobe's configuration.

        Raises:
            NodropError: a module cannot be loaded, or the transition timed out.
        """
        if self.loaded(NAME) and not self.enabled:
            self.leave(timeout, update)  # an earlier one is being unloaded
        try:
            self._load(modules, parameters)
            complete = self._wait(lambda: self.settled, timeout, update)
        except KeyboardInterrupt:
            self._retreat()
            raise
        if complete:
            return
        waited = self._names()
        self.leave(timeout, update)
        raise NodropError(
            f"The livepatch was not complete after {timeout:g} s and was unloaded again.",
            f"It waited for {waited}. Try again when they are less busy.",
        )

    def leave(self, timeout: float, update: Callable[[str], None]) -> None:
        """Disable the patch, wait until the transition ends, and unload the modules.

        Args:
            timeout: seconds.
            update: called repeatedly with what the transition waits for.

        Raises:
            NodropError: the transition timed out; the kernel keeps trying. Or it cannot begin.
        """
        self._disable()
        if not self._wait(lambda: not self.present, timeout, update):
            raise NodropError(
                f"The livepatch is still in use after {timeout:g} s.",
                f"It waits for {self._names()}. The kernel keeps trying: run this again later.",
            )
        self._unload()

    def _load(self, modules: Path, parameters: Sequence[str]) -> None:
        """Load both modules, or none."""
        with deferred() as interrupted:
            for name in (CORE, NAME):
                if self.loaded(name) or interrupted():
                    continue
                try:
                    given = parameters if name == CORE else ()
                    argv = ["insmod", str(modules / f"{name}.ko"), *given]
                    done = proc.run(argv, timeout=TOOL_TIMEOUT_S)
                except NodropError as error:
                    with suppress(NodropError):
                        self._retreat()
                    error.hint = "\n".join(filter(None, [error.hint, _UNDO]))
                    raise
                if done.status != 0:
                    self._unload()
                    raise NodropError(
                        f"The module {name} could not be loaded.",
                        f"{done.output.strip()}\nThe reason is in the kernel's log (dmesg). "
                        "The drivers are unchanged.",
                    )
        if interrupted():
            raise KeyboardInterrupt

    def _retreat(self) -> None:
        """Disable the patch, without waiting for the kernel; unload it if it was not enabled."""
        self._disable()
        if not self.present:
            self._unload()

    def _disable(self) -> None:
        if self.enabled:
            try:
                (self._patch / "enabled").write_text("0")
            except OSError as error:
                raise NodropError(
                    f"The livepatch cannot be disabled now: {error.strerror}.",
                    "Another livepatch is in transition. Run 'nodrop livepatch unload' after that.",
                ) from error

    def _unload(self) -> None:
        """Unload those of our two modules that are unused."""
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
        self, condition: Callable[[], bool], timeout: float, update: Callable[[str], None]
    ) -> bool:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() >= deadline:
                return False
            update(f"waiting for {self._names()}")
            time.sleep(POLL_S)
        return True


def build(kernel: str, source: Path | None, out: Path, on_line: Callable[[str], None]) -> None:
    """Build the livepatch for an installed kernel and check that it fits.

    Args:
        kernel: kernel release.
        source: its source tree; None: dkms/source finds it.
        out: an empty directory, which gets the modules.
        on_line: called with each line of output.

    Raises:
        NodropError: it cannot be built, or does not fit; the hint has the reason.
        UnsupportedError: the sources are missing, as in nodrop.pyz.
    """
    if not (_REPOSITORY / "kmod").is_dir():
        raise UnsupportedError(
            "This copy of nodrop cannot build modules.",
            "Run the command of a clone or of the package nodrop.",
        )
    if source is None:
        source = out / "source"
        _make([_REPOSITORY / "dkms/source", kernel, source], on_line)
    modules = Path("/lib/modules") / kernel
    folders = [f"KOBJ={modules / 'build'}", f"LIVE={modules / 'kernel'}", f"OUT={out}"]
    ksrc = f"KSRC={source.absolute()}"
    _make(["make", "-C", _REPOSITORY / "kmod", "CONFIG_KUNIT=", ksrc, *folders], on_line)


def _make(argv: list[str | Path], on_line: Callable[[str], None]) -> None:
    done = proc.run(argv, timeout=BUILD_TIMEOUT_S, on_line=on_line)
    if done.status != 0:
        # Lines of nodrop's own scripts say why; of other programs, the last ones may.
        lines = dict.fromkeys(clean(line.strip()) for line in done.output.splitlines())
        ours = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
        what = "The livepatch cannot be built; the drivers are unchanged."
        raise NodropError(what, "\n".join(ours) or proc.tail(done.output, 8))
