"""The declared properties of a node, its network and its security. `broker.config.config_def` explains the columns.

A property of listeners, TLS or SASL can also be set for one listener: `listener.name.external.ssl.client.auth`.
Sources: Kafka's `KafkaConfig`, and `DynamicBrokerConfig` for the update modes.
"""

from __future__ import annotations

from typing import Final

NODE: Final = """
[broker] the node and its cluster
broker.id | int | -1 |  |  | The id of this node, unique in the cluster.
broker.rack | string | - |  |  | The rack of the node; the replicas of a partition are spread over racks.
crash.at internal | string |  |  |  | A step at which the process exits hard, for tests: resize:after-plan.
kafka.release internal | string |  |  |  | The Kafka whose feature levels a new cluster begins with, if it is not kafka.version.
kafka.version internal | string | 3.9 |  |  | Which Kafka the node shows to its clients.
node.id | int | -1 |  |  | The id of this node, unique in the cluster.
withheld.features ..3.9 | list |  |  |  | Features that the node does not announce, as an older release would; for tests.

[broker] ZooKeeper
zookeeper.auth ..3.9 | password | - |  |  | The node's login at ZooKeeper: digest:USER:PASSWORD.
zookeeper.session.timeout.ms ..3.9 | int | 18000 |  |  | The timeout of the node's session at ZooKeeper.
zookeeper.set.acl ..3.9 | boolean | false |  |  | Whether znodes are writable only for the login of the nodes.

[broker] listeners and connections
advertised.listeners ..3.9 | string | - |  | broker | The addresses that clients and other nodes connect to.
advertised.listeners 4.0.. | string | - |  |  | The addresses that clients and other nodes connect to.
connections.max.idle.ms | long | 600000 |  |  | How long a connection may be idle before it is closed.
inter.broker.listener.name | string | - |  |  | The listener that nodes use between each other.
inter.broker.requests.restricted internal | boolean | false |  |  | Whether only the listener between brokers accepts requests of brokers.
listener.security.protocol.map | string | SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT |  | broker | The protocol of each listener.
listeners | string | - |  | broker | The addresses that this node listens on.
max.connection.creation.rate | int | 2147483647 | 0.. | cluster | The most new connections per second.
max.connections | int | 10000 | 0.. | cluster | The most connections at a time.
max.connections.per.ip | int | 2147483647 | 0.. | cluster | The most connections at a time from one address.
max.connections.per.ip.overrides | string |  |  | cluster | The most connections of single addresses: 10.0.0.1:5,10.0.0.2:9.
max.request.partition.size.limit | int | 131072 | 1.. |  | The most topics, partitions and similar entries of a request.
queued.max.request.bytes | long | 104857600 |  |  | The bytes of queued requests at which no more are read; -1: without bound.
queued.max.response.bytes | long | 134217728 |  |  | The bytes of unsent responses at which requests wait; -1: without bound.
request.timeout.ms | int | 30000 |  |  | The timeout of requests between nodes.
security.inter.broker.protocol | string | PLAINTEXT | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |  | The protocol between brokers, if inter.broker.listener.name is not set.
socket.request.max.bytes | int | 104857600 | 1.. |  | The largest request that is read.

[broker] quotas and telemetry
client.telemetry.enable internal | boolean | false |  |  | Whether a node that shows a Kafka 4 accepts metrics that clients push.
quota.window.num | int | 11 | 1.. |  | How many windows the rates of clients are measured over.
quota.window.size.seconds | int | 1 | 1.. |  | The length of a window in which rates of clients are measured.
telemetry.max.bytes | int | 1048576 | 1.. |  | The largest push of metrics that is accepted from a client.

[broker] authentication and authorization
allow.everyone.if.no.acl.found internal | boolean | false |  |  | Whether everybody may use a resource that has no ACL.
authorizer.class.name | string |  |  |  | The authorizer; empty: every user may do everything.
connection.failed.authentication.delay.ms | int | 100 | 0.. |  | How long the answer to a failed authentication is delayed.
connections.max.reauth.ms | long | 0 |  |  | After how long a client must authenticate again; 0: never.
delegation.token.expiry.check.interval.ms | long | 3600000 | 1.. |  | How often expired delegation tokens are removed.
delegation.token.expiry.time.ms | long | 86400000 | 1.. |  | How long a delegation token is valid unless it is renewed.
delegation.token.master.key ..3.9 | password | - |  |  | The old name of delegation.token.secret.key.
delegation.token.max.lifetime.ms | long | 604800000 | 1.. |  | How long a delegation token may be renewed.
delegation.token.secret.key | password | - |  |  | The key of delegation tokens, equal on all brokers; without it there are no tokens.
sasl.enabled.mechanisms | list | GSSAPI |  | broker | The SASL mechanisms of clients.
sasl.jaas.config | password | - |  | broker | The login module of a mechanism, with a prefix: its users, and the broker's own login.
sasl.login.callback.handler.class | class | - |  |  | Not needed: sasl.oauthbearer.token.endpoint.url names the token of the broker.
sasl.mechanism.inter.broker.protocol | string | GSSAPI |  | broker | The SASL mechanism between brokers.
sasl.oauthbearer.clock.skew.seconds | int | 30 |  |  | How much the clocks of issuer and broker may differ.
sasl.oauthbearer.expected.audience | list | - |  |  | The audiences that a token must name one of; without it, any.
sasl.oauthbearer.expected.issuer | string | - |  |  | The issuer that a token must have; without it, any.
sasl.oauthbearer.jwks.endpoint.refresh.ms | long | 3600000 |  |  | How often keys are read again from a URL.
sasl.oauthbearer.jwks.endpoint.url | string | - |  |  | The keys that verify tokens: a file:, https: or http: URL.
sasl.oauthbearer.scope.claim.name | string | scope |  |  | The claim of a token that holds its scope.
sasl.oauthbearer.sub.claim.name | string | sub |  |  | The claim of a token that holds its user.
sasl.oauthbearer.token.endpoint.url | string | - |  |  | The file: URL of the token that the broker authenticates with.
sasl.server.callback.handler.class ..3.9 | class | - |  | broker | Kafka's validator of signed tokens; empty: none.
sasl.server.callback.handler.class 4.0.. | class | - |  |  | Kafka's validator of signed tokens; empty: none.
sasl.server.max.receive.size | int | 524288 |  |  | The largest request of a client that has not authenticated.
super.users internal | string |  |  |  | Users that may do everything: User:admin;User:broker.

[broker] TLS
ssl.cipher.suites | list |  |  | broker | The cipher suites, by their IANA names.
ssl.client.auth | string | none | required, requested, none | broker | Whether clients must present a certificate.
ssl.enabled.protocols | list | TLSv1.2,TLSv1.3 |  | broker | The versions of TLS.
ssl.endpoint.identification.algorithm | string | https |  | broker | Whether brokers verify the host names of brokers.
ssl.key.password | password | - |  | broker | The password of the private key.
ssl.keystore.certificate.chain | password | - |  | broker | The certificates of this node, as PEM.
ssl.keystore.key | password | - |  | broker | The private key of this node, as PEM.
ssl.keystore.location | string | - |  | broker | The file of this node's key and certificates.
ssl.keystore.password | password | - |  | broker | The password of a PKCS12 key store.
ssl.keystore.type | string | JKS |  | broker | The type of the key store: PEM or PKCS12.
ssl.principal.mapping.rules | string | DEFAULT |  |  | The rules that map the name of a certificate to a user.
ssl.truststore.certificates | password | - |  | broker | The certificates of trusted authorities, as PEM.
ssl.truststore.location | string | - |  | broker | The file of the certificates of trusted authorities.
ssl.truststore.password | password | - |  | broker | The password of a PKCS12 trust store.
ssl.truststore.type | string | JKS |  | broker | The type of the trust store: PEM or PKCS12.

[broker refused: this part of Kafka's security is not here, and would not be kept]
password.encoder.cipher.algorithm ..3.9 | string | AES/CBC/PKCS5Padding
password.encoder.iterations ..3.9 | int | 4096 | 1024..
password.encoder.key.length ..3.9 | int | 128 | 8..
password.encoder.keyfactory.algorithm ..3.9 | string | -
password.encoder.old.secret ..3.9 | password | -
password.encoder.secret ..3.9 | password | -
principal.builder.class | class | org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder |  | broker
sasl.client.callback.handler.class | class | -
sasl.kerberos.kinit.cmd | string | /usr/bin/kinit |  | broker
sasl.kerberos.min.time.before.relogin | long | 60000 |  | broker
sasl.kerberos.principal.to.local.rules | list | DEFAULT |  | broker
sasl.kerberos.service.name | string | - |  | broker
sasl.kerberos.ticket.renew.jitter | double | 0.05 |  | broker
sasl.kerberos.ticket.renew.window.factor | double | 0.8 |  | broker
sasl.login.class | class | -
sasl.login.connect.timeout.ms | int | -
sasl.login.read.timeout.ms | int | -
sasl.login.refresh.buffer.seconds | short | 300 |  | broker
sasl.login.refresh.min.period.seconds | short | 60 |  | broker
sasl.login.refresh.window.factor | double | 0.8 |  | broker
sasl.login.refresh.window.jitter | double | 0.05 |  | broker
sasl.login.retry.backoff.max.ms | long | 10000
sasl.login.retry.backoff.ms | long | 100
sasl.mechanism.controller.protocol | string | GSSAPI
sasl.oauthbearer.assertion.algorithm 4.1.. | string | RS256
sasl.oauthbearer.assertion.claim.aud 4.1.. | string | -
sasl.oauthbearer.assertion.claim.exp.seconds 4.1.. | int | 300
sasl.oauthbearer.assertion.claim.iss 4.1.. | string | -
sasl.oauthbearer.assertion.claim.jti.include 4.1.. | boolean | false
sasl.oauthbearer.assertion.claim.nbf.seconds 4.1.. | int | 60
sasl.oauthbearer.assertion.claim.sub 4.1.. | string | -
sasl.oauthbearer.assertion.file 4.1.. | string | -
sasl.oauthbearer.assertion.private.key.file 4.1.. | string | -
sasl.oauthbearer.assertion.private.key.passphrase 4.1.. | password | -
sasl.oauthbearer.assertion.template.file 4.1.. | string | -
sasl.oauthbearer.client.credentials.client.id 4.1.. | string | -
sasl.oauthbearer.client.credentials.client.secret 4.1.. | password | -
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long | 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long | 100
sasl.oauthbearer.jwt.retriever.class 4.1.. | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class 4.1.. | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope 4.1.. | string | -
security.providers | string | -
ssl.allow.dn.changes | boolean | false
ssl.allow.san.changes | boolean | false
ssl.engine.factory.class | class | - |  | broker
ssl.keymanager.algorithm | string | SunX509 |  | broker
ssl.protocol | string | TLSv1.3 |  | broker
ssl.provider | string | - |  | broker
ssl.secure.random.implementation | string | - |  | broker
ssl.trustmanager.algorithm | string | PKIX |  | broker
zookeeper.ssl.cipher.suites ..3.9 | list | -
zookeeper.ssl.client.enable ..3.9 | boolean | false
zookeeper.ssl.crl.enable ..3.9 | boolean | false
zookeeper.ssl.enabled.protocols ..3.9 | list | -
zookeeper.ssl.endpoint.identification.algorithm ..3.9 | string | HTTPS
zookeeper.ssl.keystore.location ..3.9 | string | -
zookeeper.ssl.keystore.password ..3.9 | password | -
zookeeper.ssl.keystore.type ..3.9 | string | -
zookeeper.ssl.ocsp.enable ..3.9 | boolean | false
zookeeper.ssl.protocol ..3.9 | string | TLSv1.2
zookeeper.ssl.truststore.location ..3.9 | string | -
zookeeper.ssl.truststore.password ..3.9 | password | -
zookeeper.ssl.truststore.type ..3.9 | string | -

[broker refused: no Java class can be loaded here]
alter.config.policy.class.name | class | -
client.quota.callback.class | class | -
create.topic.policy.class.name | class | -

[broker: a node is one event loop, and leaves buffers of sockets to the system]
background.threads | int | 10 | 1.. | cluster
num.io.threads | int | 8 | 1.. | cluster
num.network.threads | int | 3 | 1.. | cluster
queued.max.requests | int | 500 | 1..
socket.connection.setup.timeout.max.ms | long | 30000
socket.connection.setup.timeout.ms | long | 10000
socket.listen.backlog.size | int | 50 | 1..
socket.receive.buffer.bytes | int | 102400
socket.send.buffer.bytes | int | 102400

[broker: controller mutations are counted in the windows of quota.window.num]
controller.quota.window.num | int | 11 | 1..
controller.quota.window.size.seconds | int | 1 | 1..

[broker: the controller keeps its state in ZooKeeper, not in a KRaft quorum]
broker.heartbeat.interval.ms | int | 2000
broker.session.timeout.ms | int | 9000
controller.listener.names | string | -
controller.quorum.append.linger.ms | int | 25
controller.quorum.auto.join.enable 4.2.. | boolean | false
controller.quorum.bootstrap.servers | list
controller.quorum.election.backoff.max.ms | int | 1000
controller.quorum.election.timeout.ms | int | 1000
controller.quorum.fetch.timeout.ms | int | 2000
controller.quorum.request.timeout.ms | int | 2000
controller.quorum.retry.backoff.ms | int | 20
controller.quorum.voters | list
controller.socket.timeout.ms | int | 30000
early.start.listeners | string | -
eligible.leader.replicas.enable ..3.9 | boolean | false
initial.broker.registration.timeout.ms | int | 60000
log.dir.failure.timeout.ms | long | 30000 | 1..
metadata.log.dir | string | -
metadata.log.max.record.bytes.between.snapshots | long | 20971520 | 1..
metadata.log.max.snapshot.interval.ms | long | 3600000 | 0..
metadata.log.segment.bytes | int | 1073741824 | 12..
metadata.log.segment.ms | long | 604800000
metadata.max.idle.interval.ms | int | 500 | 0..
metadata.max.retention.bytes | long | 104857600
metadata.max.retention.ms | long | 604800000
process.roles | list |  | broker, controller
zookeeper.metadata.migration.enable ..3.9 | boolean | false

[broker: options of the command say how ZooKeeper is reached]
zookeeper.clientCnxnSocket ..3.9 | string | -
zookeeper.connect ..3.9 | string | -
zookeeper.connection.timeout.ms ..3.9 | int | -
zookeeper.max.in.flight.requests ..3.9 | int | 10 | 1..

[client-metrics]
interval.ms | int | 300000 |  |  | How often a client pushes metrics.
match | list |  |  |  | The clients of a subscription: NAME=EXPRESSION for each attribute that must match; empty: all.
metrics | list |  |  |  | The prefixes of the metrics that clients push; *: every metric.

[broker: there is no JMX; metrics are served to Prometheus]
auto.include.jmx.reporter ..3.9 | boolean | true
kafka.metrics.polling.interval.secs | int | 10 | 1..
kafka.metrics.reporters | list
metric.reporters ..3.9 | list |  |  | cluster
metric.reporters 4.0.. | list | org.apache.kafka.common.metrics.JmxReporter |  | cluster
metrics.num.samples | int | 2 | 1..
metrics.recording.level | string | INFO
metrics.sample.window.ms | long | 30000 | 1..

[broker: users choose the id of a node]
broker.id.generation.enable ..3.9 | boolean | true
reserved.broker.max.id ..3.9 | int | 1000 | 0..

[broker: kafka.version says what nodes show]
inter.broker.protocol.version ..3.9 | string | 3.9-IV0

[broker: requests of the controller use the listener between brokers]
control.plane.listener.name ..3.9 | string | -

[broker: the controller looks every 300 s, and moves leaders back from 10 percent on]
leader.imbalance.check.interval.seconds | long | 300 | 1..
leader.imbalance.per.broker.percentage ..3.9 | int | 10

[broker: no Java class can be loaded here]
config.providers 4.2.. | list |  |  | cluster
"""  # noqa: E501
