# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The one exception that a user gets to see."""


class FairlaneError(Exception):
    """Wrong use or a broken machine: one clear sentence that says what is wrong, where, and what to do.

    The command line prints it to stderr and exits with 2.
    """
