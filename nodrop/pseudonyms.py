# SPDX-License-Identifier: GPL-2.0-only
"""Pseudonyms for what identifies a machine's people and their work, before the checks run.

The checks get a machine with other names, so nothing that they print has to be searched for names.
docs/guide.md ("report") lists what is replaced, and what is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodrop.doctor.observation import Observation
from nodrop.doctor.reader import VCPU
from nodrop.host.model import Device, Host, Owner
from nodrop.host.procfs import Cgroup, Holder, Thread, cgroup
from nodrop.host.settings import matches
from nodrop.host.system import System

_FOREIGN_PATH = re.compile(
    r"'/[^']*'|(?<![\w.*/-])/(?!(?:bin|boot|dev|etc|lib|proc|sbin|sys|usr|var/log/nodrop)/)"
    r"[^\s'\"),;]*"
)
_ADDRESS = re.compile(
    r"(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}(?:\d+(?:\.\d+){3}|[0-9a-f]{0,4}(?![\w:]))(?:%[\w.-]+)?"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|\b[0-9a-f]{2}(?:-[0-9a-f]{2}){5}\b",
    re.IGNORECASE,
)


def without_paths(text: str) -> str:
    """Replace quoted paths, and those outside of the system's directories: of a user's files."""
    return _FOREIGN_PATH.sub("PATH", text)


class Pseudonyms:
    """Replaces names by a word and a number: the same name by the same pseudonym."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def of(self, kind: str, name: str) -> str:
        """Return ``dev1`` for a name of the kind "dev"; "" stays as it is."""
        if not name:
            return ""
        number = 1 + sum(known == kind for known, _ in self._known)
        return self._known.setdefault((kind, name), f"{kind}{number}")

    def text(self, text: str) -> str:
        """Return a sentence without known names, addresses, and paths of users' files."""
        host = os.uname().nodename
        known = dict.fromkeys(filter(None, (host, host.partition(".")[0])), "HOST")
        known.update({name: pseudonym for (_, name), pseudonym in self._known.items()})
        longest = sorted(map(re.escape, known), key=len, reverse=True)
        if longest:
            whole = rf"(?<![\w.-])(?:{'|'.join(longest)})(?![\w-])"
            text = re.sub(whole, lambda match: known[match[0]], text)
        return _ADDRESS.sub("ADDRESS", without_paths(text))

    def observation(self, observation: Observation) -> Observation:
        """Return the samples with pseudonyms; the selection of devices is lost."""
        return replace(
            observation,
            before=self._host(observation.before),
            host=self._host(observation.host),
            threads_before=list(map(self._thread, observation.threads_before)),
            threads=list(map(self._thread, observation.threads)),
            system=self._system(observation.system, observation.host.devices),
            only=frozenset(),
            host_holders=[self._holder(holder) for holder in observation.host_holders],
        )

    def rules(self, rules: Mapping[str, bool], devices: Iterable[Device]) -> dict[str, bool]:
        """Return kept settings for the devices that a name or pattern matches."""
        names = [device.name for device in devices]
        renamed: dict[str, bool] = {}
        for pattern, on in rules.items():
            matched = [self.of("dev", name) for name in names if matches(pattern, name)]
            renamed.update(dict.fromkeys(matched or [self.of("pattern", pattern)], on))
        return renamed

    def _host(self, host: Host) -> Host:
        devices = tuple(map(self._device, host.devices))
        spaces = {self.of("ns", name): self.text(why) for name, why in host.unread.items()}
        return replace(host, devices=devices, unread=spaces)

    def _device(self, device: Device) -> Device:
        return replace(
            device,
            name=self.of("dev", device.name),
            netns=self.of("ns", device.netns),
            owners=tuple(map(self._owner, device.owners)),
            altnames=(),
        )

    def _owner(self, owner: Owner) -> Owner:
        return replace(
            owner,
            name=self.of("process", owner.name),
            user=min(owner.user, 1),
            cgroup=self._cgroup(owner.cgroup),
            vhost_workers=[{**worker, "name": "vhost"} for worker in owner.vhost_workers],
        )

    def _cgroup(self, group: Cgroup) -> Cgroup:
        runtime, _, name = (group.container or "").partition(":")
        unit = group.unit or ""
        made = self.of("unit", unit) + unit[unit.rfind(".") :] if unit else ""
        return Cgroup(
            unit=f"user@/{made}" if unit.startswith("user@") else made or None,
            container=f"{runtime}:{self.of('container', name)}" if name else None,
            vm=self.of("vm", group.vm or "") or None,
        )

    def _holder(self, holder: Holder) -> Holder:
        group = self._cgroup(cgroup(holder.cgroup, holder.guest))
        return Holder(
            pid=holder.pid,
            name=self.of("process", holder.name),
            user=min(holder.user, 1),
            netns=holder.netns,
            cgroup=f"0::/{group.unit}" if group.unit else "",
        )

    def _thread(self, thread: Thread) -> Thread:
        # The checks know vhost's threads and those of vCPUs by name.
        fixed = "vhost" if thread.vhost else "CPU 0/KVM" if VCPU.match(thread.name) else ""
        return replace(thread, name=fixed or self.of("thread", thread.name))

    def _system(self, system: System, devices: Iterable[Device]) -> System:
        waiting = [task.rpartition(" ") for task in system.waiting]
        return replace(
            system,
            kernels=[
                replace(kernel, why_not=self.text(kernel.why_not)) for kernel in system.kernels
            ],
            waiting=[f"{self.of('process', name)} {pid}" for name, _, pid in waiting],
            rules=self.rules(system.rules, devices),
            rules_unread=self.text(system.rules_unread),
            qdisc_rules=self.rules(system.qdisc_rules, devices),
            qdisc_rules_unread=self.text(system.qdisc_rules_unread),
        )
