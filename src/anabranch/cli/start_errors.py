"""The message when a node or cluster cannot start: the system's error, and its remedy.

Errors are recognised by their number, never by their text. Other errors are shown unchanged.
"""

from __future__ import annotations

import errno
import socket
from typing import Final

ADDRESS_ADVICE: Final = {
    errno.EADDRINUSE: "another process listens there already: stop it, or write another port (0: a free one)",
    errno.EADDRNOTAVAIL: "this machine does not have that address: listen on one of its own, or on 0.0.0.0, and name "
    "with --advertise what clients shall connect to",
    errno.EACCES: "this user may not listen there: ports below 1024 are for root",
    errno.EPERM: "this user may not listen there: ports below 1024 are for root",
}
FILES_ADVICE: Final = "this process may open no more files: raise `ulimit -n`, or begin with fewer brokers"
NAME_ADVICE: Final = "no address is known for that name: write an address of this machine, such as 127.0.0.1"
PATH_ADVICE: Final = {
    errno.ENOENT: "that folder is not there and cannot be made: name another --data-dir",
    errno.ENOTDIR: "a part of that path is a file: name another --data-dir",
    errno.EEXIST: "there is a file where a folder should be: name another --data-dir",
    errno.EACCES: "this user may not write there: name another --data-dir, or change its owner",
    errno.EPERM: "this user may not write there: name another --data-dir, or change its owner",
    errno.EROFS: "that file system is read-only: name another --data-dir",
    errno.ENOSPC: "that disk is full: make room, or name another --data-dir",
    errno.EDQUOT: "the disk quota is used up: make room, or name another --data-dir",
}


def cannot_start(error: BaseException) -> str:
    """The one-line message for an error that ended the start."""
    if isinstance(error, socket.gaierror):
        return f"cannot start: {error.strerror}; {NAME_ADVICE}"
    if not isinstance(error, OSError) or error.errno is None:
        return f"cannot start: {error}"
    if error.errno == errno.EMFILE:
        return f"cannot start: {error.strerror}; {FILES_ADVICE}"
    said = error.strerror or str(error)
    if error.filename is not None:
        said, advice = f"{error.filename}: {said}", PATH_ADVICE.get(error.errno)
    else:
        advice = ADDRESS_ADVICE.get(error.errno)
    return f"cannot start: {said}" + (f"; {advice}" if advice else "")
