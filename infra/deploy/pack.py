"""Packs the functions as Lambda takes them: one zip each, with the executable as `bootstrap`."""

import zipfile
from pathlib import Path

FUNCTIONS = ("receiver", "worker", "sweeper")

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can name: the same executable makes the same zip, byte for byte."""


def pack(executable: Path, zipped: Path, level: int = 9) -> Path:
    """Zips `executable`; a lower `level` is quicker and larger."""
    entry = zipfile.ZipInfo("bootstrap", EPOCH)
    entry.external_attr = 0o100755 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr(entry, executable.read_bytes(), compresslevel=level)
    return zipped
