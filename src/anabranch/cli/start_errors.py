"""The message when a node or cluster cannot start: the system's error, and its remedy.

Errors are recognised by their number, never by their text. Other errors are shown unchanged.
"""

from __future__ import annotations

import errno
import socket
from typing import Final

ADDRESS_ADVICE: Final = {
    errno.EADDRINUSE: "another process uses this address: stop it, or write another port (0: a free one)",
    errno.EADDRNOTAVAIL: "this machine does not have that address: listen on one of its own, or on 0.0.0.0, and write "
    "--advertise with the address for clients",
    errno.EACCES: "no permission for this port: ports below 1024 are for root",
    errno.EPERM: "no permission for this port: ports below 1024 are for root",
}
FILES_ADVICE: Final = "too many open files: raise `ulimit -n`, or start fewer brokers"
NAME_ADVICE: Final = "cannot resolve the host name: write an address of this machine, such as 127.0.0.1"
PATH_ADVICE: Final = {
    errno.ENOENT: "the directory does not exist and cannot be created: name another --data-dir",
    errno.ENOTDIR: "a part of that path is a file: name another --data-dir",
    errno.EEXIST: "a file has the name of the directory: name another --data-dir",
    errno.EACCES: "no permission to write there: name another --data-dir, or change its owner",
    errno.EPERM: "no permission to write there: name another --data-dir, or change its owner",
    errno.EROFS: "the file system is read-only: name another --data-dir",
    errno.ENOSPC: "the disk is full: free space, or name another --data-dir",
    errno.EDQUOT: "the disk quota is exhausted: free space, or name another --data-dir",
}


def cannot_start(error: BaseException) -> str:
    """The one-line message for an error that ended the start."""
    if isinstance(error, socket.gaierror):
        return f"cannot start: {error.strerror}; {NAME_ADVICE}"
    if not isinstance(error, OSError) or error.errno is None:
        return f"cannot start: {error}"
    if error.errno == errno.EMFILE:
        return f"cannot start: {error.strerror}; {FILES_ADVICE}"
    reason = error.strerror or str(error)
    if error.filename is not None:
        reason, advice = f"{error.filename}: {reason}", PATH_ADVICE.get(error.errno)
    else:
        advice = ADDRESS_ADVICE.get(error.errno)
    return f"cannot start: {reason}" + (f"; {advice}" if advice else "")
