"""Packs the functions as Lambda takes them: one zip each, with the executable as `bootstrap`."""

import sys
import zipfile
from pathlib import Path

FUNCTIONS = ("receiver", "worker", "sweeper")

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can name: the same executable makes the same zip, byte for byte."""

LARGEST_ZIP_BYTES = 5_000_000
"""What was measured is at most 4.3 MB. A zip is fetched and unpacked at each cold start, so a
dependency that makes it a sixth larger is to be noticed, and argued here."""


MACHINES = {0x3E: "x86_64", 0xB7: "arm64"}
"""What an executable's header says, by Lambda's names."""


def architecture(executable: Path) -> str:
    """What an executable was built for."""
    with executable.open("rb") as file:
        header = file.read(20)
    return MACHINES[int.from_bytes(header[18:20], "little")]


def pack(executable: Path, zipped: Path, level: int = 9) -> Path:
    """Zips `executable`; a lower `level` is quicker and larger."""
    entry = zipfile.ZipInfo("bootstrap", EPOCH)
    entry.external_attr = 0o100755 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr(entry, executable.read_bytes(), compresslevel=level)
    return zipped


def main() -> int:
    """Packs what cargo-lambda built into the folder named; says no if a zip is too large."""
    built = Path(sys.argv[1])
    too_large = False
    for function in FUNCTIONS:
        zipped = pack(built / function / "bootstrap", built / f"{function}.zip")
        size = zipped.stat().st_size
        verdict = "" if size <= LARGEST_ZIP_BYTES else f", more than {LARGEST_ZIP_BYTES:,}"
        print(f"{zipped}: {size:,} bytes{verdict}")
        too_large |= size > LARGEST_ZIP_BYTES
    return int(too_large)


if __name__ == "__main__":
    sys.exit(main())
