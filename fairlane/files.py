# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fairlane.errors import FairlaneError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of folders, on some file systems
NO_SPACE_ANYWHERE = "no space left; free some and start the same command again"


class NoSpace(FairlaneError):
    def __init__(self, where: str | Path) -> None:
        super().__init__(f"{where}: {NO_SPACE_ANYWHERE}")


@contextmanager
def new_file(path: Path, mode: int = 0o644) -> Iterator[Callable[[str | bytes], None]]:
    """Yields what writes the file: whole, or, when anything fails before, not at all. Fails at once if it cannot be."""
    if path.exists() and not path.is_file():  # a device would become a file
        raise FairlaneError(f"{path} is no file, and will not be replaced by one; choose another path")
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
    part = Path(name)

    def write(content: str | bytes) -> None:
        with written(path):
            with part.open("w" if isinstance(content, str) else "wb") as file:  # closing writes, and fails as that does
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.chmod(mode)
            part.replace(path)

    try:
        yield write
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def held(*folders: Path) -> Iterator[None]:
    """Within it, no other command that asks here has one of these folders. They are made; empty, they go again."""
    with ExitStack() as stack:
        for folder in dict.fromkeys(folders):
            if not folder.exists():
                stack.callback(_remove_if_empty, folder)
            with written(folder):
                folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FairlaneError(
                    f"{folder}: another command writes there now; wait for its end, or choose another folder with --out"
                ) from None
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
        yield


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Within it, what cannot be written is a sentence with that path."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:  # elsewhere, what is done here would have to be done again
            raise NoSpace(path) from error
        raise FairlaneError(f"{path}: cannot be written ({error.strerror}); choose another place with --out") from error


def write_json(path: Path, data: object) -> None:
    with new_file(path) as write:
        write(json.dumps(data, indent=1))
