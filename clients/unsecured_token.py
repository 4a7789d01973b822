"""Creates unsigned tokens (JWS with `alg: none`), from the options of Kafka's unsecured login.

For tests only: a broker that accepts such tokens authenticates everybody.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from anabranch.clients.clock import wall_clock_ms

LIFETIME_S: Final = 3600
_STRING: Final = "unsecuredLoginStringClaim_"
_NUMBER: Final = "unsecuredLoginNumberClaim_"
_LIST: Final = "unsecuredLoginListClaim_"


def unsecured_token(options: Mapping[str, str], now_s: float | None = None) -> str:
    """Return a token with the claims of a login module's options, and a default lifetime of one hour."""
    now = wall_clock_ms() / 1000 if now_s is None else now_s
    lifetime_s = float(options.get("unsecuredLoginLifetimeSeconds", LIFETIME_S))
    claims: dict[str, Any] = {"iat": now, "exp": now + lifetime_s}
    for name, text in options.items():
        if name.startswith(_STRING):
            claims[name[len(_STRING) :]] = text
        elif name.startswith(_NUMBER):
            claims[name[len(_NUMBER) :]] = float(text)
        elif name.startswith(_LIST) and text:
            claims[name[len(_LIST) :]] = text[1:].split(text[0])
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: dict[str, Any]) -> str:
    text = json.dumps(content, separators=(",", ":"))
    for character in ">?~":  # of ASCII only these encode to + or /, which bearer tokens may not contain
        text = text.replace(character, f"\\u{ord(character):04x}")
    raw = text.encode()
    return base64.b64encode(raw).rstrip(b"=").decode()
