# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A real database beside fio: with equal weights both get as much, whatever they ask for (D2FQ, Fig. 18 and 19)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GuestRun = Callable[..., Any]  # see conftest.py


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("db_bench"), reason="no db_bench here; Debian's package rocksdb-tools has it")
@pytest.mark.parametrize(("workload", "kernel"), [("C", "6.1"), *((workload, "6.12") for workload in "BCE")])
def test_rocksdb_gets_as_much_as_fio(guest_run: GuestRun, workload: str, kernel: str) -> None:
    outcome = guest_run(Path(__file__).parent / "guest" / "rocksdb.py", workload, kernel=kernel, timeout_s=1200)
    print(outcome.check().stdout)
