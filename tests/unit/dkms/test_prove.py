# SPDX-License-Identifier: GPL-2.0-only
"""dkms/prove on small programs: those that it accepts, and its reasons to refuse others."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from script import load

DKMS = Path(__file__).resolve().parents[3] / "dkms"

DRIVER = """
struct ptr_ring { int n; };
extern int slow(int);
static inline int __ptr_ring_produce(struct ptr_ring *r, int x) { r->n += slow(x); return x; }
static inline int ptr_ring_init(struct ptr_ring *r) { return r->n = slow(0); }
static __attribute__((noinline)) int xmit(struct ptr_ring *r, int x)
{
	extern int declared_inside(int);
	return __ptr_ring_produce(r, x) + declared_inside(x);
}
static __attribute__((noinline)) int open_ring(struct ptr_ring *r) { return ptr_ring_init(r); }
int (*volatile ops[])(struct ptr_ring *) = { open_ring };
int entry(struct ptr_ring *r, int x) { return xmit(r, x) * slow(xmit(r, x + 1)); }
"""


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("prove", monkeypatch, DKMS)


def build(folder: Path, text: str, name: str = "tun.ko", *options: str) -> Path:
    """Compile a driver with the kernel's options."""
    source, made = folder / "driver.c", folder / name
    source.write_text(text)
    command = ["gcc", "-O2", "-g", "-fno-ipa-sra", "-mcmodel=kernel", "-fno-pic", *options]
    subprocess.run([*command, "-c", source, "-o", made], check=True)
    return made


TAKEN = DRIVER.replace("return r->n = slow(0)", "return __ptr_ring_produce(r, 0)").replace(
    "ptr_ring_init(r)", "__ptr_ring_produce(r, 1)"
)
"""A driver that takes the address of a function that accesses the ring."""
OWN = "extern int __this_module; int put(int *); int f(void) { return put(&__this_module); }"
TIMER = """
extern void set_timer(void (*call)(int));
static __attribute__((noinline)) void expired(int x) { set_timer((void (*)(int))(long)x); }
void start(int x) { set_timer(expired); }
"""


def test_inlined_access_is_found(prove: ModuleType, tmp_path: Path) -> None:
    found = prove.reaches(build(tmp_path, DRIVER))
    assert found == {"xmit": {"__ptr_ring_produce"}, "open_ring": {"ptr_ring_init"}}


@pytest.mark.parametrize(
    ("driver", "replaced", "why"),
    [
        (DRIVER, {"xmit"}, None),
        (DRIVER, {"entry"}, None),  # callers are enough
        (DRIVER, {"open_ring"}, r"xmit\(\)"),
        (DRIVER, {"xmit", "tun_do_read"}, "tun_do_read"),
        (TAKEN, {"xmit"}, r"open_ring\(\)"),
    ],
)
def test_all_ring_users_are_replaced(
    prove: ModuleType, tmp_path: Path, driver: str, replaced: set[str], why: str | None
) -> None:
    made = build(tmp_path, driver)
    if why is None:
        prove.replaceable(made, replaced)
    else:
        with pytest.raises(prove.Refusal, match=why):
            prove.replaceable(made, replaced)


def same(prove: ModuleType, folder: Path, what: str, driver: str, twin: str) -> bool:
    """Return whether two drivers are found equal; what: "same" or "code"."""
    for place, text in (("dist", driver), ("twin", twin)):
        (folder / place).mkdir(exist_ok=True)
        build(folder / place, text)
    status: int = prove.main([what, str(folder), "tun"])
    return status == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("x + 1", "x + 2"),
        ("slow(0)", "declared_inside(0)"),
        ("open_ring }", "0 }"),
        ("{ open_ring", "{ open_ring, open_ring"),
    ],
)
def test_other_source_differs(prove: ModuleType, tmp_path: Path, old: str, new: str) -> None:
    """Changed data do not count as code."""
    driver = DRIVER.replace("extern int slow", "extern int declared_inside(int);\nextern int slow")
    changed = driver.replace(old, new, 1)
    assert same(prove, tmp_path, "same", driver, changed) == (old == new)
    assert same(prove, tmp_path, "code", driver, changed) == (old in (new, "{ open_ring"))


@pytest.mark.parametrize(("driver", "why"), [(DRIVER, "ops"), (OWN, None), (TIMER, r"expired\(\)")])
def test_forbidden_contents_of_a_patch(
    prove: ModuleType, tmp_path: Path, driver: str, why: str | None
) -> None:
    """The driver's data, its module, or an address that outlives the patch."""
    with pytest.raises(prove.Refusal, match=why):
        prove.clean(build(tmp_path, driver))
    prove.clean(build(tmp_path, "int f(int x) { return x + 1; }"))


def test_build_id(prove: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = build(tmp_path, "int main(void) { return 0; }", "m.o", "-mcmodel=small")
    (tmp_path / "dist").mkdir()
    made = tmp_path / "dist/tun.ko"
    subprocess.run(["gcc", "-no-pie", "-Wl,--build-id=sha1", program, "-o", made], check=True)
    (tmp_path / "dist/vhost_net.ko").write_bytes(made.read_bytes())
    prove.print_ids(tmp_path)
    text = capsys.readouterr().out
    assert f"0x{prove.build_id(made)[:2]}, " in text
    assert text.count("_ID { 0x") == 2


def test_kernel_with_flow_control_is_refused(prove: ModuleType, tmp_path: Path) -> None:
    twin = tmp_path / "twin/tun.c"
    twin.parent.mkdir()
    (tmp_path / "dist").mkdir()
    made = build(tmp_path, DRIVER, "m.o")
    for name in ("tun", "vhost_net"):
        linked = tmp_path / f"dist/{name}.ko"
        subprocess.run(["ld", "-r", "--build-id=sha1", made, "-o", linked], check=True)
    for text, status in (("if (tun->flags & IFF_BACKPRESSURE)", 1), ("/* drops */", 0)):
        twin.write_text(text)
        assert prove.main(["ids", str(tmp_path)]) == status
