# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A scenario's results in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlane.experiment.results import Outcome, Results
from fairlane.experiment.summary import BASELINE, OURS, Point, by_cost
from fairlane.formats import WITHIN, fmt_error, fmt_rate, percent_up


def _within(error: float) -> str:
    percent = percent_up(error)
    if percent <= WITHIN:
        return f"every tenant within {percent} % of its share"
    return f"a tenant is {fmt_error(error)} off its share"


def _claim(point: Point) -> str:
    parts = [] if point.share_error is None else [_within(point.share_error)]
    if point.vs_none is not None and point.knob != BASELINE:
        parts.append(f"at {point.vs_none:.2f} of none’s throughput")
    else:
        parts.append(f"at {fmt_rate(point.bytes_per_s)}")
    return ", ".join(parts)


def _aside(point: Point) -> str:
    """The same claim in few words, for what is put beside the headline."""
    error = point.share_error or 0
    percent = percent_up(error)
    cost = fmt_rate(point.bytes_per_s) if point.vs_none is None else f"{point.vs_none:.2f}"
    return f"{point.knob} {f'within {percent} %' if percent <= WITHIN else f'up to {fmt_error(error)} off'} at {cost}"


def _by_error(found: Iterable[Point]) -> list[Point]:
    return sorted((p for p in found if p.share_error is not None), key=lambda p: p.share_error or 0)


def _subject(found: Sequence[Point]) -> Point | None:
    """What the headline is about: our scheduler, or else the fairest knob; that, too, where shares are by cost."""
    ours = [p for p in found if p.knob == OURS and not by_cost(p.runs[0])]
    fairest = _by_error(p for p in found if p.knob != BASELINE)
    return next(iter([*ours, *fairest, *found]), None)


def judged(found: Results) -> str:
    """Where shares are judged, as a sentence; nothing when that is everywhere."""
    run = next(iter(found.runs), None)
    if run is None or run.parts is None:
        costs = run is not None and by_cost(run)
        return "Shares are those of what requests cost, by the drive's price list, not of bytes." if costs else ""
    if not run.parts:
        return (
            "Shares are not judged: the scenario expects none of them, since a tenant in it cannot, or may not, use all"
            " of its own (an [[expect]] on share_error or fairness_index says otherwise)."
        )
    spans = [f"{part.start:g} to {part.stop:g} s" for part in run.parts]
    return (
        f"Shares are judged in {len(spans)} part{'s' * (len(spans) > 1)} of the run ({', '.join(spans)}), as the"
        " scenario says: there, all active tenants can use theirs. The worst part counts."
    )


def checks(expects: Iterable[Outcome]) -> str:
    """How many of those that could be judged failed, as a sentence; nothing when there were none."""
    known = [outcome.ok for outcome in expects if outcome.ok is not None]
    if not known:
        return ""
    failed = known.count(False)
    checked = f"{len(known)} check{'s' * (len(known) > 1)}"
    return f"{failed} of {checked} failed." if failed else f"{checked}: none failed."


def headline(found: Sequence[Point]) -> tuple[str, str]:
    """The page's first sentence, and one that puts the others beside it; `found` is of one number of cgroups."""
    subject = _subject(found)
    if subject is None:
        return "No run in these results", ""
    where = f" with {subject.cgroups} cgroups" if subject.cgroups is not None and subject.cgroups > 1 else ""
    others = _by_error(p for p in found if p is not subject and p.knob != BASELINE)
    beside = [p for n, p in enumerate(others) if n < 2 or p.knob == "bfq"]
    parts = [", ".join(_aside(p) for p in beside)] if beside else []
    none = next((p for p in found if p.knob == BASELINE and p is not subject and p.share_error is not None), None)
    if none is not None:
        far = max(none.shares, key=lambda s: abs(s.error or 0))
        parts.append(f"none gives {far.name} {1 + (far.error or 0):.2f} times its share")
    return f"{subject.knob}{where}: {_claim(subject)}", f"Beside it: {'; '.join(parts)}." if parts else ""


def overall(all_points: Sequence[list[Point]]) -> str:
    """The headline over several results: the worst of our figures in any of them."""
    ours = [p for found in all_points for p in found if p.knob == OURS]
    if not ours:
        return f"{len(all_points)} results side by side"
    errors = [p.share_error for p in ours if p.share_error is not None]
    ratios = [p.vs_none for p in ours if p.vs_none is not None]
    left = len(ours) - len(errors)
    of = f" in {len(errors)} of {len(ours)}" if left else ""
    parts = [_within(max(errors)) + of] if errors else []
    parts += [f"at {min(ratios):.2f} of none’s throughput or more"] if ratios else []
    others = "none of them" if not errors else "the other" if left == 1 else f"the other {left}"
    unjudged = f"; shares are {'not ' * bool(errors)}judged in {others}" if left else ""
    return f"{OURS} in {len(ours)} results: {', '.join(parts) or 'nothing measured'}{unjudged}"
