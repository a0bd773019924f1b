# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""README's commands in a Debian with nothing but its base, git, a C compiler, make and Python.

And the packages: built there, and a program linked with the library's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import roots

from fairlane import proc
from fairlane.places import ROOT
from fairlane.vm import kernels

LIMIT_S = 7200.0
HAS = ("git", "gcc", "libc6-dev", "make", "python3", "ca-certificates")
COMMANDS = {
    "demo": "make demo\nmake demo",  # it can be run again at once
    "test": "make test",
    "deb": """apt-get -q build-dep -y ./packaging
make deb
apt-get -q install -y pkg-config ./build/deb/libfairlane*.deb
cc -o /tmp/example libfairlane/example.c $(pkg-config --cflags --libs libfairlane)
/tmp/example && test -e /usr/share/man/man3/libfairlane.3*""",
}


@pytest.mark.long
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_fresh_debian_needs_nothing_else(suite: str, command: str) -> None:
    roots.need("mmdebstrap")
    with tempfile.TemporaryDirectory(dir=kernels.cache_dir(), prefix="fresh-") as temp:
        root = Path(temp, "root")
        archives = roots.sources(Path(temp), suite, f"{suite}-security")
        roots.apart('exec "$@"', "sh", *roots.BOOTSTRAP, f"--include={','.join(HAS)}", suite, str(root), str(archives))
        proc.output(["git", "clone", "-q", ROOT, root / "root/fairlane"], what="git clone", limit_s=LIMIT_S)
        # Where a proxy looks into what is fetched, this machine's certificates are those to trust.
        certificates = 'cp /etc/ssl/certs/ca-certificates.crt "$2/etc/ssl/certs/"'
        script = f'{certificates}\nmount -t sysfs -o ro sysfs "$2/sys"\n{roots.ENTER}'
        here = f"cd /root/fairlane\napt-get -q update\n{COMMANDS[command]}"
        print(roots.apart(script, "sh", "", str(root), here, limit_s=LIMIT_S))
