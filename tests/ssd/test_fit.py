# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Every profile is as close to what is published of its drive as it claims, and the command that says so is right."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from fairlane.drive_models import published_figures
from fairlane.drive_models.__main__ import main
from fairlane.errors import FairlaneError


@pytest.fixture(scope="module", autouse=True)
def drive() -> None:
    published_figures.build()


@pytest.mark.parametrize("name", published_figures.names())
def test_profile_is_within_its_bounds(name: str) -> None:
    rows = published_figures.compare(published_figures.numbers(name), published_figures.load_published(name).figures)
    out = [
        f"{row.figure.name}: published {row.published}, model {row.model}"
        for row in rows
        if not row.ok and row.figure.shown is None
    ]
    assert not out
    assert sum(row.figure.shown is None for row in rows) >= 4  # sequential and random, reads and writes


def test_price_of_a_read_rises_to_its_peak_at_five_readers() -> None:
    rows = published_figures.compare(
        published_figures.numbers("p3700"), published_figures.load_published("p3700").figures
    )
    price = {row.figure.name[:3]: row.model for row in rows if row.metric == "price"}
    assert price["K=1"] < price["K=2"] < price["K=3"] < price["K=4"] < price["K=5"] > price["K=6"]
    assert price["K=5"] == pytest.approx(0.667, abs=0.05)


def test_950pro_collapses_to_tens_of_megabytes_when_it_collects() -> None:
    values, jobs = published_figures.numbers("950pro"), ["randwrite:16384:64"] * 6
    fresh, steady = (
        sum(job.bytes_per_s for job in published_figures.play(values, jobs, state)) for state in ("fresh", "steady")
    )
    assert fresh > 800e6
    assert 10e6 < steady < 100e6


def test_a_wrong_profile_is_out_of_bounds() -> None:
    values = published_figures.numbers("optane") | {"read_command_ns": 2500}
    rows = published_figures.compare(values, published_figures.load_published("optane").figures)
    assert {row.figure.name for row in rows if not row.ok} == {
        "random read, 4 KiB, queue depth 16",
    }


def test_price_is_what_writers_lose() -> None:
    # Every command takes 10 us of the controller, and nothing else: a read costs what a write does.
    values = published_figures.numbers("optane") | {"read_command_ns": 10000, "write_command_ns": 10000}
    mix = published_figures.Figure("half", ("randwrite:4096:8", "randread:4096:8"), {"price": 1.0}, "theory")
    reads = published_figures.Figure("all", ("2*randread:4096:8",), {"price": 1.0}, "theory", below="half")
    rows = published_figures.compare(values, [mix, reads])
    assert [row.model for row in rows] == pytest.approx([1.0, 1.0], abs=0.001)


def test_a_load_is_jobs_times_a_job() -> None:
    assert published_figures.jobs_of(["2*randread:4096:1", "write:512:3"]) == [
        "randread:4096:1",
        "randread:4096:1",
        "write:512:3",
    ]


def test_unknown_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "no-such-drive"]) == 2
    assert "no-such-drive" in capsys.readouterr().err


def test_a_search_of_no_length_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for length in ("-3", "0", "soon"):
        with pytest.raises(SystemExit):
            main(["fit", "optane", f"--search={length}"])
        assert f"{length} is no number of seconds above 0" in capsys.readouterr().err


def test_published_file_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.toml").write_text("[[figure]]\nname = 3\n")
    monkeypatch.setattr(published_figures, "PUBLISHED", tmp_path)
    with pytest.raises(FairlaneError, match=r"odd\.toml"):
        published_figures.load_published("odd")


def test_search_keeps_what_fits_better(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_figures, "numbers", lambda name: {"read_command_ns": 2500, "read_ns": 1000})
    figure = published_figures.Figure("rate", ("randread:4096:16",), {"iops": 500000}, "a test")
    monkeypatch.setattr(
        published_figures,
        "load_published",
        lambda name: published_figures.Published((figure,), {"read_command_ns": (1000, 3000)}),
    )
    tries = iter(range(26))  # instead of seconds
    monkeypatch.setattr(published_figures, "time", SimpleNamespace(monotonic=lambda: next(tries)))
    published_figures.search("any", 25)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("misfit")]
    misfits = [float(line.split()[1].rstrip(":")) for line in lines]
    assert len(misfits) > 1
    assert misfits == sorted(misfits, reverse=True)
    assert misfits[-1] < 0.5 * misfits[0]
