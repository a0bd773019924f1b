# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Which lines of the kernel's log mean that the kernel is broken."""

from __future__ import annotations

import re
from collections.abc import Iterable

BAD = re.compile(
    "|".join(
        (
            r"\bBUG: ",
            r"\bWARNING: (CPU: \d|possible |suspicious |inconsistent |bad unlock|lock held|held lock|Nested lock)",
            r"\bkernel BUG at ",
            r"\bOops\b",
            r"\bKernel panic\b",
            r"\bgeneral protection fault\b",
            r"\bUnable to handle kernel\b",
            r"\b(invalid opcode|divide error|stack segment|double fault): ",
            r"\b(KASAN|KCSAN|KFENCE|UBSAN): ",
            r"\bINFO: (task .* blocked for more than|possible (circular|recursive)|inconsistent lock)",
            r"\bblocked for more than \d+ seconds\b",
            r"\brcu\w*: .*\b(detected (expedited )?stalls?|self-detected stall|kthread starved)",
            r"\b(soft lockup|hard LOCKUP)\b",
            r"\brefcount_t: ",
            r"\blist_(add|del) corruption\b",
            r"\b(scheduling while atomic|sleeping function called)\b",
            r"\bSlab corruption\b|\bObject already free\b|\bRedzone overwritten\b|\bPoison overwritten\b",
            r"\bDEADLOCK\b",
        )
    )
)


def bad(lines: Iterable[str]) -> list[str]:
    """The lines that say BUG, WARNING (with a trace), oops, lockdep, hung task, stall or lock-up, in their order.

    A warning that is only a text, such as the one about a processor's mitigations, is not among them.
    """
    return [line.strip() for line in lines if BAD.search(line)]
