# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The picture, and the table beside it, say what the results say, for one load or for several."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlane.errors import FairlaneError
from fairlane.experiment.results import Results, Run, Tenant
from fairlane.pages import markdown, picture
from fairlane.pages.template import template

SVG = "{http://www.w3.org/2000/svg}"
LIMIT = 30_000  # bytes: a README is read on a telephone, too


def load(name: str, rates: Mapping[str, tuple[float, ...]]) -> Results:
    """A run for each knob; tenants of weight 300 and 100."""
    runs = []
    for knob, got in rates.items():
        tenants = [
            Tenant(f"w{weight}", weight, weight / 400, rate, rate / 4096, rate, 0.0)
            for weight, rate in zip((300, 100), got, strict=True)
        ]
        runs.append(Run(knob, 0, 1.0, tenants, sum(got), sum(got) / 4096, 1.0, None))
    return Results(scenario=name, backend="vm", seed=1, version="0", runs=runs)


@pytest.fixture
def loads() -> list[Results]:
    first = {"none": (200.0, 200.0), "kyber": (180.0, 180.0), "kyber-fairness": (300.0, 100.0)}
    return [load("one", first), load("other", {"none": (50.0, 50.0), "kyber-fairness": (30.0, 10.0)})]


def texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ET.fromstring(svg).iter(f"{SVG}text")]


def bar(svg: str, panel: int, knob: int) -> list[float]:
    """The widths of the parts of a knob's bar."""
    group = ET.fromstring(svg).findall(f"{SVG}g/{SVG}g")[panel]
    rows = [rect for rect in group.findall(f"{SVG}rect") if rect.get("y") == str(picture.TOP + knob * picture.ROW + 4)]
    return [float(rect.get("width", "")) for rect in rows]


def test_bars_are_as_long_as_the_total_and_divided_as_it_was(loads: list[Results]) -> None:
    svg = picture.render(loads, {})
    assert bar(svg, 0, 0) == pytest.approx([picture.BAR / 2] * 2)
    assert bar(svg, 0, 2) == pytest.approx([picture.BAR * 3 / 4, picture.BAR / 4])
    assert bar(svg, 1, 2) == pytest.approx([picture.BAR * 0.3, picture.BAR * 0.1])


def test_it_says_the_figures_and_what_did_not_run(loads: list[Results]) -> None:
    said = texts(picture.render(loads, {"one": ("The first", "and what it is")}))
    assert {"The first", "and what it is", "other", "by weight", "kyber-fairness", "0.90", "0.40"} <= set(said)
    assert said.count("no figures") == 1  # kyber, under the other load
    assert said.count("100 %") == 3  # none twice, kyber


def test_it_is_small_and_fetches_nothing(loads: list[Results]) -> None:
    svg = picture.render(loads, {})
    assert len(svg.encode()) < LIMIT
    assert "href" not in svg
    assert "url(" not in svg
    assert "prefers-color-scheme: dark" in svg


def test_the_page_has_the_same_colours() -> None:
    assert template("palette.css.j2").render().strip() in template("style.css.j2").render()


def test_what_it_cannot_show_is_refused(loads: list[Results]) -> None:
    with pytest.raises(FairlaneError, match="has no run of none"):
        picture.render([load("lone", {"kyber": (1.0, 1.0)})], {})
    loads[0].runs[0].point = {"cgroups": 4}
    with pytest.raises(FairlaneError, match="has a sweep"):
        picture.render(loads, {})


def test_the_table_has_a_row_for_each_knob(loads: list[Results]) -> None:
    assert markdown.table(loads, {"one": ("The first", "4 KiB")}).splitlines() == [
        "| knob | 4 KiB: total (none = 1) | worst share off by | other: total (none = 1) | worst share off by |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| none | 1.00 | 100 % | 1.00 | 100 % |",
        "| kyber | 0.90 | 100 % |  |  |",
        "| **kyber-fairness** | **1.00** | **0.0 %** | **0.40** | **0.0 %** |",
    ]


def test_the_one_in_the_readme_is_of_this_code() -> None:
    """Its figures are from a real run; its form is that of today's code."""
    svg = (Path(__file__).parents[2] / "docs" / "demo.svg").read_text()
    assert len(svg.encode()) < LIMIT
    assert template("palette.css.j2").render().strip() in svg
    assert any(said.startswith("kyber-fairness") for said in texts(svg))
