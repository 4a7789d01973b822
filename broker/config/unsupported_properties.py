"""The properties that Kafka 3.9 brokers know and that have no effect here: other storage, security, KRaft, JVM.

They may be changed while a node runs where Kafka allows it, and given at the start, where those of security are refused
and the others named in a warning (`start_settings`); they are checked and described, so that a script for Kafka's
brokers needs no change. Columns as in `broker.config.property_declaration`. One that gets a settings field has
an effect from then on, and belongs to `broker_properties`.
"""

from __future__ import annotations

from typing import Final

UNSUPPORTED: Final = """
alter.config.policy.class.name | class | -
alter.log.dirs.replication.quota.window.num | int | 11 | 1..
alter.log.dirs.replication.quota.window.size.seconds | int | 1 | 1..
auto.include.jmx.reporter | boolean | true
background.threads | int | 10 | 1.. | cluster
broker.heartbeat.interval.ms | int | 2000
broker.id.generation.enable | boolean | true
broker.session.timeout.ms | int | 9000
client.quota.callback.class | class | -
control.plane.listener.name | string | -
controller.listener.names | string | -
controller.quorum.append.linger.ms | int | 25
controller.quorum.bootstrap.servers | list
controller.quorum.election.backoff.max.ms | int | 1000
controller.quorum.election.timeout.ms | int | 1000
controller.quorum.fetch.timeout.ms | int | 2000
controller.quorum.request.timeout.ms | int | 2000
controller.quorum.retry.backoff.ms | int | 20
controller.quorum.voters | list
controller.quota.window.num | int | 11 | 1..
controller.quota.window.size.seconds | int | 1 | 1..
controller.socket.timeout.ms | int | 30000
create.topic.policy.class.name | class | -
delete.records.purgatory.purge.interval.requests | int | 1
early.start.listeners | string | -
eligible.leader.replicas.enable | boolean | false
fetch.purgatory.purge.interval.requests | int | 1000
group.coordinator.append.linger.ms | int | 10 | 0..
group.coordinator.threads | int | 1 | 1..
group.share.max.groups | short | 10 | 1..100
group.share.max.heartbeat.interval.ms | int | 15000 | 1..
group.share.max.record.lock.duration.ms | int | 60000 | 30000..3600000
group.share.max.session.timeout.ms | int | 60000 | 1..
group.share.min.heartbeat.interval.ms | int | 5000 | 1..
group.share.min.record.lock.duration.ms | int | 15000 | 1000..30000
group.share.min.session.timeout.ms | int | 45000 | 1..
initial.broker.registration.timeout.ms | int | 60000
inter.broker.protocol.version | string | 3.9-IV0
kafka.metrics.polling.interval.secs | int | 10 | 1..
kafka.metrics.reporters | list
leader.imbalance.check.interval.seconds | long | 300 | 1..
leader.imbalance.per.broker.percentage | int | 10
log.cleaner.dedupe.buffer.size | long | 134217728 |  | cluster
log.cleaner.io.buffer.load.factor | double | 0.9 |  | cluster
log.cleaner.io.buffer.size | int | 524288 | 0.. | cluster
log.cleaner.io.max.bytes.per.second | double | 1.7976931348623157E308 |  | cluster
log.cleaner.threads | int | 1 | 0.. | cluster
log.dir.failure.timeout.ms | long | 30000 | 1..
log.flush.interval.ms | long | - |  | cluster
log.flush.offset.checkpoint.interval.ms | int | 60000 | 0..
log.flush.scheduler.interval.ms | long | 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms | int | 60000 | 0..
log.local.retention.bytes | long | -2 | -2.. | cluster
log.local.retention.ms | long | -2 | -2.. | cluster
log.message.format.version | string | 3.0-IV1
log.preallocate | boolean | false |  | cluster
log.roll.jitter.hours | int | 0 | 0..
log.roll.jitter.ms | long | - |  | cluster
metadata.log.dir | string | -
metadata.log.max.record.bytes.between.snapshots | long | 20971520 | 1..
metadata.log.max.snapshot.interval.ms | long | 3600000 | 0..
metadata.log.segment.bytes | int | 1073741824 | 12..
metadata.log.segment.ms | long | 604800000
metadata.max.idle.interval.ms | int | 500 | 0..
metadata.max.retention.bytes | long | 104857600
metadata.max.retention.ms | long | 604800000
metric.reporters | list |  |  | cluster
metrics.num.samples | int | 2 | 1..
metrics.recording.level | string | INFO
metrics.sample.window.ms | long | 30000 | 1..
num.io.threads | int | 8 | 1.. | cluster
num.network.threads | int | 3 | 1.. | cluster
num.recovery.threads.per.data.dir | int | 1 | 1.. | cluster
num.replica.alter.log.dirs.threads | int | -
num.replica.fetchers | int | 1 |  | cluster
offsets.commit.required.acks | short | -1
offsets.load.buffer.size | int | 5242880 | 1..
password.encoder.cipher.algorithm | string | AES/CBC/PKCS5Padding
password.encoder.iterations | int | 4096 | 1024..
password.encoder.key.length | int | 128 | 8..
password.encoder.keyfactory.algorithm | string | -
password.encoder.old.secret | password | -
password.encoder.secret | password | -
principal.builder.class | class | org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder |  | broker
process.roles | list |  | broker, controller
producer.purgatory.purge.interval.requests | int | 1000
queued.max.requests | int | 500 | 1..
remote.fetch.max.wait.ms | int | 500 | 1.. | cluster
remote.log.index.file.cache.total.size.bytes | long | 1073741824 | 1.. | cluster
remote.log.manager.copier.thread.pool.size | int | -1
remote.log.manager.copy.max.bytes.per.second | long | 9223372036854775807 | 1.. | cluster
remote.log.manager.copy.quota.window.num | int | 11 | 1..
remote.log.manager.copy.quota.window.size.seconds | int | 1 | 1..
remote.log.manager.expiration.thread.pool.size | int | -1
remote.log.manager.fetch.max.bytes.per.second | long | 9223372036854775807 | 1.. | cluster
remote.log.manager.fetch.quota.window.num | int | 11 | 1..
remote.log.manager.fetch.quota.window.size.seconds | int | 1 | 1..
remote.log.manager.task.interval.ms | long | 30000 | 1..
remote.log.manager.thread.pool.size | int | 10 | 1..
remote.log.metadata.custom.metadata.max.bytes | int | 128 | 0..
remote.log.metadata.manager.class.name | string | org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path | string | -
remote.log.metadata.manager.impl.prefix | string | rlmm.config.
remote.log.metadata.manager.listener.name | string | -
remote.log.reader.max.pending.tasks | int | 100 | 1..
remote.log.reader.threads | int | 10 | 1..
remote.log.storage.manager.class.name | string | -
remote.log.storage.manager.class.path | string | -
remote.log.storage.manager.impl.prefix | string | rsm.config.
remote.log.storage.system.enable | boolean | false
replica.socket.receive.buffer.bytes | int | 65536
replica.socket.timeout.ms | int | 30000
replication.quota.window.num | int | 11 | 1..
replication.quota.window.size.seconds | int | 1 | 1..
reserved.broker.max.id | int | 1000 | 0..
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
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long | 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long | 100
security.providers | string | -
socket.connection.setup.timeout.max.ms | long | 30000
socket.connection.setup.timeout.ms | long | 10000
socket.listen.backlog.size | int | 50 | 1..
socket.receive.buffer.bytes | int | 102400
socket.send.buffer.bytes | int | 102400
ssl.allow.dn.changes | boolean | false
ssl.allow.san.changes | boolean | false
ssl.engine.factory.class | class | - |  | broker
ssl.keymanager.algorithm | string | SunX509 |  | broker
ssl.protocol | string | TLSv1.3 |  | broker
ssl.provider | string | - |  | broker
ssl.secure.random.implementation | string | - |  | broker
ssl.trustmanager.algorithm | string | PKIX |  | broker
transaction.state.log.load.buffer.size | int | 5242880 | 1..
zookeeper.clientCnxnSocket | string | -
zookeeper.connect | string | -
zookeeper.connection.timeout.ms | int | -
zookeeper.max.in.flight.requests | int | 10 | 1..
zookeeper.metadata.migration.enable | boolean | false
zookeeper.ssl.cipher.suites | list | -
zookeeper.ssl.client.enable | boolean | false
zookeeper.ssl.crl.enable | boolean | false
zookeeper.ssl.enabled.protocols | list | -
zookeeper.ssl.endpoint.identification.algorithm | string | HTTPS
zookeeper.ssl.keystore.location | string | -
zookeeper.ssl.keystore.password | password | -
zookeeper.ssl.keystore.type | string | -
zookeeper.ssl.ocsp.enable | boolean | false
zookeeper.ssl.protocol | string | TLSv1.2
zookeeper.ssl.truststore.location | string | -
zookeeper.ssl.truststore.password | password | -
zookeeper.ssl.truststore.type | string | -
"""  # noqa: E501
