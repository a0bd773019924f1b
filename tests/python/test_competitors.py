# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane doctor` finds who else sets schedulers and weights."""

from pathlib import Path

from fairlane.linux import competitors
from fairlane.places import ROOT


def test_a_udev_rule_that_writes_a_scheduler_is_found(tmp_path: Path) -> None:
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    etc.mkdir()
    lib.mkdir()
    setting = 'ACTION=="add|change", KERNEL=="nvme*", ATTR{queue/scheduler}="none"\n'
    for path, text in {
        etc / "60-io.rules": setting,
        etc / "61-off.rules": f"# {setting}",
        etc / "62-asks.rules": 'ATTR{queue/scheduler}=="none", RUN+="x"\n',
        lib / "61-off.rules": setting,  # another of that name is before it
        lib / "63-lib.rules": setting,
        lib / "90-fairlane.rules": setting,
    }.items():
        path.write_text(text)
    assert competitors.udev_rules((etc, lib)) == [etc / "60-io.rules", lib / "63-lib.rules"]


def test_our_own_rule_writes_none_where_ours_has_failed_and_nothing_else() -> None:
    lines = (ROOT / "packaging" / "udev" / competitors.OURS).read_text().splitlines()
    writes = [line for line in lines if competitors.SCHEDULER.search(line)]
    assert len(writes) == 1
    assert 'ENV{FAIRLANE_LET_GO}=="queue"' in writes[0] and writes[0].endswith('ATTR{queue/scheduler}="none"')


def test_tuned_is_followed_to_the_profile_that_sets_it(tmp_path: Path) -> None:
    (tmp_path / "active").write_text("mine\n")
    for name, text in {"mine": "[main]\ninclude=base,other\n", "base": "[disk]\nelevator=bfq\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tuned.conf").write_text(text)
    found = competitors.tuned(tmp_path / "active", (tmp_path,))
    assert found == [tmp_path / "base" / "tuned.conf"]
    assert competitors.tuned(tmp_path / "none", (tmp_path,)) == []


def test_io_cost_and_owners_of_weights_are_found(tmp_path: Path) -> None:
    (tmp_path / "io.cost.qos").write_text("8:0 enable=0 ctrl=auto\n8:16 enable=1 ctrl=user\n")
    for name, weight in {
        "a": "default 100",
        "b.service": "default 300",
        "c": "default 100\n8:0 200",
        "docker-1.scope": "default 1920",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "io.weight").write_text(f"{weight}\n")
    assert competitors.io_cost(tmp_path) == ["8:16"]
    assert competitors.owners(tmp_path) == [
        "b.service counts as 300 (systemd)",
        "c counts as 100, 200 on 8:0 (by hand)",
        "docker-1.scope counts as 200 (a container's runtime)",
    ]
