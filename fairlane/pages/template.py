# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Templates made into pages: one self-contained HTML file each."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from fairlane.errors import FairlaneError
from fairlane.formats import fmt_error, fmt_iops, fmt_rate, fmt_ratio, fmt_share, fmt_signed, fmt_us, fmt_value
from fairlane.pages.plot import knob_styles


@cache
def template(name: str = "report.html.j2") -> jinja2.Template:
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("fairlane.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (fmt_rate, fmt_iops, fmt_ratio, fmt_share, fmt_error, fmt_signed, fmt_us, fmt_value)
    env.filters |= {f.__name__.removeprefix("fmt_"): f for f in formats}
    env.globals["knob_styles"] = knob_styles
    return env.get_template(name)


def save(page: str, path: Path) -> None:
    """Write the page, making its folder; raises FairlaneError when that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise FairlaneError(f"{path}: cannot be written ({error.strerror}); choose another file with --out") from error
