# SPDX-License-Identifier: GPL-2.0-only
"""The torture's plan, its processes and its judgement; the device is this machine's own tun."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from namespace import CLONE_NEWNET, LIBC, in_namespace

from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError
from nodrop.guest.rtnetlink import Rtnetlink
from nodrop.guest.sweep import uring
from nodrop.guest.torture import events
from nodrop.guest.torture.__main__ import parse
from nodrop.guest.torture.balance import Balance, Sums, pause
from nodrop.guest.torture.chaos import Chaos
from nodrop.guest.torture.crew import Asked, Crew, Job
from nodrop.guest.torture.plan import Event, Mode, Round, Shape, event_kinds, make_round, rounds
from nodrop.guest.torture.programs import read
from nodrop.guest.torture.result import Result
from nodrop.guest.torture.run import Settings, Torture, replay
from nodrop.guest.torture.senders import Sender, Target, send
from nodrop.guest.torture.shared import Field, Memory
from nodrop.guest.torture.tools import Tools
from nodrop.guest.torture.victim import NAME, Victim

FEW_ROUNDS = [make_round(7, number) for number in range(300)]


def test_a_seed_gives_the_same_events_again() -> None:
    sequence = rounds(7)
    assert [next(sequence) for _ in range(5)] == FEW_ROUNDS[:5]
    assert next(rounds(7, 123)) == FEW_ROUNDS[123]
    assert make_round(8, 0) != FEW_ROUNDS[0]


def test_events_are_numbered_through_all_rounds() -> None:
    numbers = [event.number for plan in FEW_ROUNDS for bout in plan.bouts for event in bout]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_event_can_happen_and_does() -> None:
    planned = {event.kind for plan in FEW_ROUNDS for bout in plan.bouts for event in bout}
    known = {
        kind
        for mode in Mode
        for shape in Shape
        for kind in event_kinds(mode, shape, ("vhost",), (), "")
    } | set(event_kinds(Mode.STEADY, Shape.TUN_QUEUES, (), (), ""))
    assert planned == known
    assert all(callable(getattr(events.Events, f"_{kind}")) for kind in planned)


def test_modes_allow_what_they_say() -> None:
    drops = {"txqueuelen", "down", "qdisc", "noqueue", "flag", "filter", "rebirth", "gone"}
    for shape in Shape:
        for readers in ((), ("vhost",)):
            assert not drops & set(event_kinds(Mode.STEADY, shape, readers, (), ""))
            assert not {"noqueue", "flag", "default", "gone"} & set(
                event_kinds(Mode.HELD, shape, readers, (), "")
            )


def test_pktgen_and_a_device_that_goes_do_not_meet() -> None:
    for plan in FEW_ROUNDS:
        kinds = {event.kind for bout in plan.bouts for event in bout}
        if plan.pktgen:
            assert plan.shape.tap
            assert not kinds & {"rebirth", "namespace", "down", "carrier"}
        if plan.mode is Mode.REBIRTH:
            assert "kill" not in kinds


def test_nobody_sends_past_the_qdisc_of_a_device_that_goes() -> None:
    rebirths = [plan for plan in FEW_ROUNDS if plan.mode is Mode.REBIRTH]
    assert rebirths
    assert not any("bypass" in plan.senders for plan in rebirths)


def test_replay_names_what_the_plan_depends_on() -> None:
    words = ["--seed", "5", "--mode", "steady,held", "--flood", "--seconds", "3"]
    settings = parse(words)
    assert settings.calmer == 10
    assert parse([*words, "--calmer", "3"]).calmer == 3
    assert parse([]).calmer == 1
    result = Result(5, 0, "nodrop")
    result.round = make_round(5, 42)
    result.begins(result.round.bouts[0][2])
    again = parse(replay(settings, result).split()[3:])
    assert (again.seed, again.first_round, again.modes) == (5, 42, settings.modes)
    assert again.flood
    assert again.until == 42 * 160 + 3
    assert again.seconds > 10**6


class Nothing:
    """A device and an account that are not looked at."""

    queues: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: None


class Harm(Chaos):
    """Events that leave something to be undone, and one that does not."""

    def _harm(self, _event: Event) -> Callable[[], None]:
        return lambda: None

    def _calm(self, _event: Event) -> None:
        pass


def test_it_is_calmer_only_while_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("nodrop.guest.torture.chaos.time.sleep", pauses.append)
    nothing: Any = Nothing()
    chaos = Harm(nothing, nothing, nothing, calmer=4)
    for number, kind in enumerate(("calm", "harm", "calm", "calm")):
        chaos.run(Event(number=number, kind=kind, value=1 << 40, span=1, gap_ms=1000))
    assert pauses == [4, 1, 1, 4]


def test_only_what_was_accounted_for_was_survived() -> None:
    result = Result(1, 0, "nodrop")
    first, second, *_ = make_round(1, 0).bouts[0]
    result.happened(first, frozenset({"poll", "vhost"}))
    assert not result.survived
    result.settled()
    result.happened(second, frozenset({"poll"}))
    assert sum(result.survived["poll"].values()) == 1
    assert result.survived["vhost"] == {first.kind: 1}


def test_what_did_nothing_and_what_only_looked_is_no_event_of_a_life() -> None:
    result = Result(1, 0, "nodrop")
    for number, kind in enumerate(("xdp", "calm", "stats", "kill")):
        met = frozenset() if kind == "xdp" else frozenset({"poll"})
        result.happened(Event(number=number, kind=kind, value=0, span=0, gap_ms=0), met)
    result.settled()
    told = result.to_json()
    assert (told["events"], told["events_idle"]) == (1, {"xdp": 1})
    assert told["survived"] == {"poll": {"calm": 1, "kill": 1, "stats": 1}}


def count(memory: Memory, slot: int, asked: Asked, files: list[int], text: bytes) -> None:
    while not asked.stop:
        memory.add(slot, Field.COUNT)
        os.write(files[0], text)
        time.sleep(0.001)


def fail(*_: object) -> None:
    raise OSError(5, "no such luck")


def wait_for(job: Job, packets: int) -> None:
    while job.get(Field.COUNT) < packets:
        time.sleep(0.001)


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew({"count": count, "fail": fail})
    yield crew
    crew.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_worker_does_one_job_after_another(crew: Crew, pipe: tuple[int, int]) -> None:
    for text in (b"a", b"b"):
        job = crew.begin("count", (text,), [pipe[1]])
        wait_for(job, 3)
        job.stop()
        seen = job.get(Field.COUNT)
        assert os.read(pipe[0], 4096) == text * seen
        job.release()
    crew.fill(1)
    assert len(crew._idle) == 1, "a second one was made"


def test_counts_survive_a_kill(crew: Crew, pipe: tuple[int, int]) -> None:
    job = crew.begin("count", (b"a",), [pipe[1]])
    wait_for(job, 3)
    job.signal(signal.SIGSTOP)
    assert job.where()[0] in "RST"
    job.kill()
    assert job.where() == "gone"
    seen = job.get(Field.COUNT)
    time.sleep(0.01)
    assert job.get(Field.COUNT) == seen >= 3
    job.stop()
    job.release()


def test_a_job_that_fails_is_noticed(crew: Crew, capfd: pytest.CaptureFixture[str]) -> None:
    job = crew.begin("fail", ())
    with pytest.raises(GuestError, match="wait status"):
        job.stop()
    assert "no such luck" in capfd.readouterr().err


def test_uring_reads_and_cancels() -> None:
    if not uring.available():
        pytest.skip("no io_uring here")
    reader, writer = os.pipe()
    buffers = [ctypes.create_string_buffer(16) for _ in range(2)]
    with uring.Uring(4) as ring:
        for tag in range(2):
            ring.read(reader, ctypes.addressof(buffers[tag]), 16, tag)
        os.write(writer, b"first")
        assert ring.submit(1)
        ((tag, got),) = ring.answers()
        assert (got, buffers[tag].value) == (5, b"first")
        ring.cancel_all()
        seen: dict[int, int] = {}
        while len(seen) < 2:
            ring.submit(1)
            seen |= dict(ring.answers())
        assert seen == {uring.CANCEL: 1, 1 - tag: -125}
    os.close(reader)
    os.close(writer)


@pytest.fixture
def tun() -> None:
    # To open /dev/net/tun could load a module.
    if not Path("/sys/class/misc/tun").exists() or not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("no tun here")


NATIVE: tuple[str, ...] = (
    "calm",
    "pause",
    "swap",
    "kill",
    "limit",
    "offload",
    "sndbuf",
    "stats",
    "write",
    "detach",
)
NATIVE += ("close", "txqueuelen", "down", "carrier", "namespace", "rebirth")


NOWHERE = Environment(Path(), Path(), Path())


def two_namespaces() -> tuple[int, int]:
    """Files that stand for the caller's network namespace and for another one."""
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    assert LIBC.unshare(CLONE_NEWNET) == 0
    away = os.open("/proc/self/ns/net", os.O_RDONLY)
    assert LIBC.setns(here, CLONE_NEWNET) == 0
    return here, away


@contextmanager
def own_tools() -> Iterator[Tools]:
    here, away = two_namespaces()
    crew = Crew({"send": send, "read": read})
    with Rtnetlink() as net, Rtnetlink(Path(f"/proc/self/fd/{away}")) as other:
        yield Tools(
            crew=crew,
            environment=NOWHERE,
            net=net,
            away=other,
            away_fd=away,
            here_fd=here,
            programs=None,  # type: ignore[arg-type]
            freed=lambda: 0,
            full=lambda: 0,
            uring=uring.available(),
        )
    crew.close()


def punish(plan: Round) -> None:
    """Run a round's events against this kernel's own tun; what it drops is not looked at."""
    with (
        own_tools() as tools,
        Victim(plan, tools.crew, tools.net, NOWHERE, uring=tools.uring) as victim,
    ):
        memory = tools.crew.memory
        memory.pause = True
        target = Target(NAME, plan.shape.tap, 2)
        senders = [Sender(tools.crew, kind, target) for kind in plan.senders]
        balance = Balance(plan, victim, senders, lambda: 0, lambda: 0)
        chaos = events.Events(victim, balance, tools)
        memory.pause = False
        for event in plan.bouts[0]:
            chaos.run(event)
        chaos.undo_all()
        balance.moves()
        memory.pause = True
        pause(senders)
        deadline = time.monotonic() + 60
        while balance.sums().held and time.monotonic() < deadline:
            time.sleep(0.01)
        found = balance.sums()
        assert found.held == 0, found
        assert found.delivered > 0, found
        # One may have begun with a packet that this driver dropped, and wait for a second.
        assert any(sender.job.get(Field.COUNT) for sender in senders), found
        for sender in senders:
            assert not sender.job.get(Field.WRONG), sender.kind
        for reader in victim.readers:
            assert not reader.check()
        for sender in senders:
            sender.job.stop()
            sender.job.release()


def one_round(shape: Shape, kinds: Iterable[str], senders: tuple[str, ...]) -> Round:
    chosen = [
        Event(number, kind, number * 0x1_0001_2345, number % 3, 0.5)
        for number, kind in enumerate(kinds, start=1)
    ]
    return replace(
        make_round(1, 0),
        mode=Mode.REBIRTH,
        shape=shape,
        ring=5,
        qdisc="pfifo 1000",
        readers=("blocking", "poll", "uring") if shape.several else ("uring",),
        senders=senders,
        pktgen="",
        bouts=(tuple(chosen),),
    )


@pytest.mark.parametrize("shape", list(Shape), ids=str)
@pytest.mark.usefixtures("tun")
def test_events_happen_to_this_kernels_tun(shape: Shape) -> None:
    kinds = [kind for kind in NATIVE if shape.several or kind != "detach"]
    in_namespace(lambda: punish(one_round(shape, kinds, ("udp", "packet", "bypass"))))


@pytest.mark.parametrize("shape", list(Shape), ids=str)
@pytest.mark.usefixtures("tun")
def test_tcp_comes_back_from_this_kernels_tun(shape: Shape) -> None:
    kinds = ("pause", "swap", "calm", "txqueuelen", "kill", "limit", "calm")
    in_namespace(lambda: punish(one_round(shape, kinds, ("tcp", "tcp"))))


def written(shape: Shape) -> None:
    plan = one_round(shape, (), ("udp",))
    with (
        own_tools() as tools,
        Victim(plan, tools.crew, tools.net, NOWHERE, uring=False) as victim,
    ):
        victim.write(5)
        assert tools.net.stats(victim.index).rx_packets == 5


@pytest.mark.parametrize("shape", [Shape.TUN, Shape.TAP], ids=str)
@pytest.mark.usefixtures("tun")
def test_packets_are_written(shape: Shape) -> None:
    in_namespace(lambda: written(shape))


def drained(balance: Balance) -> Sums:
    before, now = None, balance.sums()
    while now != before:
        time.sleep(0.1)
        before, now = now, balance.sums()
    return now


def two_rounds(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [one_round(shape, ("pause", "close", "calm", "swap"), ("udp",)) for _ in range(3)]
    monkeypatch.setattr("nodrop.guest.torture.run.rounds", lambda _seed, _first: iter(plans))
    # This driver drops, and nothing counts that here.
    monkeypatch.setattr(Balance, "settle", drained)
    monkeypatch.setattr(Sums, "balanced", True)
    kept: list[tuple[int, bool]] = []
    torture = Torture(
        Settings(seed=1, seconds=60, events=6),
        lambda _line: None,
        lambda result: kept.append((result.rounds, result.to_json()["ended"])),
    )
    with own_tools() as tools:
        torture._rounds(tools)
        free = len(tools.crew.memory._free)
    assert free == 255, "slots were not given back"
    assert kept == [(1, False), (2, False)]
    told = torture.result.to_json()
    assert told["violation"] == "", told
    assert (told["rounds"], told["events"]) == (2, 6)
    # This machine's IPv6 says something, too.
    read = told["packets"]["delivered"] + told["packets"]["frames"]
    assert read == sum(told["packets_by_reader"].values()) > 0
    assert sum(events.get("close", 0) for events in told["survived"].values()) == 2


@pytest.mark.parametrize("shape", [Shape.TUN, Shape.TAP_QUEUES], ids=str)
@pytest.mark.usefixtures("tun")
def test_rounds_run(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    in_namespace(lambda: two_rounds(shape, monkeypatch))
