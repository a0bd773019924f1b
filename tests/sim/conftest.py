# SPDX-License-Identifier: GPL-2.0-only OR MIT
import pytest
import simkit


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    simkit.build()
