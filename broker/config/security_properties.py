"""The properties that say where a node listens and whom it believes. Columns as in
`broker.config.property_declaration`.

Each of them may also be given for one listener: `listener.name.external.ssl.client.auth`. What they mean is decided in
`broker.config.listeners` and `broker.authentication`.
"""

from __future__ import annotations

from typing import Final

SECURITY: Final = """
authorizer.class.name | string | |  |  | Who decides what a user may do; empty: nobody does, and all may do all.
connection.failed.authentication.delay.ms | int | 100 | 0.. |  | How long who fails to authenticate is kept waiting.
connections.max.reauth.ms | long | 0 |  |  | How long a login is good; 0: for ever.
delegation.token.expiry.check.interval.ms | long | 3600000 | 1.. |  | How often expired tokens are removed.
delegation.token.expiry.time.ms | long | 86400000 | 1.. |  | How long a token is good until it is renewed.
delegation.token.master.key | password | - |  |  | The old name of the next but one.
delegation.token.max.lifetime.ms | long | 604800000 | 1.. |  | How long a token may be renewed.
delegation.token.secret.key | password | - |  |  | What secrets of tokens are made of, the same on all brokers; without it there are none.
inter.broker.listener.name | string | - |  |  | The listener by which nodes reach each other.
listener.security.protocol.map | string | SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT |  | broker | The protocol of each listener.
sasl.enabled.mechanisms | list | GSSAPI |  | broker | The mechanisms by which clients log in.
sasl.jaas.config | password | - |  | broker | The login module of a mechanism, with a prefix: its users, and as whom brokers log in.
sasl.mechanism.inter.broker.protocol | string | GSSAPI |  | broker | The mechanism by which brokers log in at each other.
sasl.login.callback.handler.class | class | - |  |  | Kafka's way to a token for brokers; here the next property says it.
sasl.oauthbearer.clock.skew.seconds | int | 30 |  |  | How much the clocks of issuer and broker may differ.
sasl.oauthbearer.expected.audience | list | - |  |  | For whom tokens have to be; without it, for nobody in particular.
sasl.oauthbearer.expected.issuer | string | - |  |  | Whose tokens have to be; without it, anybody's with these keys.
sasl.oauthbearer.jwks.endpoint.refresh.ms | long | 3600000 |  |  | How often keys at a URL are read.
sasl.oauthbearer.jwks.endpoint.url | string | - |  |  | Where the keys are by which tokens are signed: file:, https: or http:.
sasl.oauthbearer.scope.claim.name | string | scope |  |  | Where a token says what it is good for.
sasl.oauthbearer.sub.claim.name | string | sub |  |  | Where a token names its user.
sasl.oauthbearer.token.endpoint.url | string | - |  |  | The file: that has the token with which a broker logs in.
sasl.server.callback.handler.class | class | - |  | broker | Kafka's validator of signed tokens, or nothing.
sasl.server.max.receive.size | int | 524288 |  |  | The largest frame of who has not logged in.
security.inter.broker.protocol | string | PLAINTEXT | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |  | Their protocol, if inter.broker.listener.name is not set.
ssl.cipher.suites | list |  |  | broker | The cipher suites, by their IANA names.
ssl.client.auth | string | none | required, requested, none | broker | Whether clients show a certificate.
ssl.enabled.protocols | list | TLSv1.2,TLSv1.3 |  | broker | The versions of TLS.
ssl.endpoint.identification.algorithm | string | https |  | broker | Whether brokers check the names of brokers.
ssl.key.password | password | - |  | broker | The password of the private key.
ssl.keystore.certificate.chain | password | - |  | broker | The certificates of this node, as PEM.
ssl.keystore.key | password | - |  | broker | Its private key, as PEM.
ssl.keystore.location | string | - |  | broker | The file of key and certificates.
ssl.keystore.password | password | - |  | broker | Its password, if it is PKCS12.
ssl.keystore.type | string | JKS |  | broker | PEM or PKCS12.
ssl.principal.mapping.rules | string | DEFAULT |  |  | Which user a certificate stands for.
ssl.truststore.certificates | password | - |  | broker | The authorities that are believed, as PEM.
ssl.truststore.location | string | - |  | broker | The file of them.
ssl.truststore.password | password | - |  | broker | Its password, if it is PKCS12.
ssl.truststore.type | string | JKS |  | broker | PEM or PKCS12.
"""  # noqa: E501
