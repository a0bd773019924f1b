# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The backends that there are, and how --on names one."""

from __future__ import annotations

from fairlane.backends.host import Host
from fairlane.backends.job import Backend, Options
from fairlane.backends.sim import Simulator
from fairlane.backends.vm import Vm
from fairlane.errors import FairlaneError
from fairlane.places import INSTALLED, SIMULATOR_ONLY

TABLE: dict[str, type[Backend]] = {backend.name: backend for backend in (Vm, Host, Simulator)}
OPTIONS = {
    "kernel": "--kernel chooses the VM's kernel",
    "destroy_data": "--destroy-data is about a real drive",
    "cluster": "--cluster is where simulated runs are computed",
}


def named(on: str, options: Options | None = None, *, drive: bool = False) -> Backend:
    """The backend that --on names: NAME, or NAME:PLACE. drive: PLACE is a drive wherever there are several."""
    name, colon, place = on.partition(":")
    backend = TABLE.get(name)
    if backend is None or not (bool(place) if colon else backend.bare):
        raise _unknown(on)
    if colon and not (backend.placed or drive):
        raise _unknown(on)
    if INSTALLED and backend is Vm:
        raise FairlaneError(f"--on {on}: {SIMULATOR_ONLY}")
    asked = options or Options()
    for option, about in OPTIONS.items():
        if getattr(asked, option) and option not in backend.options:
            raise FairlaneError(f"{about}; it has no effect with --on {on}")
    return backend(place or None, asked)


def _unknown(on: str) -> FairlaneError:
    *most, last = (backend.usage for backend in TABLE.values())
    return FairlaneError(f"--on {on}: unknown backend; valid are {', '.join(most)}, and {last}")
