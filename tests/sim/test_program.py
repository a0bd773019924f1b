# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fl-sim as a program: the same bytes every time, and no input that it does not either run or refuse in a sentence."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simkit import ASAN, Json, null_drive, output, player, refused, run_of, simulate, ssd_drive, start, tenant

from fairlane.backends import fl_sim
from fairlane.backends.program import PROGRAM
from fairlane.experiment.profiles import load_profile
from fairlane.experiment.results import Results
from fairlane.places import TRACES

GOLDEN = Path(__file__).parent
KNOBS = ("none", "kyber-fairness", "mqflashfq", "flashfq", "d2fq", "mqfq")
MAPPED = {"size": 1 << 28, "map": 1 << 28, "spare": 250, "block_pages": 32, "page": 4096}


def mixed(knob: str, drive: Json) -> Json:
    """Something of everything."""
    groups = [
        {"name": "outer", "weight": 300, "parent": None},
        {"name": "inner", "weight": 50, "parent": "outer"},
    ]
    tenants = [
        tenant("closed", 1000, jobs=3, depth=32, read_percent=50),
        tenant("sequential", 500, jobs=2, depth=8, bytes=131072, random=False, parent="inner"),
        tenant("poisson", 100, depth=64, interval_ps=50_000_000, poisson=True, parent="inner"),
        tenant("pausing", 100, jobs=4, depth=2, think_ns=100_000, cores=[1, 3], read_percent=0),
    ]
    return run_of(tenants, drive, knob, 4, 0.1, cgroups=groups)


# --- The same seed, the same bytes ---


@pytest.mark.parametrize("drive", [null_drive(2, 64, 50_000), ssd_drive(4), ssd_drive(4, **MAPPED)])
@pytest.mark.parametrize("knob", KNOBS)
def test_a_run_is_the_same_every_time_however_it_was_compiled(knob: str, drive: Json) -> None:
    if knob == "d2fq" and drive["kind"] == "null":
        pytest.skip("no drive for it")
    first = output(mixed(knob, drive))
    assert output(mixed(knob, drive)) == first
    assert output(mixed(knob, drive), ASAN) == first


def test_another_seed_is_another_run() -> None:
    description = mixed("none", ssd_drive(4))
    assert output(description) != output(description | {"seed": 2})


def small_p4500() -> Json:
    """The drive of profiles/p4500.toml with a smaller map, which takes less time to fill."""
    profile = load_profile("p4500")
    return fl_sim.drive_of(replace(profile, params=profile.params | {"map": 1 << 30, "block_pages": 2}), 4)


@pytest.mark.parametrize(
    ("file", "knob", "drive"),
    [("golden.json", "none", null_drive(2, 64, 50_000)), ("golden-p4500.json", "kyber-fairness", small_p4500())],
)
def test_a_run_is_what_it_was_when_it_was_last_looked_at(file: str, knob: str, drive: Json) -> None:
    """On any machine. The second changes whenever its scheduler or the model does. To renew: delete the file, run."""
    golden, found = GOLDEN / file, output(mixed(knob, drive))
    if not golden.exists():
        golden.write_bytes(found)
        pytest.fail(f"{golden} was written; look at it, and commit it")
    assert found == golden.read_bytes()


def test_what_it_prints_is_a_results_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_bytes(output(mixed("kyber-fairness", ssd_drive(4)) | {"point": {"cgroups": 4}}))
    run = Results.load(file).runs[0]
    assert (run.knob, run.point) == ("kyber-fairness", {"cgroups": 4})
    assert sum(found.share for found in run.tenants) == pytest.approx(1)
    assert {found.name: found.share for found in run.tenants}["sequential"] == pytest.approx(300 / 1400 * 500 / 600)


def test_why_its_results_cannot_be_written_is_said(tmp_path: Path) -> None:
    description = json.dumps(run_of([tenant()], null_drive(), seconds=0.01)).encode()
    for place, why in (("/dev/full", "No space left on device"), (f"{tmp_path}/no/x", "No such file or directory")):
        done = start(description, PROGRAM, "-o", place)
        assert (done.returncode, done.stderr.decode()) == (2, f"fl-sim: {place}: cannot be written: {why}\n")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_no_error(option: str) -> None:
    done = start(b"", PROGRAM, option)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"fl-sim [-n] [-p] [-o FILE] [FILE]\n")


def test_a_scheduler_s_tunables_can_be_asked_for() -> None:
    done = start(b"", PROGRAM, "-t", "fairlane")
    assert (done.returncode, done.stdout) == (0, b"budget 0 1048576\nlatency_loss 0 90\n")
    done = start(b"", PROGRAM, "-t", "none such")
    assert (done.returncode, done.stderr) == (2, b"fl-sim: none such: is no scheduler\n")


def test_a_week_is_no_error_as_a_scenario_may_last_that_long() -> None:
    week = 7 * 24 * 3600 * 10**9
    description = run_of([tenant()], ssd_drive(), run_ns=week, warmup_ns=week)
    assert start(json.dumps(description).encode(), PROGRAM, "-n").returncode == 0


# --- What is written ---


def test_only_what_is_written_in_the_measured_time_counts() -> None:
    writer = tenant(depth=32, read_percent=0)
    found = simulate(run_of([writer], ssd_drive(**MAPPED), warmup_ns=10**9))
    counters = found["counters"]["device"]
    assert counters["drive_host_bytes"] == pytest.approx(found["total_bytes_per_s"], rel=0.01)  # in the 1 s
    assert counters["write_amplification"] == pytest.approx(
        counters["drive_nand_bytes"] / counters["drive_host_bytes"], abs=1e-5
    )
    assert counters["write_amplification"] > 1.2  # it collects


def test_a_drive_that_is_only_read_has_no_write_amplification() -> None:
    quiet = {"from_ns": 10**8, "to_ns": 10**15}
    writes = tenant("before", depth=32, read_percent=0, phases=[{"from_ns": 0, "to_ns": 10**8}])
    description = run_of([tenant(phases=[quiet]), writes], ssd_drive(**MAPPED), warmup_ns=10**9)
    counters = simulate(description)["counters"]["device"]
    assert (counters["drive_host_bytes"], counters["drive_erases"]) == (0, 0)
    assert counters["write_amplification"] is None


# --- Input that is no run ---


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"cores": 1.5}, "cores must be a whole number from 1 to 1024"),
        ({"knob": "bfq"}, "the simulator has none such"),
        ({"knob": "d2fq", "drive": null_drive()}, "it has no weighted round robin arbitration"),
        ({"knob": "d2fq", "drive": ssd_drive(wrr=0)}, "it has no weighted round robin arbitration"),
        (
            {"knob": "d2fq", "tunables": {"fixed_ratio": 257}},
            "fixed_ratio of d2fq must be a whole number from 0 to",
        ),
        (
            {"knob": "mqfq", "tunables": {"fixed_ratio": 2}},
            "mqfq has no tunable fixed_ratio; it has throttle_bytes",
        ),
        ({"tunables": {"depth": 1}}, "none has no tunable depth; it has none"),
        ({"prices": {"read": [1] * 12}}, "prices: write must be a list"),
        ({"prices": {"read": [1] * 11, "write": [1] * 12}}, "prices: read must have 12 prices"),
        ({"prices": {"read": [1] * 12, "write": [0] * 12}}, "prices: write must be whole numbers from 1 to 16777216"),
        ({"speed": 1}, "unknown; valid are scenario, version"),
        ({"tenants": []}, "there is none"),
        ({"tenants": [tenant(bytes=1000)]}, "a: bytes must be a multiple of 512"),
        ({"tenants": [tenant(cores=[1])]}, "a: cores must be numbers from 0 to 0"),
        ({"tenants": [tenant(parent="b")]}, "parent b is none of the cgroups"),
        ({"tenants": [tenant("../a")]}, "letters, digits"),
        ({"tenants": [tenant(jobs=1024, depth=65536)]}, "more than 1 GiB"),
        ({"tenants": [tenant(bytes=1 << 30)], "drive": ssd_drive(size=1 << 20)}, "too small"),
        ({"drive": ssd_drive(planes=3)}, "drive: planes must be a power of two"),
        ({"drive": ssd_drive(size=1 << 42, map=1 << 40)}, "tables of its map would take more than 1 GiB"),
        ({"drive": ssd_drive(channels=0)}, "drive: channels must be a whole number from 1"),
        ({"drive": null_drive(), "cpu": dict.fromkeys(run_of([], {})["cpu"], 0)}, "stand still"),
    ],
)
def test_what_is_wrong_is_said(change: Json, says: str) -> None:
    assert says in refused(json.dumps(run_of([tenant()], ssd_drive()) | change).encode())


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_bytes_that_are_no_json_are_refused(text: bytes) -> None:
    assert "not JSON" in refused(text)


def test_deep_nesting_is_refused() -> None:
    assert "not JSON" in refused(b"[" * 1_000_000)


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 511, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63), 10**30, 0.5, 1e308),
    *("", "a", "none", "ssd", "null", "\u00e9", "x" * 10_000, [], [0], [[]], {}, {"from_ns": 0, "to_ns": 1}),
)
SHORT = ("warmup_ns", "run_ns")  # a run of a week is no error, but no test either


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [pair for key, inner in items for pair in ((value, key), *places(inner))]


def mutate(description: Json, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(places(description))
        match rng.randrange(4):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case _:
                container[key] = copy.deepcopy(rng.choice(VALUES))
    for key in SHORT:
        if isinstance(description.get(key), int) and description[key] > 10**6:
            description[key] = 10**6


@given(seed=st.integers(0, 2**32), knob=st.sampled_from(KNOBS), null=st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_run_with_anything_in_it_changed_is_run_or_refused(seed: int, knob: str, null: bool) -> None:
    description = mixed(knob, null_drive(2, 64, 50_000) if null else ssd_drive(4))
    description["tenants"].append(player(TRACES / "tpcc-small.trace", "recorded", 4096, depth=64))
    description["prices"] = {"read": [1] * 12, "write": [1 << 24] * 12}
    description = copy.deepcopy(description)
    mutate(description, random.Random(seed))
    done = start(json.dumps(description).encode(), ASAN)
    if done.returncode:
        refused(json.dumps(description).encode())
    else:
        assert json.loads(done.stdout)["schema"] == 1
