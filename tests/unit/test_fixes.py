# SPDX-License-Identifier: GPL-2.0-only
"""The command lines that doctor prints, each as a whole: people run them as root."""

from __future__ import annotations

import pytest
from doctor_cases import CASES, load, verdict

FIXES: dict[str, list[str]] = {
    "driver-stock": ["nodrop install"],
    "module-old": [
        "# stop python3(64), and start it again at the end",
        "rmmod vhost_net tun nodrop",
        "modprobe tun",
    ],
    "default-off": ["nodrop enable --default"],
    "guard-off": ["echo 1000 >/sys/module/nodrop/parameters/guard_ms"],
    "livepatch-moving": ["# wait; when it takes minutes:", "nodrop uninstall --live"],
    "livepatch-and-package": [
        "# before anything unloads tun, and before its readers restart:",
        "nodrop uninstall --live",
    ],
    "vhost-driver": ["# stop the virtual machines", "modprobe -r vhost_net", "modprobe vhost_net"],
    "headers-missing": ["apt install linux-headers-7.3.4"],
    "source-mismatch": [
        "apt update",
        "apt install linux-headers-amd64 linux-image-amd64 linux-source-7.3",
        "# reboot, then: nodrop install",
    ],
    "not-built": ["dkms autoinstall -k 7.3.4", "# what went wrong: /var/log/nodrop/7.3.4.log"],
    "kernel-pending": ["nodrop install", "reboot"],
    "container-rights": [
        "# on the host, with the pid of a process of the container:",
        "nodrop doctor -n PID",
        "# or give it the right: docker run --cap-add=NET_ADMIN",
    ],
    "default-qdisc": [
        "sysctl -w net.core.default_qdisc=fq_codel",
        "echo net.core.default_qdisc=fq_codel >/etc/sysctl.d/90-qdisc.conf",
    ],
    "ring-drops": ["nodrop install"],
    "ring-dropped": ["ethtool -S ndtest0"],
    "no-ring": ["ip link set dev ndtest0 txqueuelen 500"],
    "big-ring": ["nodrop install", "ip link set dev ndtest0 txqueuelen 500"],
    "vhost-stock": [
        "# stop python3(64)",
        "modprobe -r vhost_net",
        "modprobe vhost_net",
        "# start python3(64) again",
    ],
    "ring-foreign": ["lsmod | grep -w tun"],
    "upstream-flag": ["tc qdisc replace dev ndtest0 root fq_codel"],
    "nodrop-off": ["nodrop enable ndtest0"],
    "rx-drops": ["ip -s -s link show dev ndtest0", "nstat -az 'TcpExt*Drop*'"],
    "offloads": ["# versions from March 2023 on take large packets: bring it up to date"],
    "noqueue": ["tc qdisc replace dev ndtest0 root fq_codel"],
    "bufferbloat": ["tc qdisc replace dev ndtest0 root fq_codel"],
    "qdisc-drops": ["tc qdisc replace dev ndtest0 root fq_codel"],
    "no-reader": ["# start the program that reads it, or:", "ip link set dev ndtest0 down"],
    "reader-stuck": [
        "cat /proc/64/status /proc/64/wchan",
        "# a stopped process: kill -CONT PID; one that hangs: restart it",
    ],
    "guard-tripped": [
        "# a reader that may pause for longer (a VM that is suspended) needs a longer guard:",
        "echo 5000 >/sys/module/nodrop/parameters/guard_ms",
    ],
    "reader-starved": [
        "chrt --other --pid 0 226",
        "renice -n -5 -p 226",
        "# or give it a CPU of its own: taskset -cp N 226",
    ],
    "reader-saturated": [
        "# cheaper work for each packet (cipher, offloads, a larger MTU), or more queues"
    ],
    "single-queue": ["# python3 may have an option for it"],
    "tunnel-drops": ["ip -s -s link show dev ndtest0"],
    "tunnel-mtu": ["ip link set dev ndtest0 mtu 1450"],
    "tunnel-qdisc-drops": ["tc qdisc replace dev ndtest0 root fq_codel"],
}


@pytest.mark.parametrize("check", sorted(FIXES))
def test_fix(check: str) -> None:
    """Of the first case of test_doctor.py where the check finds something."""
    device, _, name, changes, _, _ = next(
        case for case in CASES if case[1] == check and case[4] in ("warn", "fail")
    )
    data = load(name)
    for change in changes:
        change(data)
    found = verdict(data, check, device)
    assert found
    assert list(found.fix) == FIXES[check]


def test_every_check_that_finds_something_is_here() -> None:
    assert {case[1] for case in CASES if case[4] in ("warn", "fail")} == set(FIXES)
