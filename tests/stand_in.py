# SPDX-License-Identifier: GPL-2.0-only
"""Replaces the lab in tests of results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from bench import session
from bench.guest import runner
from bench.guest.plan import PLAN_NAME, Job, read_plan
from guestlib.environment import Environment
from lab import guest, splats, uml
from lab.kernel import Artifacts, Kernel


class Guest:
    """Makes runs with the guest's own code and invented metrics, without a guest.

    Attributes:
        stop_after: number of runs after which ``stop`` is called.
        ran: the runs that were started.
        log: number of runs -> lines of the kernel log that appear then.
    """

    def __init__(self, tmp_path: Path) -> None:
        self.stop_after = -1
        self.stop: Callable[[Path], None] = lambda _: None
        self.ran: list[Job] = []
        self.log: dict[int, list[str]] = {}
        self.kernel = Kernel(tmp_path, "7.3.4", tmp_path, tmp_path, "b1", "linux-source-7.3")
        self.artifacts = Artifacts(modules=tmp_path / "modules", bin=tmp_path / "bin")
        (tmp_path / "modules/nodrop").mkdir(parents=True)
        (tmp_path / "modules/nodrop/tun.ko").write_text("a module")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/sender").write_text("a program")

    @classmethod
    def put(cls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Self:
        """Replace the lab by one."""
        fake = cls(tmp_path)
        monkeypatch.setattr(uml, "run", fake.run)
        monkeypatch.setattr(runner, "run_job", fake.make)
        monkeypatch.setattr(runner, "Drivers", _NoDrivers)
        monkeypatch.setattr(runner, "prepare_system", lambda: None)
        monkeypatch.setattr(session, "ensure_kernel", lambda *_: fake.kernel)
        monkeypatch.setattr(session, "ensure_artifacts", lambda *_: fake.artifacts)
        return fake

    def run(
        self,
        *_: Any,
        out: Path,
        on_line: Callable[[str], None],
        **__: Any,
    ) -> guest.GuestRun:
        """Make the plan's missing runs."""
        log: list[str] = []

        def report(done: int) -> None:
            on_line(runner.PROGRESS_MARK + json.dumps({"done": done}))
            log.extend(self.log.get(done, []))
            if done == self.stop_after:
                self.stop(out)

        environment = Environment(out, self.artifacts.modules, self.artifacts.bin)
        runner.run_all(read_plan(out / PLAN_NAME), environment, report)
        return guest.GuestRun(0, "", "", splats.find_splats(log), 1.0)

    def make(self, job: Job, _environment: Environment) -> dict[str, Any]:
        """Make one run."""
        self.ran.append(job)
        names = {"scenario": job.scenario, "case": job.case, "pair": job.pair}
        metrics = {"delivered_pps": 1000.0 + len(self.ran), "lost": 0, "unaccounted": 0}
        return {**names, "variant": str(job.variant), "metrics": metrics}


class _NoDrivers:
    def __init__(self, _modules: Path) -> None:
        pass

    def load(self, _modules: list[str]) -> None:
        pass

    def unload(self) -> None:
        pass
