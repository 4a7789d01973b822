"""The properties that say where a node listens and whom it believes. Columns as in `broker.properties`.

Each of them may also be given for one listener: `listener.name.external.ssl.client.auth`. What they mean is decided in
`broker.listeners` and `broker.security`.
"""

from __future__ import annotations

from typing import Final

SECURITY: Final = """
inter.broker.listener.name | string | - |  |  | The listener by which nodes reach each other.
listener.security.protocol.map | string | SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT |  | broker | The protocol of each listener.
security.inter.broker.protocol | string | PLAINTEXT | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |  | Their protocol, if inter.broker.listener.name is not set.
"""  # noqa: E501
