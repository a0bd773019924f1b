# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A price list prices every size, as kernel and simulator do, and one that is wrong is refused in a sentence."""

from pathlib import Path

import pytest

from fairlane.errors import FairlaneError
from fairlane.experiment import expectations, price_lists, scenario_file
from fairlane.experiment.model import Expect, Profile, Scenario, TenantSpec, from_dict, to_dict
from fairlane.experiment.results import Results, Run, Tenant

FILE = """
page = "16KiB"

[price.read]
16KiB = 0.5
64KiB = 1.75

[price.write]
16KiB = 1.0
32KiB = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "drive.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("op", "size", "price"),
    [
        ("write", 16 << 10, 1.0),
        ("read", 4 << 10, 0.125),  # a part of a page, in proportion
        ("read", 512, 0.015625),
        ("read", 32 << 10, 1.0),  # not measured: twice that of half the size
        ("read", 64 << 10, 1.75),
        ("read", 128 << 10, 3.5),
        ("read", 1 << 20, 28.0),
        ("read", 20 << 10, 0.625),  # the sum of its parts
        ("read", (2 << 20) + (16 << 10), 56.5),
        ("write", 48 << 10, 3.0),
    ],
)
def test_every_size_has_its_price(file: Path, op: str, size: int, price: float) -> None:
    assert price_lists.load(str(file)).cost(op, size) == price


def test_the_kernel_gets_all_prices_in_fixed_point(file: Path) -> None:
    read, write = price_lists.load(str(file)).text().splitlines()
    assert read.split() == ["read", *map(str, (64, 128, 256, 512, 1024, 2048, 4096, 7168, 14336, 28672, 57344, 114688))]
    assert write.split()[:7] == ["write", "128", "256", "512", "1024", "2048", "4096"]


def test_a_size_between_costs_no_more_than_the_larger_one() -> None:
    prices = price_lists.make({"4KiB": 1.0, "16KiB": 1.5, "64KiB": 8.0}, 4096, "")
    assert [price / price_lists.ONE for price in prices[3:9]] == [1.0, 1.5, 1.5, 3.0, 8.0, 16.0]


def test_nothing_is_free(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('page = "1MiB"\n[price.read]\n1MiB = 0.001\n[price.write]\n1MiB = 1.0\n')
    assert price_lists.load(str(path)).cost("read", 512) == 1 / price_lists.ONE


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"16KiB"', '"3KiB"', "page: '3KiB' is not a size such as 16KiB"),
        ("[price.read]", "[price.reads]", "must be two tables"),
        ("16KiB = 0.5", "", "16KiB, one page, is missing"),
        ("16KiB = 0.5", "16KiB = 0", "is not a price"),
        ("16KiB = 0.5", "16KiB = -1.0", "is not a price"),
        ("16KiB = 0.5", "16KiB = nan", "is not a price"),
        ("16KiB = 0.5", '16KiB = "0.5"', "is not a price"),
        ("64KiB = 1.75", "64KiB = 300", "costs more than 4096 reference requests"),
        ("64KiB", "60KiB", "60KiB is not a size; valid are 512B"),
        ("16KiB = 1.0", "16KiB = 1.1", "must be 1.0: a write of one page is the reference"),
        ("page", "page =", "not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_cost_file_is_said(file: Path, old: str, new: str, says: str) -> None:
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(FairlaneError, match=r"drive\.toml: ") as error:
        price_lists.load(str(file))
    assert says in str(error.value)


def test_a_file_that_is_not_there_is_said_with_what_is() -> None:
    with pytest.raises(FairlaneError, match=r"nope: cannot be read .*p3700"):
        price_lists.load("nope")


def test_a_scenario_names_the_price_list_of_its_drive(file: Path) -> None:
    path = file.parent / "scenario.toml"
    text = '[device]\nprofile = "p3700"\nprices = "{}"\n[[tenant]]\nname = "a"\n'
    path.write_text(text.format("drive.toml"))
    found = scenario_file.load(path)
    assert found.prices == price_lists.load(str(file)).__class__(
        **{**vars(price_lists.load(str(file))), "name": "drive.toml"}
    )
    assert from_dict(to_dict(found)) == found
    path.write_text(text.format("p3700"))
    assert scenario_file.load(path).prices == price_lists.load("p3700")
    path.write_text(text.format("p37"))
    with pytest.raises(FairlaneError, match=r"\[device\] prices: .*p37: cannot be read"):
        scenario_file.load(path)


def judged(figure: str, tenant: str | None, costs: tuple[float | None, float | None]) -> float | None:
    """The figure of two tenants of weights 300 and 100 that got as many bytes, for those costs."""
    what = Scenario("x", Profile("null", "null_blk", ""), (TenantSpec("a", 300), TenantSpec("b", 100)))
    tenants = [Tenant(n, 1, 0.5, 100.0, 1.0, 100.0, 0.0, c) for n, c in zip("ab", costs, strict=True)]
    results = Results("x", "sim", 1, "0", runs=[Run("none", 0, 2.0, tenants, 200.0, 2.0, None, None)])
    what = Scenario("x", what.profile, what.tenants, expects=(Expect(figure, "none", tenant=tenant, at_least=0),))
    return expectations.evaluate(what, results, ["none"])[0].measured


def test_expectations_by_cost_are_judged_by_cost() -> None:
    assert judged("cost_share", "a", (600.0, 200.0)) == pytest.approx(0.75)
    assert judged("cost_share_error", None, (600.0, 200.0)) == pytest.approx(0)
    assert judged("cost_fairness_index", None, (600.0, 200.0)) == pytest.approx(1)
    assert judged("cost_fairness_index", None, (0.0, 200.0)) == pytest.approx(0.5)
    assert judged("total_cost_per_s", None, (600.0, 200.0)) == pytest.approx(800)
    assert judged("share", "a", (600.0, 200.0)) == pytest.approx(0.5)


def test_by_cost_nothing_is_known_without_a_price_list() -> None:
    assert judged("cost_fairness_index", None, (None, None)) is None
