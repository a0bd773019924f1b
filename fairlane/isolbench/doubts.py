# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What whoever reads the suite's verdict must know of it, in sentences: what is doubtful, and what was not judged."""

from __future__ import annotations

from statistics import median

from fairlane.backends.measuring import ELSEWHERE, NONE_OF_SETTING, busy
from fairlane.experiment.figures import share_error
from fairlane.experiment.results import Run, disturbed
from fairlane.isolbench import limit
from fairlane.isolbench.suite import BASELINE, PARTS, PRIO, Unit
from fairlane.isolbench.suite_figures import MARGIN, TAIL_NOISE, Evidence
from fairlane.linux.knobs import TABLE

FEW = 200  # requests, of which the second longest is the P99
TOO_MUCH = 1.25  # no knob makes a drive do that much more of the same requests than under none


def warnings(e: Evidence) -> list[str]:
    """What makes the verdict doubtful."""
    found: dict[str, tuple[float, str]] = {}
    for each, unit in ((repeat, unit) for repeat in e.every for unit in repeat.units):
        run, base = each.run(unit.id), each.base(unit)
        alike = len({(t.rw, t.bs) for t in unit.scenario.tenants}) == 1
        if run is None or base is None or not alike or unit.experiment == "alone" or not base.total_bytes_per_s:
            continue
        ratio = run.total_bytes_per_s / base.total_bytes_per_s
        if ratio > max(TOO_MUCH, found.get(unit.place, (0.0, ""))[0]):
            found[unit.place] = (ratio, unit.knob)
    return [
        f"In {where}, {knob} moved {ratio:.1f} times what none did of the same requests, which no knob makes a"
        f" drive do: what is judged there is doubtful; delete units/{where.replace(' ', '-')}.* and run it again."
        for where, (ratio, knob) in found.items()
    ]


def notes(e: Evidence) -> list[str]:
    """What could not be judged, and why."""
    found = [
        f"In d3 {unit.experiment}, the tenant with priority is not seen to be {MARGIN:.0%} better off alone than"
        " under none, so there is nothing to gain and no figure."
        for unit, _ in e.of("d3", BASELINE)
        if e.run(unit.alone) and e.span(unit.experiment) is None
    ]
    if any(unit.alone and not unit.limit for unit in e.units if unit.part != limit.NAME):
        found.append("This run is of a version that did not measure the limit: d3 and d4 have no marks without it.")
    if noisy := {x: times for x, times in e.tail_noise().items() if times > TAIL_NOISE}:
        counts = " and ".join(f"{x:g}" for x in noisy)
        found.append(
            f"Under none itself, the P99 of {counts} latency-critical tenants differs up to {max(noisy.values()):.1f}"
            " times from repeat to repeat. That is the machine, so no knob is judged by its P99 there; the report has"
            " it with its spread."
        )
    for unit, run in e.of("d3", BASELINE):
        prio = next(tenant for tenant in run.tenants if tenant.name == PRIO)
        if unit.experiment.startswith("latency") and (count := prio.iops * run.seconds) < FEW:
            found.append(
                f"In d3 {unit.experiment}, the P99 of the tenant with priority under none is of {count:.0f} requests,"
                " and so nearer to the longest."
            )
    found += disturbed([run for each in e.results.values() for run in each.runs])
    for knob in e.knobs:
        found += [
            f"A burst of {burst.seconds:g} s of a {burst.experiment}-critical tenant is shorter than one of its"
            f" requests takes, and is not judged under {knob}."
            for burst in e.bursts(knob)
            if burst.response_s is None
        ]
        found += _set_elsewhere(e, knob)
        left_out = {unit.place: why for each in e.every for unit, why in each.left_out(knob)}
        found += [f"{knob} has no figures in {place}: {why}." for place, why in left_out.items()]
    return found


def complaints(e: Evidence) -> list[str]:
    """What the kernel complained of, and under which knob."""
    runs = [run for result in e.results.values() for run in result.runs]
    return [f"{run.knob}: {line}" for run in runs for line in run.bad_dmesg]


def _set_elsewhere(e: Evidence, knob: str) -> list[str]:
    """Where what the knob was set from does not hold: in what none did of the load, or in who got what."""
    totals: dict[str, float] = {}
    shares: dict[str, float] = {}
    for repeat in e.every:
        for unit, run in ((u, r) for part in PARTS for u, r in repeat.of(part, knob)):
            if (total := _none_of_setting(e, repeat, unit, run)) is None:
                continue
            if abs(total - 1) >= abs(totals.get(unit.place, 1) - 1):
                totals[unit.place] = total
            if unit.part == "d2":
                shares[unit.place] = max(_limited_error(run), shares.get(unit.place, 0))
    found = []
    if off := {place: total for place, total in totals.items() if abs(total - 1) > ELSEWHERE}:
        place = max(off, key=lambda place: abs(off[place] - 1))
        found.append(
            f"{knob} was set from a measurement that does not hold in {len(off)} of {len(totals)} experiments: in"
            f" {place}, none did {off[place]:.2f} times what it was set for."
        )
    if off := {place: error for place, error in shares.items() if error > ELSEWHERE}:
        place = max(off, key=off.__getitem__)
        found.append(
            f"{knob} was set to hold shares, and did not in {len(off)} of {len(shares)} experiments of d2: in"
            f" {place}, what it let a tenant have was {off[place]:.0%} off."
        )
    return found


def _none_of_setting(e: Evidence, repeat: Evidence, unit: Unit, run: Run) -> float | None:
    """What none did of the load, relative to what the knob was set for; None: that is not known.

    What is set from a run of none itself is beside what none did in all repeats.
    """
    if (counted := run.counters.get(NONE_OF_SETTING)) is not None:
        return float(counted)
    base, tenants = repeat.base(unit), unit.scenario.tenants
    if "bytes_per_s" not in TABLE[unit.knob].needs or unit.tuning.slack or unit.tuning.idle:
        return None
    if base is None or not base.total_bytes_per_s or busy(unit.scenario).tenants != tenants:
        return None
    usual = [none.total_bytes_per_s for each in e.every if (none := each.base(unit)) is not None]
    return median(usual) / base.total_bytes_per_s if len(usual) > 2 else None


def _limited_error(run: Run) -> float:
    """How far a tenant is from its share of what the knob limits: the time that io.cost charges, or bytes."""
    charged = run.counters.get("io.cost", {}).get("usage_us")
    got = charged or {tenant.name: tenant.bytes_per_s for tenant in run.tenants}
    return share_error(got, {tenant.name: tenant.share for tenant in run.tenants}) or 0.0
