# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Which lines of the kernel's log mean that the kernel is broken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fairlane.vm.kernels import MODULES

BAD = re.compile(
    "|".join(
        (
            r"\bBUG: (?!KCSAN: )",
            r"\bWARNING: (CPU: \d|possible |suspicious |inconsistent |bad unlock|lock held|held lock|Nested lock)",
            r"\bkernel BUG at ",
            r"\bOops\b",
            r"\bKernel panic\b",
            r"\bgeneral protection fault\b",
            r"\bUnable to handle kernel\b",
            r"\b(invalid opcode|divide error|stack segment|double fault): ",
            r"\b(KASAN|KFENCE|UBSAN): ",
            r"\bINFO: (task .* blocked for more than|possible (circular|recursive)|inconsistent lock)",
            r"\bblocked for more than \d+ seconds\b",
            r"\brcu\w*: .*\b(detected (expedited )?stalls?|self-detected stall|kthread starved)",
            r"\b(soft lockup|hard LOCKUP)\b",
            r"\brefcount_t: ",
            r"\blist_(add|del) corruption\b",
            r"\b(scheduling while atomic|sleeping function called)\b",
            r"\bSlab corruption\b|\bObject already free\b|\bRedzone overwritten\b|\bPoison overwritten\b",
            r"\bDEADLOCK\b",
            r"\bfairlane: \S+: \S+ has failed: ",  # kernel/watchdog.c
            r"^unreferenced object 0x",  # kmemleak's, which guest.py puts at the end
        )
    )
)


def bad(lines: Iterable[str]) -> list[str]:
    """The lines that say BUG, WARNING (with a trace), oops, lockdep, hung task, stall or lock-up, in their order.

    A warning that is only a text, such as the one about a processor's mitigations, is not among them.
    """
    return [line.strip() for line in _but_races_of_linux(lines) if BAD.search(line) or RACE.search(line)]


RACE = re.compile(r"\bBUG: KCSAN: ")
RULE = re.compile(r"={60}\s*$")  # before and after a report
ACCESS = re.compile(r" of \d+ bytes by ")  # before the stack of each of the two
INTERRUPT = re.compile(r"\basm_(sysvec_\w+|common_interrupt)\+")  # frames below it were interrupted
OURS = re.compile(rf"\[({'|'.join(name.removesuffix('.ko').replace('-', '_') for name in MODULES)})\]\s*$")


def _but_races_of_linux(lines: Iterable[str]) -> Iterator[str]:
    """All lines but the titles of KCSAN's reports in which no code of ours is on either stack.

    Linux has many that its authors know of and mean to keep; KCSAN_STRICT reports them all. A race between Linux and
    us has a frame of ours.
    """
    report: list[str] = []
    for line in lines:
        if report or RACE.search(line):
            report.append(line)
            if RULE.search(line):
                yield from _judged(report)
                report = []
        else:
            yield line
    yield from _judged(report)


# Linux' own, also where code of ours is further up a stack: nothing of ours is read or written. The two functions, and
# why it is none.
KNOWN = {
    "aio_complete / aio_read_events": "a ring's head, which user space writes, too; who completes reads it as a hint",
    "process_one_work / try_to_grab_pending": "a work's bits: it is taken only if they are changed atomically",
    "__blk_mq_end_request / __submit_bio": "an interrupt reads current->plug, and uses it only when it is none",
    "__mod_timer / blk_add_timer": "when a queue's timer ends: who starts a request asks first, and then locks",
    "blk_mq_delay_run_hw_queue / blk_mq_delay_run_hw_queue": "which CPU runs a queue next, of those that may",
    "wbt_issue / wbt_issue": "which of the reads wbt times next: it compares its address, and does not follow it",
    "bio_alloc_bioset / bio_put": "a CPU's count of the bios that it keeps; an interrupt asks if it is about full",
}


def _judged(report: list[str]) -> list[str]:
    """The report without its title, unless it is ours: what another CPU said in the midst of it counts."""
    known = tuple(f" in {pair}" for pair in KNOWN)
    ours = any(OURS.search(line) for line in _taking_part(report)) and not report[0].rstrip().endswith(known)
    return report if ours else report[1:]


def _taking_part(report: list[str]) -> Iterator[str]:
    """All lines but the frames that were interrupted: what is read or written is so in the interrupt, above them."""
    interrupted = False
    for line in report:
        interrupted = not ACCESS.search(line) and (interrupted or bool(INTERRUPT.search(line)))
        if not interrupted:
            yield line
