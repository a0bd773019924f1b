# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How many loads of each property of test_isolation.py's fail, and by how much, by scheduler (docs/isolation.md).

.venv/bin/python tests/sim/count_isolation.py [SCHEDULER ...]
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import simkit
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from test_isolation import CROWDS, FEW, SHARING, Try, loads, over, play, seconds_of

LOADS = 200
NOTHING = 1000.0  # times
KINDS = {"few": loads(*FEW), "crowds": loads(*CROWDS)}


def examples(of: st.SearchStrategy[Try]) -> list[Try]:
    """The same each time, however the simulator answers."""
    found: list[Try] = []

    @seed(1)
    @settings(max_examples=LOADS, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(load=of)
    def note(load: Try) -> None:
        found.append(load)

    note()
    return found[:LOADS]


def worst(knob: str, load: Try) -> float:
    """By how many times its due somebody got too much in any second; 0: nobody did."""
    wrong = [text for got in seconds_of(play(knob, load)) for text in over(load, got)]
    return max((float(times) for text in wrong for times in re.findall(r"([\d.]+) times", text)), default=0.0)


def main(knobs: list[str]) -> None:
    simkit.build()
    with ProcessPoolExecutor() as pool:
        for kind, of in KINDS.items():
            played = examples(of)
            for knob in knobs:
                bad = [times for times in pool.map(partial(worst, knob), played, chunksize=4) if times]
                most = max(bad, default=0.0)
                how = f"{most:.2f} times" if most < NOTHING else "somebody gets nothing"
                print(f"{kind}: {knob} fails {len(bad)} of {len(played)}, at worst: {how}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [knob for knob in SHARING if knob != "d2fq"])
