# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The host's half of the VM backend, with a program of ours in the place of the VM's."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.vm import dmesg, guest, others, qemu, tsc
from fairlane.vm.guest import STATUS, UP
from fairlane.vm.kernels import Kernel

KERNEL = Kernel("6.1.0-1-amd64", Path("/nowhere"))


@pytest.fixture
def fake_vm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder to share with a `virtme-run` that is a shell script in that folder."""
    monkeypatch.setenv("FAIRLANE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(qemu, "_env", lambda: {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    return tmp_path


def script(folder: Path, text: str) -> None:
    path = folder / "virtme-run"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def start(folder: Path, timeout_s: float = 30, boot_s: float = 30, accelerator: str = "tcg") -> qemu.Finished:
    return qemu.run(["x"], KERNEL, folder, timeout_s=timeout_s, boot_s=boot_s, accelerator=accelerator)


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that was killed takes a moment for it on a busy machine."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{path} did not come")


@pytest.mark.parametrize(("accelerator", "offered"), [("tcg", False), ("kvm", True)])
def test_no_cpu_that_is_emulated_has_the_instruction_that_qemu_gets_wrong(
    fake_vm: Path, accelerator: str, offered: bool
) -> None:
    # Found as "Oops: double fault" in kmem_cache_alloc(), one boot in hundreds, with a pointer's low half as EFLAGS.
    script(fake_vm, f'echo \'{UP}\'; echo "$@"; echo \'{{"status": 0, "bad_dmesg": []}}\' > {fake_vm}/{STATUS}')
    said: list[str] = []
    qemu.run(["x"], KERNEL, fake_vm, timeout_s=30, accelerator=accelerator, on_line=said.append)
    assert ("--qemu-opts -cpu max,-cx16" not in said[0]) == offered


def test_status_lines_and_console_come_out(fake_vm: Path) -> None:
    status = json.dumps({"status": 3, "bad_dmesg": ["BUG: x"]})
    script(fake_vm, f"echo boots >&2; echo '{UP}'; echo one; echo two; echo '{status}' > {fake_vm}/{STATUS}")
    said: list[str] = []
    done = qemu.run(["x"], KERNEL, fake_vm, timeout_s=30, accelerator="tcg", on_line=said.append)
    assert said == ["one", "two"]
    assert (done.status, done.bad_dmesg) == (3, ["BUG: x"])
    assert "boots" in done.console
    assert not (fake_vm / STATUS).exists()


def test_a_status_of_an_earlier_run_does_not_count(fake_vm: Path) -> None:
    (fake_vm / STATUS).write_text(json.dumps({"status": 0, "bad_dmesg": []}))
    script(fake_vm, f"echo '{UP}'")
    with pytest.raises(qemu.VmError, match="died half way"):
        start(fake_vm)


def test_boot_failure_shows_the_last_lines_and_the_reason(fake_vm: Path) -> None:
    lines = "; ".join(f"echo line {i} >&2" for i in range(60))
    script(fake_vm, f"echo 'Kernel panic - not syncing: no root' >&2; {lines}; exit 1")
    with pytest.raises(qemu.VmError, match="did not boot") as error:
        start(fake_vm)
    assert "Kernel panic - not syncing: no root" in str(error.value)
    assert "line 59" in str(error.value)
    assert "line 9\n" not in str(error.value)


def test_boot_that_hangs_ends_at_its_limit(fake_vm: Path) -> None:
    script(fake_vm, f"echo $$ > {fake_vm}/pid; echo boots >&2; sleep 600")
    with pytest.raises(qemu.VmError, match=r"did not boot in time(.|\n)*boots"):
        start(fake_vm, boot_s=0.5)
    assert is_gone(int((fake_vm / "pid").read_text()))


def test_a_program_that_hangs_is_found_long_before_all_could_be_done(fake_vm: Path) -> None:
    # A bench of two hours has a limit of six; a guest that hung in its first minute was waited for as long.
    script(fake_vm, f"echo '{UP}'; echo one; while :; do echo 'INFO: task fio blocked' >&2; sleep 0.2; done")
    with pytest.raises(qemu.VmError, match=r"said nothing for 2 s(.|\n)*one"):
        qemu.run(["x"], KERNEL, fake_vm, timeout_s=600, pause_s=2, accelerator="tcg")


@pytest.mark.parametrize("ends", ["sleep 600", "echo 'Kernel panic - not syncing: int3' >&2; exit 1"])
def test_a_boot_that_hangs_or_dies_once_is_tried_again(fake_vm: Path, ends: str) -> None:
    status = json.dumps({"status": 0, "bad_dmesg": []})
    first = f"[ -e {fake_vm}/tried ] || {{ touch {fake_vm}/tried; {ends}; }}"
    script(fake_vm, f"{first}; echo '{UP}'; echo '{status}' > {fake_vm}/{STATUS}")
    assert start(fake_vm, boot_s=0.5).status == 0


def test_the_kernel_has_patched_kmalloc_before_its_boot_counts_as_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Linux does so at the first cgroup with memory's controller, and QEMU 7.2 once broke it half a run later."""
    done = []
    control = tmp_path / "cgroup.subtree_control"
    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(guest, "CGROUPS", tmp_path)
    monkeypatch.setattr(guest, "use_ports", lambda: None)
    monkeypatch.setattr(guest, "prepare", lambda _modules: done.append("prepared"))
    for name in ("kernel_log", "blind", "leaks"):
        monkeypatch.setattr(guest, name, list)
    mkdir = Path.mkdir

    def noted(path: Path) -> None:
        done.append(control.read_text())
        mkdir(path)

    monkeypatch.setattr(Path, "mkdir", noted)
    monkeypatch.setattr("builtins.print", lambda *said, **_how: done.extend(said))
    assert guest.wrap(tmp_path, None, ["true"]) == 0
    assert done == ["+io +cpu +memory\n", UP, "prepared"]
    assert "memory" not in control.read_text().replace("-memory", "")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_udev_is_stopped_though_it_comes_after_us(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    control, stopped = tmp_path / "control", list[str]()
    monkeypatch.setattr(guest, "UDEV", control)
    monkeypatch.setattr(guest, "UDEVD", (tmp_path,))  # it is installed
    monkeypatch.setattr(time, "sleep", lambda _s: control.touch())  # and comes while we wait
    monkeypatch.setattr(proc, "output", lambda argv, **_how: stopped.append(argv[0]))
    monkeypatch.setenv("DM_DISABLE_UDEV", "")
    guest.stop_udev()
    assert stopped == ["udevadm"] and not control.exists()


def test_the_limit_of_the_run_counts_from_the_boot_on(fake_vm: Path) -> None:
    script(fake_vm, f"sleep 1; echo '{UP}'; sleep 600")
    before = time.monotonic()
    with pytest.raises(qemu.VmError, match="was not done in time"):
        start(fake_vm, timeout_s=0.5)
    assert 1.5 <= time.monotonic() - before < 60


def test_what_ignores_sigterm_is_killed_with_its_children(fake_vm: Path) -> None:
    script(fake_vm, f"trap '' TERM; sleep 600 & echo $! > {fake_vm}/pid; while :; do sleep 600; done")
    with pytest.raises(qemu.VmError):
        start(fake_vm, boot_s=0.5)
    assert is_gone(int((fake_vm / "pid").read_text()))


def test_kvm_that_says_nothing_is_given_up_and_remembered(fake_vm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "SILENT_S", 0.3)
    monkeypatch.setattr(os, "access", lambda *_args: True)
    script(fake_vm, f"echo $$ >> {fake_vm}/tried; sleep 600")
    assert qemu.known_accel() is None
    before = time.monotonic()
    assert [qemu.accel(KERNEL) for _ in range(2)] == ["tcg", "tcg"]
    assert time.monotonic() - before < 60
    (pid,) = (fake_vm / "tried").read_text().split()
    assert is_gone(int(pid))
    monkeypatch.setattr(qemu, "_boot_id", lambda: "after the next start of this machine")
    assert qemu.known_accel() is None


def test_kvm_that_works_is_used(fake_vm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_args: True)
    monkeypatch.setattr(qemu, "_probe", lambda _kernel: "kvm")
    assert qemu.accel(KERNEL) == "kvm"
    assert qemu.known_accel() == "kvm"


def test_no_kvm_needs_no_probe(fake_vm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_args: False)
    assert qemu.accel(KERNEL) == "tcg"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_everything(fake_vm: Path, number: signal.Signals) -> None:
    script(fake_vm, f"sleep 600 & echo $! > {fake_vm}/pid; echo '{UP}'; wait")
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from fairlane.vm import qemu; from fairlane.vm.kernels import Kernel\n"
        # Both are ignored in the jobs that a shell runs in the background, or after nohup.
        "signal.signal(signal.SIGINT, signal.default_int_handler); signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "shared = Path(sys.argv[1]); qemu._env = lambda: {**os.environ, 'PATH': f'{shared}:' + os.environ['PATH']}\n"
        "qemu.run(['x'], Kernel('6.1.0-1-amd64', Path('/nowhere')), shared, timeout_s=600, accelerator='tcg')\n"
    )
    host = subprocess.Popen([sys.executable, "-c", program, str(fake_vm)], stderr=subprocess.DEVNULL)
    try:
        child = int(wait_for(fake_vm / "pid"))
        host.send_signal(number)
        status = host.wait(60)
    finally:
        host.kill()
    assert status == (-signal.SIGINT if number == signal.SIGINT else 128 + number)
    assert is_gone(child)


def test_a_signal_while_a_program_is_started_ends_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **how: Any) -> None:
            super().__init__(*args, **how)
            (tmp_path / "pid").write_text(str(self.pid))
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Late)
    with pytest.raises(proc.Terminated), proc.group(["sleep", "600"]):
        pass
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_a_folder_that_no_kernel_command_line_can_name_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    with pytest.raises(FairlaneError, match="space"):
        start(folder)


def test_an_nvme_drive_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRLANE_CACHE", str(tmp_path))
    with qemu.nvme_drive(1 << 40, 4) as (options, (fd,)):
        assert os.fstat(fd).st_size == 1 << 40
        assert f"/dev/fd/{fd}" in options[1]
        assert not list(tmp_path.iterdir())


def test_output_of_a_failed_program_is_in_the_message() -> None:
    with pytest.raises(FairlaneError, match=r"trying: sh failed \(exit status 7\)(.|\n)*why not"):
        proc.output(["sh", "-c", "echo why not; exit 7"], what="trying", limit_s=10)
    with pytest.raises(FairlaneError, match="did not end within 0 s"):
        proc.output(["sleep", "600"], what="trying", limit_s=0.2)
    with pytest.raises(FairlaneError, match="no-such-tool is not installed"):
        proc.output(["no-such-tool"], what="trying", limit_s=10)


def test_a_child_that_keeps_the_pipes_open_holds_nobody_up() -> None:
    before = time.monotonic()
    assert proc.output(["sh", "-c", "sleep 600 & echo done"], what="trying", limit_s=30) == "done"
    assert time.monotonic() - before < 60


BAD = """\
[   12.1] BUG: kernel NULL pointer dereference, address: 0000000000000008
[   12.1] WARNING: CPU: 1 PID: 312 at block/blk-mq.c:1041 blk_mq_start_request+0x10/0x20
[   12.1] Oops: 0002 [#1] PREEMPT SMP NOPTI
[   12.1] kernel BUG at mm/slub.c:435!
[   12.1] Kernel panic - not syncing: sysrq triggered crash
[   12.1] general protection fault, probably for non-canonical address 0xdead: 0000 [#1]
[   12.1] INFO: task fio:412 blocked for more than 30 seconds.
[   12.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[   12.1] rcu: INFO: rcu_preempt self-detected stall on CPU
[   12.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [fio:412]
[   12.1] WARNING: possible circular locking dependency detected
[   12.1] WARNING: suspicious RCU usage
[   12.1] WARNING: inconsistent lock state
[   12.1] BUG: scheduling while atomic: fio/412/0x00000002
[   12.1] BUG: KASAN: use-after-free in kyber_fairness_dispatch+0x1/0x2
[   12.1] refcount_t: underflow; use-after-free.
[   12.1] list_del corruption. prev->next should be ffff, but was 0
[   12.1] UBSAN: array-index-out-of-bounds in core.c:10:3
"""
GOOD = """\
[    0.0] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible
[    0.0] mtrr: your CPUs had inconsistent variable MTRR settings
[    1.1] fairlane: loading out-of-tree module taints kernel.
[    1.1] fairlane: module verification failed: signature and/or required key missing - tainting kernel
[    3.9] Invalid ELF header magic: != ELF
[    4.0] null_blk: disk fairlane created
[    4.1] I/O error, dev nullb0, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2
[    4.2] io scheduler kyber-fairness registered
[    5.0] sched: RT throttling activated
[    5.0] Warning: unable to open an initial console.
"""


def test_dmesg_is_told_apart() -> None:
    assert dmesg.bad(BAD.splitlines()) == BAD.splitlines()
    assert dmesg.bad(GOOD.splitlines()) == []


RACE = """\
[   12.1] ==================================================================
[   12.1] BUG: KCSAN: data-race in dequeue / enqueue
[   12.1] write to 0xffff888103f4c2a8 of 8 bytes by task 412 on cpu 1:
[   12.1]  enqueue+0x10/0x20{}
[   12.1]  blk_mq_submit_bio+0x10/0x20
[   12.1] read to 0xffff888103f4c2a8 of 8 bytes by interrupt on cpu 0:
[   12.1]  dequeue+0x10/0x20
[   12.1]{}
[   12.1] ==================================================================
"""


def test_a_data_race_counts_when_code_of_ours_has_part_in_it() -> None:
    ours = RACE.format(" [kyber_fairness]", "").splitlines()
    assert dmesg.bad(ours) == [ours[1]]
    assert dmesg.bad(RACE.format("", "").splitlines()) == [], "Linux knows of its own"
    assert dmesg.bad(RACE.format(" [null_blk]", "").splitlines()) == []
    known = RACE.replace("dequeue / enqueue", "bio_alloc_bioset / bio_put").format(" [kyber_fairness]", "")
    assert dmesg.bad(known.splitlines()) == [], "of which dmesg.py says why it is Linux' own"
    below = "\n[   12.1]  {}+0x10/0x20\n[   12.1]  fl_bio_merge+0x10/0x20 [kyber_fairness]"
    timer = below.format("asm_sysvec_apic_timer_interrupt")
    assert dmesg.bad(RACE.format(timer, timer).splitlines()) == [], "what an interrupt interrupts has no part in it"
    assert len(dmesg.bad(RACE.format(" [kyber_fairness]" + timer, timer).splitlines())) == 1, "its handler has"
    assert len(dmesg.bad(RACE.format(timer, below.format("blk_mq_submit_bio")).splitlines())) == 1, "the other one has"
    other = RACE.format("", " Oops: 0002 [#1]")
    assert len(dmesg.bad(other.splitlines())) == 1, "what another CPU says meanwhile"


def test_lost_memory_counts() -> None:
    assert dmesg.bad(["unreferenced object 0xffff888103f4c2a8 (size 64):", "  comm fio, pid 412"]) != []


def test_a_checker_that_did_not_look_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guest, "KCSAN", tmp_path / "kcsan")
    monkeypatch.setattr(guest, "LOCKDEP", tmp_path / "lockdep_stats")
    assert guest.blind() == [], "a kernel that has neither"
    guest.KCSAN.write_text("enabled: 1\nused_watchpoints: 0\nsetup_watchpoints: 15296\n")
    guest.LOCKDEP.write_text(" lock-classes: 900 [max: 8192]\n debug_locks:             1\n")
    assert guest.blind() == []
    guest.KCSAN.write_text("enabled: 0\nused_watchpoints: 0\nsetup_watchpoints: 0\n")
    guest.LOCKDEP.write_text(" lock-classes: 900 [max: 8192]\n debug_locks:             0\n")
    assert len(dmesg.bad(guest.blind())) == 2


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the time stamp counter is x86's")
def test_the_time_stamp_counter_is_measured_whatever_else_runs() -> None:
    found = set()
    for _ in range(5):
        tsc.khz.cache_clear()
        found.add(tsc.khz() or 0)
    assert min(found) > 100_000 and max(found) < 1.001 * min(found), found


def test_what_others_take_of_the_cpus_is_told_apart_from_what_we_do() -> None:
    busy = "import time; print(flush=True); until = time.monotonic() + 60\nwhile time.monotonic() < until: pass"

    def used(start: list[str]) -> float:
        """CPUs that others used, less what they used before, while a process that was started so is busy."""
        others_cpus = others.watch()
        time.sleep(1)
        before = others_cpus()
        with proc.group([*start, sys.executable, "-c", busy]) as process:
            assert process.stdout
            process.stdout.readline()
            others_cpus()
            time.sleep(1)
            return others_cpus() - before

    # Whose parent ends is nobody's child. Again if other things on this machine began or ended.
    orphan = ["sh", "-c", '"$@" & sleep 0.1', "sh"]
    assert any(used(orphan) - used([]) > 0.3 for _ in range(5))
