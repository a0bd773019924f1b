# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What a worker of a cluster does when it is asked (cluster.py).

Nothing is raised here: when a traceback cannot be pickled, Dask's client does not take the exception either, and waits
for ever.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import distributed

from fairlane.backends import program
from fairlane.backends.program import Played

PROTOCOL = 2  # of what is said between here and cluster.py


def here() -> tuple[str, str] | str:
    """This worker's name, and its simulator; a sentence, if it has none."""
    try:
        return _name(), simulator()
    except Exception as error:
        return str(error) or type(error).__name__


def _name() -> str:
    worker = distributed.get_worker()
    return f"worker {worker.name} at {worker.address}"


@cache
def simulator() -> str:
    """What must be alike here and on a worker."""
    program.build()
    return f"{program.identity()}, protocol {PROTOCOL}"


_traces: dict[str, bytes] = {}  # that this worker has got


def keep(name: str, data: bytes) -> None:
    _traces[name] = data


def compute(wanted: str, given: Sequence[Mapping[str, Any]]) -> tuple[str, list[dict[str, Any] | str] | None]:
    """Run what is given, with traces that this worker has got under these names, by that simulator.

    This worker's address, and what was found. A sentence in the place of what this worker fails at; None if its
    simulator is another.
    """
    address = distributed.get_worker().address
    try:
        mine = simulator()
    except Exception as error:
        return address, [f"{_name()}: {str(error) or type(error).__name__}"] * len(given)
    return address, [_found(each) for each in given] if mine == wanted else None


def _found(given: Mapping[str, Any]) -> dict[str, Any] | str:
    try:
        return {**vars(_compute(given)), "where": _name()}
    except Exception as error:
        return f"{_name()}: {str(error) or type(error).__name__}"


def _compute(given: Mapping[str, Any]) -> Played:
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        tenants = []
        for tenant in given["tenants"]:
            if "trace" in tenant:
                file = Path(folder) / tenant["trace"]
                file.write_bytes(_traces[tenant["trace"]])
                tenants.append({**tenant, "trace": str(file)})
            else:
                tenants.append(tenant)
        return program.play({**given, "tenants": tenants}, Path(folder), "unit")
