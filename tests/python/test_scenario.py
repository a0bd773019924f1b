# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A scenario file is understood as written, and whatever is wrong with it is said with its file, table and key."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import schedulers
from fairlane.errors import FairlaneError
from fairlane.experiment import modelled_ssd, profiles, scenario_file, values
from fairlane.experiment.model import (
    Cgroup,
    Expect,
    Profile,
    Rate,
    Scenario,
    TenantSpec,
    Variant,
    below,
    from_dict,
    shares,
    to_dict,
)
from fairlane.linux import knobs
from fairlane.places import ROOT, SCENARIOS, TRACES

DEVICE = '[device]\nprofile = "null"\n'
TENANT = '[[tenant]]\nname = "a"\n'
PLAYER = TENANT + 'trace = "tpcc-small.trace"\n'
EVERY = sorted(SCENARIOS.rglob("*.toml"))


def parse(folder: Path, text: str) -> Scenario:
    path = folder / "x.toml"
    path.write_text(text)
    return scenario_file.load(path, tuple(knobs.TABLE))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_every_scenario_of_ours_is_valid_and_says_what_it_shows(path: Path) -> None:
    name = str(path.relative_to(SCENARIOS).with_suffix(""))
    found = scenario_file.load_all(path)
    assert all(what.description for what in found)
    assert any(what.expects for what in found)
    assert all(what.name == name or what.name.startswith(f"{name}-") for what in found)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_a_scenario_crosses_into_the_vm_unchanged(path: Path) -> None:
    for found in scenario_file.load_all(path):
        assert from_dict(json.loads(json.dumps(to_dict(found)))) == found


CASES = """
[run]
cases = ["x", "y"]
[device]
profile = "null"
[tunable.mqflashfq]
flow = 1
[[cgroup]]
name = "g"
[[tenant]]
name = "a"
parent = "g"
[[tenant]]
name = "b"
cases = ["x"]
bs = 8192
[[tenant]]
name = "b"
cases = ["y"]
bs = 16384
[[expect]]
cases = ["y"]
figure = "share"
tenant = "g"
knob = "mqflashfq"
at_least = 0.5
"""


def test_a_file_with_cases_is_a_scenario_for_each(tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_text(CASES)
    x, y = scenario_file.load_all(file)
    assert (x.name, y.name) == ("file-x", "file-y")
    assert [tenant.bs for tenant in (*x.tenants, *y.tenants)] == [4096, 8192, 4096, 16384]
    assert (len(x.expects), y.expects[0].tenant) == (0, "g")
    assert x.tunables == {"mqflashfq": {"flow": 1}}
    assert below(y, "g") == {"a"}
    with pytest.raises(FairlaneError, match="has several"):
        scenario_file.load(file)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('cases = ["x"]', 'cases = ["z"]'), "'z' is unknown; valid are x, y"),
        (('tenant = "g"', 'tenant = "h"'), "valid are a, b, g"),
        (('"share"', '"lat_p99_us"'), "g is a cgroup, which has no lat_p99_us"),
        (("tunable.mqflashfq", "tunable.bfq"), "valid are fairlane, kyber-fairness, mqflashfq, flashfq"),
        (("flow = 1", 'flow = "core"'), "'core' is not a whole number"),
    ],
)
def test_what_is_wrong_with_cases_and_tunables_is_said(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    file = tmp_path / "file.toml"
    file.write_text(CASES.replace(*change))
    with pytest.raises(FairlaneError) as error:
        scenario_file.load_all(file)
    assert says in str(error.value)


def test_a_tenant_with_a_count_is_so_many_alike(tmp_path: Path) -> None:
    text = DEVICE + '[defaults]\niodepth = 8\n[[cgroup]]\nname = "g"\nweight = 300\n'
    found = parse(tmp_path, text + TENANT + '[[tenant]]\nname = "m"\ncount = 3\nparent = "g"\nbs = 8192\n')
    one, *alike = found.tenants
    assert one == TenantSpec("a", iodepth=8)
    assert alike == [TenantSpec(f"m{i}", parent="g", bs=8192, iodepth=8) for i in range(3)]
    assert shares(found) == pytest.approx({"a": 0.25, "m0": 0.25, "m1": 0.25, "m2": 0.25})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TENANT + "count = 0\n", r"\[\[tenant\]\] number 1 count: 0 is not a whole number from 1 to 4096"),
        ("[run]\ncgroups = [1, 4]\n" + TENANT + "count = 2\n", "count: a sweep replicates tenants by itself"),
        (TENANT + 'count = 2\n[[tenant]]\nname = "a1"\n', r"\[\[tenant\]\] a1: name: used twice"),
        (TENANT + 'count = 2\n[[tenant]]\nname = "b"\niodepth = 0\n', r"\[\[tenant\]\] number 2 iodepth: 0 is not"),
        ("[defaults]\ncount = 2\n" + TENANT, r"\[defaults\] count: unknown key"),
    ],
)
def test_what_is_wrong_with_a_count_is_said(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(FairlaneError, match=says):
        parse(tmp_path, DEVICE + text)


def test_a_block_that_no_drive_has_is_the_drive_s_fault_not_a_tenant_s(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match=r"\[device\] block_size: 3000 is not a power of two, from 512 to 4096"):
        parse(tmp_path, DEVICE.replace("null", "p4500") + "block_size = 3000\n" + TENANT)


def test_values_with_units(tmp_path: Path) -> None:
    text = DEVICE + TENANT + 'bs = "128KiB"\nstart = "500ms"\nrate = "8MiB/s"\nthinktime = "20us"\n'
    tenant = parse(tmp_path, text + 'latency = "300us"\n').tenants[0]
    assert (tenant.bs, tenant.start, tenant.rate) == (131072, 0.5, Rate(bytes_per_s=8 << 20))
    assert (tenant.thinktime, tenant.latency) == pytest.approx((20e-6, 300e-6))


def test_a_cgroup_or_a_tenant_may_have_a_latency_target(tmp_path: Path) -> None:
    inner = '[[cgroup]]\nname = "g"\nlatency = 10\n'
    found = parse(
        tmp_path,
        DEVICE + inner + '[defaults]\nlatency = "1ms"\n' + TENANT + TENANT.replace('"a"', '"b"') + "latency = 0\n",
    )
    assert [group.latency for group in found.groups] == [10]
    assert [tenant.latency for tenant in found.tenants] == [0.001, 0]


def test_a_variant_is_its_knob_with_other_tunables_and_may_take_its_place(tmp_path: Path) -> None:
    text = '[[variant]]\nname = "{}"\nknob = "d2fq"\nset = {{ low_threshold = "1MiB" }}\n'
    found = parse(tmp_path, DEVICE + TENANT + text.format("small"))
    small = Variant("small", "d2fq", {"low_threshold": 1 << 20})
    assert found.runs_of("d2fq") == [Variant("d2fq", "d2fq"), small]
    assert found.runs_of("none") == [Variant("none", "none")]
    found = parse(tmp_path, DEVICE + TENANT + text.format("d2fq"))
    assert found.runs_of("d2fq") == [Variant("d2fq", "d2fq", small.set)]


def test_a_scenario_may_change_parameters_of_its_profile(tmp_path: Path) -> None:
    params = parse(tmp_path, DEVICE + "hw_queue_depth = 8\n" + TENANT).profile.params
    assert params == profiles.load_profile("null").params | {"hw_queue_depth": 8}


def test_a_trace_is_beside_the_scenario_or_one_of_the_projects(tmp_path: Path) -> None:
    def trace(name: object) -> str | None:
        return parse(tmp_path, f'{DEVICE}{TENANT}trace = "{name}"\n').tenants[0].trace

    assert trace("tpcc-small.trace") == str(TRACES / "tpcc-small.trace")
    own = tmp_path / "tpcc-small.trace"
    own.touch()
    assert trace(own.name) == trace(own) == str(own)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (DEVICE, "x.toml", "no [[tenant]]"),
        (
            DEVICE + TENANT + '[[variant]]\nname = "none"\nknob = "d2fq"\n',
            "[[variant]] number 1 name",
            "'none' is taken",
        ),
        (
            DEVICE + TENANT + '[[variant]]\nname = "x"\nknob = "cfq"\n',
            "[[variant]] number 1 knob",
            "unknown; valid are",
        ),
        (DEVICE + TENANT + '[[variant]]\nname = "x"\nknob = "d2fq"\nset = 3\n', "number 1 set", "not a table"),
        (DEVICE + TENANT + '[[expect]]\nfigure = "counter"\nknob = "d2fq"\nat_most = 1\n', "counter", "goes with"),
        (DEVICE + TENANT + '[[expect]]\nfigure = "total_iops"\nknob = "x"\nat_most = 1\n', "knob", "valid are none"),
        (DEVICE + TENANT + "weigth = 5\n", "[[tenant]] number 1 weigth", "valid are name, weight"),
        (DEVICE + TENANT + "weight = 0\n", "[[tenant]] number 1 weight", "from 1 to 10000"),
        (DEVICE + TENANT + "weight = 10001\n", "[[tenant]] number 1 weight", "from 1 to 10000"),
        (DEVICE + TENANT + "weight = true\n", "[[tenant]] number 1 weight", "whole number"),
        (DEVICE + TENANT + "latency = 10.1\n", "[[tenant]] number 1 latency", "from 1 us to 10 s"),
        (DEVICE + TENANT + "latency = 1e-7\n", "[[tenant]] number 1 latency", "from 1 us to 10 s"),
        (DEVICE + TENANT + "latency = -1\n", "[[tenant]] number 1 latency", "no time"),
        (DEVICE + TENANT + 'bs = "4kb"\n', "[[tenant]] number 1 bs", "valid are B, KiB, MiB"),
        (DEVICE + TENANT + 'start = "1h"\n', "[[tenant]] number 1 start", "valid are us, ms, s"),
        (DEVICE + TENANT + 'rate = "5 apples"\n', "[[tenant]] number 1 rate", "valid are iops, B/s"),
        (DEVICE + TENANT + 'rw = "randtrim"\n', "[[tenant]] number 1 rw", "valid are read, write"),
        (DEVICE + TENANT + "mix = 30\n", "[[tenant]] number 1 mix", "for rw and randrw"),
        (DEVICE + TENANT + "start = 99\n", "[[tenant]] number 1 start", "within the run"),
        (DEVICE + TENANT + "stop = 99\n", "[[tenant]] number 1 stop", "within the run"),
        (DEVICE + TENANT + 'parent = "g"\n', "[[tenant]] a: parent", "none is declared"),
        (DEVICE + TENANT + TENANT, "[[tenant]] a: name", "used twice"),
        (DEVICE + '[[tenant]]\nname = "../x"\n', "[[tenant]] number 1 name", "letters, digits"),
        (DEVICE + "[tenant]\n", "[tenant]", "[[tenant]]"),
        ("[run]\nseconds = nan\n" + TENANT, "[run] seconds", "nan is no time from 0 to a week"),
        ('[device]\nprofile = "disk"\n' + TENANT, "[device] profile", "unknown profile 'disk'; valid are 950pro, "),
        (DEVICE + "max_ioqpairs = 4\n" + TENANT, "[device] max_ioqpairs", "unknown key"),
        (TENANT, "[device] profile", "missing"),
        ("[run]\nseconds = 0\n" + DEVICE + TENANT, "[run] seconds", "more than 0"),
        ("[run]\ncgroups = []\n" + DEVICE + TENANT, "[run] cgroups", "list"),
        ("[runs]\n" + DEVICE + TENANT, "top level runs", "valid are description, run"),
        ("[run\n", "x.toml", "not valid TOML"),
        (DEVICE + PLAYER + 'rw = "read"\n', "[[tenant]] number 1 rw", "no meaning beside a trace"),
        (DEVICE + PLAYER + "mix = 30\n", "[[tenant]] number 1 mix", "no meaning beside a trace"),
        (DEVICE + PLAYER + "bs = 4096\n", "[[tenant]] number 1 bs", "no meaning beside a trace"),
        (DEVICE + PLAYER + 'rate = "9 iops"\n', "[[tenant]] number 1 rate", "no meaning beside a trace"),
        (DEVICE + PLAYER + "poisson = true\n", "[[tenant]] number 1 poisson", "no meaning beside a trace"),
        (DEVICE + PLAYER + "thinktime = 1\n", "[[tenant]] number 1 thinktime", "no meaning beside a trace"),
        (DEVICE + PLAYER + 'speed = "fast"\n', "[[tenant]] number 1 speed", "valid are recorded, full"),
        (DEVICE + TENANT + 'speed = "full"\n', "[[tenant]] number 1 speed", "no meaning without a trace"),
        (DEVICE + TENANT + "devices = [1]\n", "[[tenant]] number 1 devices", "no meaning without a trace"),
        (DEVICE + TENANT + 'trace = "moon"\n', "[[tenant]] number 1 trace", f"and {TRACES / 'moon'}: no such file"),
        (DEVICE + TENANT + 'trace = "."\n', "[[tenant]] number 1 trace", ": is no regular file"),
        (DEVICE + TENANT + 'trace = "/dev/null"\n', "[[tenant]] number 1 trace", "/dev/null: is no regular file"),
        (DEVICE + TENANT + "trace = 5\n", "[[tenant]] number 1 trace", "5 is not a text"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, where: str, what: str) -> None:
    with pytest.raises(FairlaneError) as caught:
        parse(tmp_path, text)
    assert str(tmp_path / "x.toml") in str(caught.value)
    assert where in str(caught.value)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ('figure = "speed"\nat_least = 1', "total_iops"),
        ('figure = "total_iops"', "at_least: is missing"),
        ('figure = "share"\nat_least = 1', "tenant: is missing"),
        ('figure = "total_iops"\ntenant = "a"\nat_least = 1', "not of one tenant"),
        ('figure = "share"\ntenant = "b"\nat_least = 1', "valid are a"),
        ('figure = "total_iops"\nof = "cfq"\nat_least = 1', "valid are none"),
        ('figure = "total_iops"\nacross = "cgroups"\nat_least = 1', "no sweep"),
        ('figure = "cpu_ns_per_io"\nbetween = [0, 1]\nat_least = 1', "between"),
        ('figure = "share_error"\nbetween = [2, 1]\nat_most = 1', "ends before it starts"),
    ],
)
def test_an_expectation_that_makes_no_sense_is_refused(tmp_path: Path, keys: str, what: str) -> None:
    with pytest.raises(FairlaneError, match=r"\[\[expect\]\] number 1") as caught:
        parse(tmp_path, f'{DEVICE}{TENANT}[[expect]]\nknob = "bfq"\n{keys}\n')
    assert what in str(caught.value)


def test_a_cycle_of_cgroups_is_refused(tmp_path: Path) -> None:
    groups = '[[cgroup]]\nname = "g"\nparent = "h"\n[[cgroup]]\nname = "h"\nparent = "g"\n'
    with pytest.raises(FairlaneError, match="ancestor"):
        parse(tmp_path, DEVICE + groups + TENANT)


def test_a_modelled_ssd_alone_may_be_an_nvme_drive(tmp_path: Path) -> None:
    text = '[device]\nprofile = "{}"\ndevice = "{}"\n' + TENANT
    assert parse(tmp_path, text.format("zssd", "fl-nvme")).profile.device == "fl-nvme"
    assert parse(tmp_path, text.format("zssd", "fl-nvme").replace('device = "fl-nvme"\n', "")).profile.device is None
    with pytest.raises(FairlaneError, match=r"\[device\].*device: 'vssd' is unknown"):
        parse(tmp_path, text.format("zssd", "vssd"))
    with pytest.raises(FairlaneError, match=r"\[device\].*device"):
        parse(tmp_path, text.format("null", "fl-nvme"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match=r"nothing\.toml: cannot be read"):
        scenario_file.load(tmp_path / "nothing.toml")


# --- The page on the format ---

PAGE = (ROOT / "docs" / "scenarios.md").read_text()


def test_the_example_of_the_page_is_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(PAGE.split("```toml\n")[1].split("```")[0])
    found = scenario_file.load(file)
    assert [t.phases(found.seconds) for t in found.tenants] == [[(0, 10)], [(0, 10)], [(0, 4), (6, 10)]]


def test_the_page_has_every_key_and_every_knob() -> None:
    keys = [*TenantSpec.__dataclass_fields__, *Expect.__dataclass_fields__, *modelled_ssd.PLAYED]
    keys += [knob for knob in knobs.TABLE if knob not in schedulers.EXAMPLES]
    keys += ["seconds", "warmup", "repeats", "seed", "cgroups", "cores", "queues", "profile", "prices"]
    keys += Variant.__dataclass_fields__
    keys += [*scenario_file.FIGURES, *scenario_file.TENANT_FIGURES, *profiles.DEVICE_KEYS, *scenario_file.PATTERNS]
    keys += [*profiles.DEVICE_KEYS["null_blk"], *profiles.DEVICE_KEYS["qemu-nvme"]]
    assert [key for key in keys if f"`{key}`" not in PAGE] == []


# --- shares ---

NULL = Profile("null", "null_blk", "")


def test_a_share_is_the_product_along_the_path() -> None:
    groups = (Cgroup("gold", 300), Cgroup("bronze", 100))
    tenants = (TenantSpec("a", 200, "gold"), TenantSpec("b", 100, "gold"), TenantSpec("c", 50, "bronze"))
    assert shares(Scenario("x", NULL, tenants, groups)) == pytest.approx({"a": 0.5, "b": 0.25, "c": 0.25})


def test_a_cgroup_without_an_active_tenant_has_no_share() -> None:
    groups = (Cgroup("gold", 300), Cgroup("bronze", 100))
    tenants = (TenantSpec("a", 1, "gold"), TenantSpec("c", 1, "bronze"), TenantSpec("d", 3, "bronze"))
    found = shares(Scenario("x", NULL, tenants, groups), {"c", "d"})
    assert found == pytest.approx({"c": 0.25, "d": 0.75})


@given(st.lists(st.integers(1, 10000), min_size=1, max_size=40), st.data())
def test_shares_add_up_to_one(weights: list[int], data: st.DataObject) -> None:
    groups = (Cgroup("g", 300), Cgroup("h", 7, "g"))
    parents = st.sampled_from([None, "g", "h"])
    tenants = tuple(TenantSpec(f"t{i}", weight, data.draw(parents)) for i, weight in enumerate(weights))
    assert sum(shares(Scenario("x", NULL, tenants, groups)).values()) == pytest.approx(1)


def test_a_sweep_deals_its_tenants_out_to_the_cgroups() -> None:
    tenants = (TenantSpec("a", 1), TenantSpec("b", 2))
    found = Scenario("x", NULL, tenants, sweep=(3,)).at(3)
    assert [(t.name, t.weight) for t in found.tenants] == [("a0", 1), ("b1", 2), ("a2", 1)]
    assert not found.sweep


@pytest.mark.parametrize(
    ("start", "stop", "phases"),
    [(0, None, [(0, 9)]), (2, None, [(2, 9)]), (2, 5, [(2, 5)]), (6, 3, [(0, 3), (6, 9)])],
)
def test_a_tenant_that_stops_before_it_starts_comes_back(
    start: float, stop: float | None, phases: list[tuple[float, float]]
) -> None:
    assert TenantSpec("a", start=start, stop=stop).phases(9) == phases


# --- units ---


@given(st.integers(0, 2**60))
def test_a_size_in_bytes_is_itself(size: int) -> None:
    assert values.parse_size(size) == values.parse_size(f"{size}B") == size or size > 2**53


@given(st.text(max_size=12))
def test_a_text_is_a_size_or_the_units_are_listed(text: str) -> None:
    try:
        assert values.parse_size(text) >= 0
    except ValueError as error:
        assert "valid are B, KiB" in str(error)


# --- Defaults ---


def test_tenants_have_the_defaults_that_they_do_not_say_otherwise(tmp_path: Path) -> None:
    (tmp_path / "t.trace").write_text("0 0 0 8 1\n")
    text = f'{DEVICE}[defaults]\njobs = 4\nrw = "randrw"\nmix = 70\niodepth = 8\n'
    text += '[[tenant]]\nname = "a"\n[[tenant]]\nname = "b"\njobs = 2\nrw = "read"\n'
    text += '[[tenant]]\nname = "c"\ntrace = "t.trace"\n'
    a, b, c = parse(tmp_path, text).tenants
    assert (a.jobs, a.rw, a.mix, a.iodepth) == (4, "randrw", 70, 8)
    assert (b.jobs, b.rw, b.iodepth) == (2, "read", 8)
    assert (c.jobs, c.rw, c.iodepth) == (4, TenantSpec.rw, 8), "a trace says what is requested"


@pytest.mark.parametrize("key", ["name", "parent", "cases", "nonsense"])
def test_a_default_that_no_tenant_can_have_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(FairlaneError, match=rf"x.toml: \[defaults\] {key}: unknown key; valid are weight, latency"):
        parse(tmp_path, f'{DEVICE}[defaults]\n{key} = "x"\n{TENANT}')


@pytest.mark.parametrize(("key", "value"), [("jobs", "0"), ("rw", '"erase"'), ("start", "99")])
def test_a_bad_default_is_said_to_be_one(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(FairlaneError, match=rf"x.toml: \[defaults\] {key}: "):
        parse(tmp_path, f"{DEVICE}[defaults]\n{key} = {value}\n{TENANT}")
    with pytest.raises(FairlaneError, match=rf"x.toml: \[\[tenant\]\].* {key}: "):
        parse(tmp_path, f"{DEVICE}[defaults]\n{TENANT}{key} = {value}\n")


# --- Set for another load ---


def tuned(folder: Path, other: str, run: str = "") -> Scenario:
    (folder / "other.toml").write_text(other)
    return parse(folder, f'[run]\ntuned_for = "other.toml"\n{run}{DEVICE}{TENANT}rw = "randread"\n')


def test_a_scenario_may_say_which_load_knobs_are_set_for(tmp_path: Path) -> None:
    found = tuned(tmp_path, DEVICE + TENANT + 'rw = "randrw"\n')
    assert found.tuned_for
    assert [tenant.rw for tenant in (*found.tenants, *found.tuned_for.tenants)] == ["randread", "randrw"]


@pytest.mark.parametrize(
    ("other", "run", "says"),
    [
        ('[device]\nprofile = "p4500"\n' + TENANT, "", "other is for another drive; give both the same"),
        ("[run]\ncgroups = [1, 2]\n" + DEVICE + TENANT, "", "other has a sweep, or is itself tuned for another"),
        (DEVICE, "", r"other.toml: no \[\[tenant\]\]"),
        (DEVICE + TENANT, "cgroups = [1, 2]\n", "a sweep has a load of its own at each point"),
        (DEVICE + TENANT, "slack = true\n", "a knob that holds nobody back"),
    ],
)
def test_a_load_that_nothing_can_be_set_for_is_refused(tmp_path: Path, other: str, run: str, says: str) -> None:
    with pytest.raises(FairlaneError, match=r"x.toml: \[run\] tuned_for: .*" + says):
        tuned(tmp_path, other, run)
