"""Reads the zip file of a snapshot in slices, with bounds on its inflated size and number of files. Pure.

The central directory is bounded before `zipfile` reads it, because each of its entries becomes an object. A file is
inflated in slices and counted as it grows, because the sizes stated in a zip file are not trusted. The generator yields
None between two slices, to let the loop run other tasks.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work in steps of some milliseconds; the generator's return value is the result."""

SLICE_BYTES: Final = 1 << 20
DIRECTORY_BYTES_MAX: Final = 2 << 20
"""The maximum size of the central directory: about 20,000 files."""
END: Final = b"PK\x05\x06"
END_BYTES: Final = 22
END64: Final = b"PK\x06\x06"
END64_BYTES: Final = 56
LOCATOR: Final = b"PK\x06\x07"
LOCATOR_BYTES: Final = 20
METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, struct.error)
"""What `zipfile` raises for invalid or unsupported zip files."""


class BadZip(ValueError):
    """An unreadable or too large zip file; the message contains the reason."""


def finish(steps: Steps[T]) -> T:
    """Run all steps at once, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def read_zip(content: bytes, inflated_bytes_max: int | None) -> Steps[dict[str, bytes]]:
    """Read the content of each file by its name; None: without a bound. BadZip names the error."""
    if inflated_bytes_max is not None and _directory_bytes(content) > DIRECTORY_BYTES_MAX:
        raise BadZip("it names too many files")
    found: dict[str, bytes] = {}
    inflated_bytes = 0
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for number, info in enumerate(archive.infolist()):
                if info.compress_type not in METHODS:
                    raise BadZip(f"{info.filename[:80]!r} is neither stored nor deflated")
                data = bytearray()
                with archive.open(info) as file:
                    while part := file.read(SLICE_BYTES):
                        data += part
                        inflated_bytes += len(part)
                        if inflated_bytes_max is not None and inflated_bytes > inflated_bytes_max:
                            raise BadZip(f"it inflates to more than {inflated_bytes_max} bytes")
                        if len(part) > SLICE_BYTES // 100 or not number % 100:
                            yield
                found[info.filename] = bytes(data)
    except BROKEN as error:
        raise BadZip(str(error)) from None
    return found


def _directory_bytes(content: bytes) -> int:
    """The size of the central directory as stated at the end of the file. BadZip if the end is invalid."""
    at = len(content) - END_BYTES
    if at < 0 or not content.startswith(END, at) or not content.endswith(bytes(2)):
        raise BadZip("File is not a zip file, or has a comment")
    (size,) = struct.unpack_from("<L", content, at + 12)
    locator, end64 = at - LOCATOR_BYTES, at - LOCATOR_BYTES - END64_BYTES
    if end64 >= 0 and content.startswith(LOCATOR, locator) and content.startswith(END64, end64):
        (size,) = struct.unpack_from("<Q", content, end64 + 40)
    return int(size)
