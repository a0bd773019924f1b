# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`python -m fairlane` is the same as the `fairlane` command."""

import sys

from fairlane.cli import main

if __name__ == "__main__":
    sys.exit(main())
