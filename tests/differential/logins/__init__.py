"""Login stories for Kafka's broker and Anabranch: right, wrong, altered, repeated, out of order, late.

Importing these modules fills `story.STORIES`. The listeners:

ALL      SASL_PLAINTEXT with PLAIN, both SCRAMs, and OAUTHBEARER with unsigned tokens
SIGNED   SASL_PLAINTEXT with OAUTHBEARER, signed tokens for the audience `kafka` of one issuer
SHORT    SASL_PLAINTEXT with PLAIN and SCRAM-SHA-256, whose sessions last 1.6 s
TLS      SSL; MUTUAL: SSL with a client certificate
"""

from tests.differential.logins import oauthbearer, order, plain, scram, sessions, tls

__all__ = ["oauthbearer", "order", "plain", "scram", "sessions", "tls"]
