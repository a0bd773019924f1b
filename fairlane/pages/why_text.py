# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What `fairlane why` says: what limits a cgroup on a drive, because of whom, and by what figures."""

from __future__ import annotations

from typing import Any

from fairlane.linux.contention import CPU, DRIVE, IDLE, ITSELF, SHARE, STARVED, Drive, Tenant
from fairlane.pages.top_screen import WORTH, ms, percent

NAMED = 3


def because_of(tenant: Tenant) -> str | None:
    """The other cgroup that it waits for most: here, or, if nobody holds it back, in the drive. None: nobody."""
    if tenant.limit not in (SHARE, DRIVE, STARVED):
        return None
    whom = tenant.waits_for if tenant.limit == SHARE else tenant.served
    return next((name for name, part in whom.items() if name != tenant.cgroup and part >= WORTH), None)


def data(drive: Drive, tenant: Tenant, name: str) -> dict[str, Any]:
    """As JSON; parts are of 1, times in us."""
    whom = because_of(tenant)
    other = next((each for each in drive.tenants if each.cgroup == whom), None)
    return {
        "drive": name,
        "seconds": round(drive.seconds, 3),
        "cgroup": tenant.cgroup,
        "limit": tenant.limit,
        "because_of": whom,
        "its_wanted": other.wanted if other else None,
        "its_got": other.got if other else None,
        **{
            key: getattr(tenant, key)
            for key in (
                *("wanted", "got", "waits", "waits_for", "served", "present", "pressed"),
                *("requests", "p50_us", "p99_us", "read_iops", "write_iops"),
            )
        },
        "sentence": sentence(tenant),
    }


def sentence(tenant: Tenant) -> str:
    """What limits it, in one."""
    me = tenant.cgroup
    if tenant.limit == IDLE:
        return f"{me} sent no request."
    if tenant.limit == STARVED:
        return (
            f"{me} is starved: it wants to send, and nothing of it was sent or done in all this time."
            f" What the drive did meanwhile is {_shares(tenant.served, me)}."
        )
    if tenant.limit == SHARE:
        return (
            f"{me} waits {percent(tenant.waits)} of the time that its requests take:"
            f" {_shares(tenant.waits_for, me)}. Its share limits it."
        )
    if tenant.limit == CPU:
        return f"{me} lacks CPU time: for {percent(tenant.pressed)} of the time its tasks wait for a CPU."
    if tenant.limit == ITSELF:
        return (
            f"{me} limits itself: it has {tenant.present:.2f} requests in the mean, so for"
            f" {percent(1 - tenant.present)} of the time or more it asks for nothing."
        )
    return (
        f"The drive limits {me}: its requests are there {percent(1 - (tenant.waits or 0))} of the time that they take."
        f" What the drive does meanwhile is {_shares(tenant.served, me)}."
    )


def evidence(drive: Drive, tenant: Tenant) -> list[str]:
    """The figures behind it, a line each."""
    lines = [
        f"{tenant.requests:,} requests in {drive.seconds:.1f} s: {tenant.read_iops:,.0f} reads/s and"
        f" {tenant.write_iops:,.0f} writes/s; p50 {ms(tenant.p50_us)} ms, p99 {ms(tenant.p99_us)} ms",
        f"it is due {percent(tenant.wanted)} of the drive and got {percent(tenant.got)}",
        f"{tenant.present:.1f} of its requests are waiting or in the drive, in the mean",
    ]
    whom = because_of(tenant)
    for other in drive.tenants:
        if other.cgroup == whom:
            lines.append(f"{whom} is due {percent(other.wanted)} and got {percent(other.got)}")
    if tenant.pressed >= WORTH:
        lines.append(f"its tasks lack a CPU for {percent(tenant.pressed)} of the time")
    return lines


def _shares(parts: dict[str, float], me: str) -> str:
    """Such as "27 % for backup.slice, 4 % for itself"."""
    worth = [(name, part) for name, part in parts.items() if part >= WORTH]
    said = [f"{percent(part)} for {'itself' if name == me else name}" for name, part in worth[:NAMED]]
    rest = sum(part for _, part in worth[NAMED:])
    return ", ".join([*said, f"{percent(rest)} for others"] if rest else said) or "nobody else"
