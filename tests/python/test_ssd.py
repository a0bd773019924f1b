# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What Python reads from the lists of a drive's numbers is what C has of them, and scenarios are held to it."""

import subprocess
from pathlib import Path

import pytest

from fairlane import places
from fairlane.errors import FairlaneError
from fairlane.experiment import modelled_ssd, profiles, scenario_file

DUMP = r"""
#include <stdio.h>
#include "ssd/profile.h"

#define U64_ROW(n, u, lo, hi, d, h) \
	printf("%s|%s|%llu|%llu|%llu|%s\n", #n, u, 0ull + (lo), 0ull + (hi), 0ull + (d), h);
int main(void)
{
	LIST(U64_ROW)
}
"""


@pytest.mark.parametrize(("header", "name"), [("ssd/profile.h", "SSD_PROFILE"), ("kernel/vssd/vssd.h", "VSSD_PARAMS")])
def test_fields_are_those_of_the_c_compiler(tmp_path: Path, header: str, name: str) -> None:
    # The kernel's header needs the kernel's: its list alone is taken.
    text = (places.ROOT / header).read_text()
    macro = text[text.index(f"#define {name}(F)") :].split("\n\n", 1)[0]
    source = tmp_path / "dump.c"
    source.write_text(DUMP.replace("int main", f"{macro}\n\nint main").replace("LIST", name))
    subprocess.run(["cc", "-I", places.ROOT, "-o", tmp_path / "dump", source], check=True)
    said = subprocess.run([tmp_path / "dump"], check=True, capture_output=True, text=True).stdout
    want = [line.split("|") for line in said.splitlines()]
    found = modelled_ssd.fields(places.ROOT / header).values()
    assert [[f.name, f.unit, str(f.low), str(f.high), str(f.default), f.help] for f in found] == want
    assert want


def test_a_number_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.h"
    path.write_text('#define LIST(F) F(a, "ns", 0, 10, 1, "one") F(b, "ns", 0, MAX, 1, "two")\n')
    with pytest.raises(FairlaneError, match="cannot read"):
        modelled_ssd.fields(path)


def device(folder: Path, text: str) -> dict[str, int]:
    path = folder / "x.toml"
    path.write_text(f'[device]\nprofile = "p4500"\n{text}\n[[tenant]]\nname = "a"\n')
    return scenario_file.load(path).profile.params


def test_a_scenario_may_change_the_drive_and_how_it_is_played(tmp_path: Path) -> None:
    params = device(tmp_path, 'time_scale = 100\nmap = "1GiB"')
    assert params == profiles.load_profile("p4500").params | {"time_scale": 100, "map": 1 << 30}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("time_scale = 0", "time_scale: 0 is not a whole number from 1 to 1000000"),
        ("planes = 17", "planes: 17 is not a whole number from 1 to 16"),
        ('page = "2MiB"', "page: 2097152 is not a whole number from 512 to 1048576"),
        ('planes = "2B"', "planes: '2B' is not a whole number"),
        ("hw_queue_depth = 8", "hw_queue_depth: unknown key; valid are profile, prices, device, size"),
    ],
)
def test_a_number_out_of_its_range_is_said_with_its_place(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(FairlaneError) as error:
        device(tmp_path, text)
    assert f"x.toml: [device] {what}" in str(error.value)
