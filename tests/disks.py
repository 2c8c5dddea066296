"""Small disks that can be filled and made read-only: file systems in memory."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PAGE = 4096  # the unit in which space is taken


@dataclass(frozen=True)
class Disk:
    root: Path

    @property
    def _ballast(self) -> Path:
        return self.root / "ballast"

    def fill(self, pages: int = 0) -> None:
        """Leave no more than so many pages of free space."""
        with open(self._ballast, "wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(PAGE)) == PAGE:
                pass
        with open(self._ballast, "r+b") as file:
            file.truncate(max(0, self._ballast.stat().st_size - pages * PAGE))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def protect(self) -> None:
        _mount("-o", "remount,ro", str(self.root))

    def release(self) -> None:
        _mount("-o", "remount,rw", str(self.root))


@contextmanager
def small_disk(megabytes: int = 4) -> Iterator[Disk]:
    """A disk of its own; raises PermissionError if this user may not mount one."""
    root = Path(tempfile.mkdtemp(prefix="windrow-disk-"))
    root.chmod(0o755)
    try:
        _mount("-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", str(root))
        try:
            yield Disk(root)
        finally:
            subprocess.run(["umount", str(root)], check=True)
    finally:
        root.rmdir()


def _mount(*arguments: str) -> None:
    found = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if found.returncode:
        raise PermissionError(found.stderr.strip())
