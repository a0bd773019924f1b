# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fairlane: fair-share I/O scheduling for multi-queue SSDs, and the bench that shows what each scheduler does."""

__version__ = "0.1.0"
