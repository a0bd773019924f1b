# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The one exception that a user gets to see, and what its sentences have in common."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FairlaneError(Exception):
    """Wrong use or a broken machine: one clear sentence that says what is wrong, where, and what to do.

    The command line prints it to stderr and exits with 2.
    """


def offer(word: str, valid: Iterable[str]) -> str:
    """The end of a sentence about a word that is none of the valid ones."""
    valid = list(valid)
    meant = difflib.get_close_matches(word, valid, 1)
    return f"valid are {', '.join(valid)}" + (f"; did you mean {meant[0]}?" if meant else "")
