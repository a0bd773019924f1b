# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Random cases are the same in each run, and none fails because the machine is busy."""

from hypothesis import HealthCheck, settings

settings.register_profile("fairlane", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fairlane")
