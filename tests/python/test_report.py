# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The report says what the results say, in one file that needs nothing else, whatever the results hold."""

import copy
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane import formats
from fairlane.errors import FairlaneError
from fairlane.experiment import summary
from fairlane.experiment.results import Outcome, Part, Results, Run, Series, Tenant
from fairlane.linux import knobs
from fairlane.pages import headline, plot, scenario_page, template

VOID = {"meta", "br", "path"}


@pytest.fixture
def sample() -> Results:
    """Made-up figures: seven knobs, four tenants of weight 1000:500:250:100, 10 ms series."""
    return Results.load(Path(__file__).parent / "data" / "report_sample.json")


def results_of(totals: dict[str, tuple[float, ...]], weights: tuple[int, ...] = (1, 1)) -> Results:
    """Results with one run per knob, given the bytes per second of each tenant."""
    runs = [run_of(knob, rates, weights) for knob, rates in totals.items()]
    return Results(scenario="test", backend="vm", seed=1, version="0", runs=runs)


def run_of(knob: str, rates: tuple[float, ...], weights: tuple[int, ...], cgroups: int | None = None) -> Run:
    tenants = [
        Tenant(f"t{n}", w, w / sum(weights), rate, rate / 4096, rate, 0.0, lat_us={"p50": 10.0, "p99": 90.0})
        for n, (rate, w) in enumerate(zip(rates, weights, strict=True))
    ]
    point = None if cgroups is None else {"cgroups": cgroups}
    return Run(knob, 0, 1.0, tenants, sum(rates), sum(rates) / 4096, 1.0, 1000.0, point=point)


class Page(HTMLParser):
    """Checks that tags are balanced; collects the tags, the text and every address that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.text = ""  # a blank for every tag
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.text += " "
        self.tags.append(tag)
        self.fetched += [v or "" for k, v in attrs if k in {"src", "href", "data"} and not (v or "").startswith("#")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.text += " "
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.text += data


def text_of(*results: Results) -> str:
    return re.sub(r"\s+", " ", Page(scenario_page.render(results)).text)


def test_an_error_over_its_bound_does_not_look_as_if_it_were_not() -> None:
    assert formats.fmt_error(0.05) == "5.0 %" and formats.fmt_error(0.05042) == "5.1 %"
    assert formats.fmt_error(0.0995) == formats.fmt_error(0.09951) == "10 %" and formats.fmt_error(0.1001) == "11 %"
    assert formats.fmt_error(0.0) == formats.fmt_signed(0.0) == "0.0 %" and formats.fmt_signed(-0.0201) == "−2.1 %"


def test_the_page_is_one_small_file_that_fetches_nothing(sample: Results, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"
    scenario_page.write([sample], path)
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert page.fetched == []
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "url(" not in html and "@import" not in html and "http" not in html
    assert len(html) < 400_000


def test_headline_is_computed_from_the_figures(sample: Results) -> None:
    first, second = headline.headline(summary.points(sample))
    assert first == "kyber-fairness: every tenant within 1 % of its share, at 0.99 of none’s throughput"
    assert second == (
        "Beside it: io.max within 1 % at 0.91, io.cost up to 50 % off at 0.87, bfq up to 84 % off at 0.35; "
        "none gives tin 4.62 times its share."
    )
    assert first in text_of(sample)


def test_headline_never_rounds_in_our_favour() -> None:
    found = summary.points(results_of({"none": (50, 50), "kyber-fairness": (50.55, 49.45)}))
    assert headline.headline(found)[0].startswith("kyber-fairness: every tenant within 2 % of its share")


def test_headline_says_so_when_ours_is_unfair() -> None:
    found = summary.points(results_of({"none": (50, 50), "kyber-fairness": (72, 18)}))
    assert headline.headline(found)[0] == "kyber-fairness: a tenant is 60 % off its share, at 0.90 of none’s throughput"


def test_the_page_says_at_its_head_how_many_checks_failed(sample: Results) -> None:
    good, bad = Outcome("a", None, 1.0, "at most 2", True), Outcome("b", None, 3.0, "at most 2", False)
    not_run = Outcome("c", None, None, "at most 2", None)
    sample.expects = [good, not_run]
    assert "1 check: none failed. Each is further below" in text_of(sample)
    sample.expects = [good, bad, not_run]
    assert "1 of 2 checks failed." in text_of(sample)
    sample.expects = [not_run]
    assert headline.checks(sample.expects) == ""


def test_a_title_and_the_table_say_the_same() -> None:
    text = text_of(results_of({"none": (50, 50), "kyber-fairness": (50, 22.9)}))
    assert "kyber-fairness: a tenant is 38 % off its share" in text  # 37.2 % less than the half of the total
    assert "worst tenant off by 38 %" in text and "37 %" not in text


def test_where_a_tenant_cannot_use_its_share_none_is_judged() -> None:
    results = results_of({"none": (90, 10), "kyber-fairness": (90, 10)})
    for run in results.runs:
        run.parts = []
    assert headline.headline(summary.points(results)) == ("kyber-fairness: at 1.00 of none’s throughput", "")
    text = text_of(results)
    assert "Shares are not judged" in text and "off its share" not in text and "80 %" not in text


def test_shares_are_judged_part_by_part_and_the_worst_counts() -> None:
    results = results_of({"kyber-fairness": (55.0, 45.0)})
    (run,) = results.runs
    for tenant, moved in zip(run.tenants, ((60, 0, 50), (40, 100, 50)), strict=True):
        tenant.series = Series(100, list(moved))
    run.parts = [Part(0.0, 0.1, {"t0": 0.5, "t1": 0.5}), Part(0.1, 0.2, {"t1": 1.0})]
    (point,) = summary.points(results)
    assert point.share_error == pytest.approx(0.2)
    assert [s.got for s in point.shares] == pytest.approx([0.3, 0.7])
    assert [s.wanted for s in point.shares] == pytest.approx([0.25, 0.75])
    assert "Shares are judged in 2 parts of the run (0 to 0.1 s, 0.1 to 0.2 s)" in text_of(results)


def test_with_a_price_list_shares_are_those_of_cost() -> None:
    results = results_of({"kyber-fairness": (50.0, 50.0), "mqflashfq": (80.0, 20.0)})
    for run, costs in zip(results.runs, ((30.0, 10.0), (20.0, 20.0)), strict=True):
        for tenant, cost in zip(run.tenants, costs, strict=True):
            tenant.cost_per_s = cost
    found = {point.knob: point for point in summary.points(results)}
    assert [share.got for share in found["kyber-fairness"].shares] == [0.75, 0.25]
    assert found["mqflashfq"].share_error == 0
    assert headline.headline([*found.values()])[0].startswith("mqflashfq: every tenant within 1 %")
    assert "Shares are those of what requests cost" in text_of(results)


def test_headline_without_ours_is_about_the_fairest_and_without_none_gives_the_rate() -> None:
    found = summary.points(results_of({"kyber": (3e6, 1e6), "bfq": (1e6, 1e6)}))
    assert headline.headline(found)[0] == "bfq: every tenant within 1 % of its share, at 2.00 MB/s"


def test_a_row_for_every_scheduler_ours_last(sample: Results) -> None:
    ran = [knob for knob in knobs.TABLE if knob in sample.knobs]
    assert [p.knob for p in summary.points(sample)] == ran
    assert (ran[0], ran[-1], len(ran)) == ("none", "kyber-fairness", 7)
    text = text_of(sample)
    assert "52.0 MB/s 12.7 k IOPS 0.99 0.9 % 1.000 10,662 101,823 43.6" in text
    for heading in ("Shares received", "How to read this", "What was expected", "How it was measured", "Run it again"):
        assert text.count(heading) == 1
    assert "fairlane run scenarios/demo.toml --on vm" in text
    assert "rseqiops=12800" in text
    assert "completion_nsec 4,000,000" in text


def test_share_error_is_relative_to_the_wanted_share() -> None:
    (point,) = summary.points(results_of({"bfq": (60, 40)}, weights=(3, 1)))
    assert [s.error for s in point.shares] == pytest.approx([-0.2, 0.6])
    assert point.share_error == pytest.approx(0.6)


def test_repeats_become_medians_with_their_range(sample: Results) -> None:
    runs = [run_of("none", (rate, rate), (1, 1)) for rate in (1e6, 2e6, 9e6)]
    results = replace(sample, runs=[replace(run, repeat=n) for n, run in enumerate(runs)])
    (point,) = summary.points(results)
    assert point.bytes_per_s == 4e6
    assert "3 runs, 2.00 MB/s to 18.0 MB/s" in text_of(results)


def test_unknown_figures_are_dashes_and_never_zero() -> None:
    results = results_of({"none": (5e6, 5e6)})
    results.runs[0].cpu_ns_per_io = results.runs[0].fairness_index = None
    for tenant in results.runs[0].tenants:
        tenant.lat_us = {"mean": None, "p50": None, "p99": None, "p99.9": None}
    text = text_of(results)
    assert "kernel unknown" in text
    assert "1.00 0.0 % – – –" in text  # fairness index, p99, CPU time
    assert "no series recorded" in text


def test_a_run_that_moved_nothing_is_still_reported() -> None:
    text = text_of(results_of({"none": (0.0, 0.0), "kyber-fairness": (0.0, 0.0)}))
    assert "kyber-fairness: at 0 B/s" in text


def test_expectations_show_how_they_came_out(sample: Results) -> None:
    sample.expects = [
        Outcome("share error", "Fig. 1", 0.01, "at most 0.05", True),
        Outcome("total of none", None, 0.9, "at least 0.95", False),
        Outcome("total of bfq", None, None, "at least 2", None, note="bfq was not asked for"),
    ]
    text = text_of(sample)
    assert "share error Fig. 1 0.01 at most 0.05 ✓ holds" in text
    assert "total of none – 0.9 at least 0.95 ✗ fails" in text
    assert "bfq was not asked for – – at least 2 not judged" in text


def test_kernel_complaints_and_missing_knobs_are_shown(sample: Results) -> None:
    sample.runs[3].bad_dmesg = ["WARNING: CPU: 0 PID: 7"]
    sample.unavailable = {"io.latency": "this kernel has no io.latency"}
    text = text_of(sample)
    assert "do not trust them. bfq: WARNING: CPU: 0 PID: 7" in text
    assert "io.latency no figures: this kernel has no io.latency" in text


def test_everything_from_the_results_is_escaped(sample: Results) -> None:
    evil = "<script>alert('x')</script>\"&"
    sample.scenario = sample.kernel = sample.accel = sample.command = sample.version = evil
    sample.device = sample.machine = {evil: [evil, {evil: evil}]}
    sample.config = {evil: {evil: evil}}
    sample.unavailable = {evil: evil}
    sample.expects = [Outcome(evil, evil, 1.0, evil, True, evil)]
    for run in sample.runs:
        run.counters = {evil: {evil: evil}}
        run.bad_dmesg = [evil]
        run.tenants[0].name = evil
    sample.runs[2].knob = evil
    html = scenario_page.render([sample, sample])
    assert "script" not in Page(html).tags
    assert "<script" not in html
    assert Page(html).text.count(evil) > 20


def sweep(knobs: dict[str, float], sizes: tuple[int, ...] = (1, 4, 16), spread: float = 0.03) -> Results:
    """Results whose totals fall by `knobs[knob]` at each step; each tenant is off its share by `spread`."""
    results = results_of({})
    results.runs = [
        run_of(
            knob,
            tuple(1e6 * (1 - loss * n) / size * (1 + (-1) ** i * spread * (size > 1)) for i in range(size)),
            (1,) * size,
            size,
        )
        for n, size in enumerate(sizes)
        for knob, loss in knobs.items()
    ]
    return results


def test_a_sweep_has_lines_over_the_number_of_cgroups() -> None:
    text = text_of(sweep({"none": 0.0, "kyber-fairness": 0.04, "bfq": 0.3}))
    assert "From 1 to 16 cgroups" in text
    assert "kyber-fairness against none: 1.00 with 1 cgroup; lowest after that 0.92, with 16." in text
    assert "kyber-fairness with 16 cgroups: every tenant within 3 % of its share, at 0.92 of none’s" in text
    assert "each stroke is a tenant" in text.lower()
    for label in ("total, thousand I/Os per second", "total against none", "worst tenant off its share, %"):
        assert label in text


def test_a_result_whose_shares_are_not_judged_does_not_count_as_fair() -> None:
    first, second = (results_of({"none": (50.0, 50.0), "kyber-fairness": (50.0, 50.0)}) for _ in "ab")
    for run in second.runs:
        run.parts = []
    said = "every tenant within 1 % of its share in 1 of 2, at 1.00 of none’s throughput or more; shares are not judged"
    assert f"kyber-fairness in 2 results: {said} in the other" in text_of(first, second)
    assert "none’s throughput or more; shares are judged in none of them" in text_of(second, second)
    assert "every tenant within 1 % of its share, at 1.00" in text_of(first, first)


def test_two_results_stand_side_by_side(sample: Results) -> None:
    other = replace(copy.deepcopy(sample), kernel="6.12.1")
    text = text_of(sample, other)
    assert "Side by side" in text
    assert "demo · 6.1.0-56-amd64" in text and "demo · 6.12.1" in text
    assert "kyber-fairness in 2 results: every tenant within 1 % of its share, at 0.99 of none’s throughput" in text
    assert text.count("How to read this") == 1


def test_equal_results_get_numbers(sample: Results) -> None:
    assert "demo · 6.1.0-56-amd64 · no. 2" in text_of(sample, sample)


def test_long_series_stay_small(sample: Results) -> None:
    for run in sample.runs:
        for tenant in run.tenants:
            assert tenant.series is not None
            tenant.series.bytes = tenant.series.bytes * 30  # two minutes in 10 ms bins
    html = scenario_page.render([sample])
    assert len(html) < 1_500_000
    assert "50 ms bins" in html


def test_nothing_to_report_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match="nothing to report"):
        scenario_page.write([results_of({})], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_place_that_cannot_be_written_is_named(sample: Results, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FairlaneError, match="choose another file"):
        scenario_page.write([sample], tmp_path / "file" / "r.html")


rates = st.floats(0, 1e10, allow_nan=False)


@settings(deadline=None)
@given(
    totals=st.dictionaries(
        st.sampled_from([*knobs.TABLE, "new"]), st.tuples(rates, rates, rates), min_size=1, max_size=4
    ),
    weights=st.tuples(*[st.integers(1, 10000)] * 3),
)
def test_any_figures_make_a_balanced_page(totals: dict[str, tuple[float, ...]], weights: tuple[int, ...]) -> None:
    html = scenario_page.render([results_of(totals, weights)])
    Page(html)
    assert not re.search(r"\b(nan|inf|None|undefined)\b", html)


@given(at=st.lists(st.floats(0, 100), max_size=8))
def test_labels_keep_their_distance_and_order(at: list[float]) -> None:
    moved = plot.spread(at, 7.5)
    order = sorted(range(len(at)), key=lambda n: at[n])
    placed = [moved[n] for n in order]
    assert all(b - a >= 7.5 - 1e-9 for a, b in pairwise(placed))
    assert all(0 - 1e-9 <= y <= 100 + 1e-9 for y in placed)


def test_two_results_of_a_scenario_are_compared_figure_by_figure() -> None:
    a = results_of({"none": (300e6, 100e6), "bfq": (10e6, 10e6)})
    b = results_of({"none": (150e6, 150e6), "io.max": (10e6, 10e6)})
    b.runs[0].tenants[0].lat_us["p99"] = 45.0
    ((knob, pairs),) = scenario_page.compared([a, b])  # of bfq and io.max there is nothing to compare with
    rows = {pair.figure: pair for pair in pairs}
    assert knob == "none"
    assert pairs[0] == formats.Pair("total", "400 MB/s", "300 MB/s", 0.75)
    assert (rows["t0, share"].first, rows["t0, share"].second) == ("75.0 %", "50.0 %")
    assert rows["t0, share"].ratio == pytest.approx(2 / 3)
    assert rows["t0, p99 µs"] == formats.Pair("t0, p99 µs", "90.0", "45.0", 0.5)
    assert rows["t0, p99.9 µs"] == formats.Pair("t0, p99.9 µs", "–", "–", None)
    text = Page(scenario_page.render([a, b])).text
    assert "none, figure by figure" in text and "bfq, figure by figure" not in text


def test_results_of_different_scenarios_are_not_compared() -> None:
    a, b = results_of({"none": (1e6, 1e6)}), results_of({"none": (1e6, 1e6)})
    b.scenario = "other"
    assert scenario_page.compared([a, b]) == []
    assert "figure by figure" not in scenario_page.render([a, b])


def test_every_knob_has_a_colour() -> None:
    style = template.template("style.css.j2").render()
    assert [knob for knob in knobs.TABLE if f".{plot.knob_colour(knob)} {{ --c:" not in style] == []
