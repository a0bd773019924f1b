# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""results.json comes back as it was written, is whole or not there, and a bad one is refused by name."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import FairlaneError
from fairlane.experiment.figures import jain
from fairlane.experiment.results import Outcome, Results, Run, Series, Tenant


def sample() -> Results:
    tenant = Tenant("a", 100, 1.0, 4096.0, 1.0, 4096.0, 0.0, None, {"mean": 5.0, "p99": None}, Series(10, [40, 0]))
    run = Run("bfq", 0, 2.0, [tenant], 4096.0, 1.0, 1.0, None, {"device": {"x": 1}}, {"cgroups": 4}, ["WARNING"])
    outcome = Outcome("bfq: total", "Fig. 1", 0.4, "at most 0.6", True)
    return Results(
        "x", "vm", 1, "0", "6.1", "tcg", [run, Run("none", 0, 2.0, [], 0.0, 0.0, None, None)], expects=[outcome]
    )


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.json"
    sample().save(path)
    assert Results.load(path) == sample()
    assert [entry.name for entry in path.parent.iterdir()] == ["results.json"]


def test_unknown_is_null_and_a_point_is_absent_outside_a_sweep(tmp_path: Path) -> None:
    sample().save(tmp_path / "results.json")
    first, second = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert first["cpu_ns_per_io"] is None
    assert first["point"] == {"cgroups": 4}
    assert "point" not in second


@pytest.mark.parametrize(
    ("text", "what"),
    [("{", "not JSON"), ("[]", "schema 1"), ('{"schema": 2}', "schema 1"), ('{"schema": 1, "runs": []}', "complete")],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(FairlaneError, match=what) as caught:
        Results.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match="cannot be read"):
        Results.load(tmp_path / "results.json")


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=50))
def test_jain_is_between_one_nth_and_one(xs: list[float]) -> None:
    index = jain(xs)
    assert index is not None
    assert 1 / len(xs) * (1 - 1e-9) <= index <= 1 + 1e-9


def test_jain_knows_the_extremes() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([9, 0, 0]) == pytest.approx(1 / 3)
    assert jain([0, 0]) is None
