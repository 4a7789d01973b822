"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from anabranch.protocol.apis.alter_configs import AlterableConfig as Setting
from anabranch.protocol.apis.alter_configs import AlterConfigsRequest
from anabranch.protocol.apis.alter_configs import AlterConfigsResource as SetResource
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.apis.incremental_alter_configs import AlterableConfig as Change
from anabranch.protocol.apis.incremental_alter_configs import AlterConfigsResource as ChangeResource
from anabranch.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.differential.case import Run, case

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(
    kind: int, name: str, *keys: str, synonyms: bool = False, documentation: bool = False
) -> DescribeConfigsRequest:
    """The configs of a resource; all of them without keys."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms, include_documentation=documentation)


def set_all(kind: int, name: str, *, validate_only: bool = False, **values: str | None) -> AlterConfigsRequest:
    """Replace the configs of a resource. Names are written with underscores."""
    configs = [Setting(name=key.replace("_", "."), value=value) for key, value in values.items()]
    return AlterConfigsRequest(
        resources=[SetResource(resource_type=kind, resource_name=name, configs=configs)], validate_only=validate_only
    )


def change(
    kind: int, name: str, *changes: tuple[int, str, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    """Change single configs of a resource."""
    configs = [Change(config_operation=how, name=key, value=value) for how, key, value in changes]
    return IncrementalAlterConfigsRequest(
        resources=[ChangeResource(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=validate_only,
    )


@case("DescribeConfigs")
async def every_topic_config(run: Run) -> None:
    await run.create(name := run.name(), configs={"retention.ms": "60000", "cleanup.policy": "compact"})
    await run.ask(describe(TOPIC, name))
    await run.ask(describe(TOPIC, name, synonyms=True, documentation=True))


@case("DescribeConfigs", "0-4")
async def one_topic_config_at_a_time(run: Run) -> None:
    await run.create(name := run.name(), configs={"retention.ms": "60000"})
    for key in TOPIC_CONFIGS.split():
        await run.ask(describe(TOPIC, name, key, synonyms=True, documentation=True))


@case("DescribeConfigs", "1-4")
async def one_broker_config_at_a_time(run: Run) -> None:
    for key in BROKER_CONFIGS.split():
        await run.ask(describe(BROKER, "1", key, synonyms=True, documentation=True))


@case("DescribeConfigs")
async def the_cluster_default(run: Run) -> None:
    await run.ask(describe(BROKER, "", synonyms=True))
    await run.ask(describe(BROKER, "", "num.io.threads"))


@case("DescribeConfigs")
async def what_is_not_there(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(describe(TOPIC, run.name("none")))
    await run.ask(describe(TOPIC, "not a name"))
    await run.ask(describe(TOPIC, ""))
    await run.ask(describe(TOPIC, name, "no.such.config"))
    await run.ask(describe(BROKER, "77"))
    await run.ask(describe(BROKER, "one"))
    await run.ask(describe(BROKER, "1", "no.such.config"))
    for kind in (0, 1, 3, 9, CLIENT_METRICS, GROUP):
        await run.ask(describe(kind, name))
    await run.ask(DescribeConfigsRequest(resources=[]))


@case("DescribeConfigs", "3-4")
async def loggers(run: Run) -> None:
    await run.ask(describe(BROKER_LOGGER, "77"))
    await run.ask(describe(BROKER_LOGGER, ""))
    await run.ask(describe(BROKER_LOGGER, "one"))


@case("DescribeConfigs", "4")
async def client_metrics(run: Run) -> None:
    await run.ask(describe(CLIENT_METRICS, "m"))


@case("AlterConfigs")
async def replaced(run: Run) -> None:
    await run.create(name := run.name(), configs={"retention.ms": "60000"})
    seen = describe(TOPIC, name, "retention.ms", "cleanup.policy", "max.message.bytes", synonyms=True)
    await run.ask(set_all(TOPIC, name, validate_only=True, cleanup_policy="compact"))
    await run.ask(seen)
    await run.ask(set_all(TOPIC, name, cleanup_policy="compact", max_message_bytes="1000"))
    await run.until(seen, lambda answer: any(one.value == "compact" for one in answer.results[0].configs))
    await run.ask(set_all(TOPIC, name))
    await run.until(seen, lambda answer: all(one.value != "compact" for one in answer.results[0].configs))


@case("AlterConfigs")
async def not_replaced(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(set_all(TOPIC, name, no_such_config="1"))
    await run.ask(set_all(TOPIC, name, retention_ms="soon"))
    await run.ask(set_all(TOPIC, name, retention_ms=None))
    await run.ask(set_all(TOPIC, name, cleanup_policy="burn"))
    await run.ask(set_all(TOPIC, name, min_insync_replicas="0"))
    await run.ask(set_all(TOPIC, run.name("none"), retention_ms="1000"))
    await run.ask(set_all(TOPIC, "", retention_ms="1000"))
    await run.ask(set_all(TOPIC, "not a name", retention_ms="1000"))
    for kind in (0, 1, 3, BROKER_LOGGER, CLIENT_METRICS, GROUP, 99):
        await run.ask(set_all(kind, name, retention_ms="1000"))
    await run.ask(AlterConfigsRequest(resources=[], validate_only=False))


@case("AlterConfigs")
async def replaced_in_two_resources(run: Run) -> None:
    await run.create(name := run.name())
    both = set_all(TOPIC, name, retention_ms="1000")
    both.resources += set_all(TOPIC, run.name("none"), retention_ms="1000").resources
    await run.ask(both)


@case("AlterConfigs", alone=True)
async def replaced_in_a_broker(run: Run) -> None:
    seen = describe(BROKER, "1", "log.cleaner.threads", "message.max.bytes", synonyms=True)
    await run.ask(set_all(BROKER, "1", log_cleaner_backoff_ms="20000", validate_only=True))
    await run.ask(set_all(BROKER, "1", message_max_bytes="2000000"))
    await run.until(seen, lambda answer: any(one.value == "2000000" for one in answer.results[0].configs))
    await run.ask(set_all(BROKER, "1"))
    await run.until(seen, lambda answer: all(one.value != "2000000" for one in answer.results[0].configs))
    await run.ask(set_all(BROKER, "1", broker_id="7"))
    await run.ask(set_all(BROKER, "1", no_such_config="7"))
    await run.ask(set_all(BROKER, "1", message_max_bytes="many"))
    await run.ask(set_all(BROKER, "77", message_max_bytes="2000000"))
    await run.ask(set_all(BROKER, "one", message_max_bytes="2000000"))


@case("IncrementalAlterConfigs")
async def of_a_topic(run: Run) -> None:
    await run.create(name := run.name(), configs={"retention.ms": "60000"})
    seen = describe(TOPIC, name, "retention.ms", "cleanup.policy", "max.message.bytes", synonyms=True)
    steps: list[tuple[tuple[int, str, str | None], str, str]] = [
        ((SET, "max.message.bytes", "1000"), "max.message.bytes", "1000"),
        ((APPEND, "cleanup.policy", "compact"), "cleanup.policy", "delete,compact"),
        ((SUBTRACT, "cleanup.policy", "delete"), "cleanup.policy", "compact"),
        ((DELETE, "retention.ms", None), "retention.ms", "604800000"),
    ]
    for step, key, value in steps:
        await run.ask(change(TOPIC, name, step, validate_only=True))
        await run.ask(seen)
        await run.ask(change(TOPIC, name, step))
        await run.until(
            seen,
            lambda answer, key=key, value=value: any(
                one.name == key and one.value == value for one in answer.results[0].configs
            ),
        )


@case("IncrementalAlterConfigs")
async def of_a_topic_refused(run: Run) -> None:
    await run.create(name := run.name())
    for step in (
        (SET, "no.such.config", "1"),
        (SET, "retention.ms", "soon"),
        (SET, "retention.ms", None),
        (DELETE, "retention.ms", None),
        (DELETE, "retention.ms", "1"),
        (DELETE, "no.such.config", None),
        (APPEND, "retention.ms", "1"),
        (SUBTRACT, "retention.ms", "1"),
        (APPEND, "cleanup.policy", "burn"),
        (APPEND, "cleanup.policy", "delete"),
        (SUBTRACT, "cleanup.policy", "compact"),
        (SUBTRACT, "cleanup.policy", "delete"),
        (APPEND, "cleanup.policy", None),
        (9, "retention.ms", "1"),
        (-1, "retention.ms", "1"),
        (SET, "", "1"),
    ):
        await run.ask(change(TOPIC, name, step))
    await run.ask(change(TOPIC, name, (SET, "retention.ms", "1"), (SET, "retention.ms", "2")))
    await run.ask(change(TOPIC, name, (SET, "retention.ms", "1"), (DELETE, "retention.ms", None)))
    await run.ask(change(TOPIC, name))
    await run.ask(change(TOPIC, run.name("none"), (SET, "retention.ms", "1")))
    await run.ask(change(TOPIC, "not a name", (SET, "retention.ms", "1")))
    await run.ask(change(TOPIC, "", (SET, "retention.ms", "1")))
    for kind in (0, 1, 3, CLIENT_METRICS, GROUP, 99):
        await run.ask(change(kind, name, (SET, "retention.ms", "1")))
    await run.ask(IncrementalAlterConfigsRequest(resources=[], validate_only=False))


@case("IncrementalAlterConfigs")
async def of_two_resources(run: Run) -> None:
    await run.create(name := run.name())
    both = change(TOPIC, name, (SET, "retention.ms", "1000"))
    both.resources += change(TOPIC, run.name("none"), (SET, "retention.ms", "1000")).resources
    await run.ask(both)
    twice = change(TOPIC, name, (SET, "retention.ms", "1000"))
    twice.resources += change(TOPIC, name, (SET, "retention.ms", "2000")).resources
    await run.ask(twice)


@case("IncrementalAlterConfigs", alone=True)
async def of_brokers(run: Run) -> None:
    for broker in ("1", ""):
        seen = describe(BROKER, broker, "message.max.bytes", "num.io.threads", synonyms=True)
        await run.ask(change(BROKER, broker, (SET, "message.max.bytes", "2000000"), validate_only=True))
        await run.ask(change(BROKER, broker, (SET, "message.max.bytes", "2000000")))
        await run.until(seen, lambda answer: any(one.value == "2000000" for one in answer.results[0].configs))
        own = describe(BROKER, "1", "message.max.bytes", synonyms=True)
        await run.until(own, lambda answer: any(one.value == "2000000" for one in answer.results[0].configs))
        await run.ask(change(BROKER, broker, (DELETE, "message.max.bytes", None)))
        await run.until(seen, lambda answer: all(one.value != "2000000" for one in answer.results[0].configs))


@case("IncrementalAlterConfigs", alone=True)
async def of_brokers_refused(run: Run) -> None:
    for broker in ("1", ""):
        for step in (
            (SET, "broker.id", "7"),
            (SET, "zookeeper.connect", "x"),
            (SET, "no.such.config", "7"),
            (SET, "message.max.bytes", "many"),
            (SET, "message.max.bytes", "-1"),
            (SET, "advertised.listeners", "x"),
            (SET, "max.connections", "-1"),
            (APPEND, "message.max.bytes", "1"),
            (DELETE, "broker.id", None),
        ):
            await run.ask(change(BROKER, broker, step))
    await run.ask(change(BROKER, "77", (SET, "message.max.bytes", "1")))
    await run.ask(change(BROKER, "one", (SET, "message.max.bytes", "1")))


@case("IncrementalAlterConfigs")
async def of_loggers_refused(run: Run) -> None:
    await run.ask(change(BROKER_LOGGER, "77", (SET, "kafka", "INFO")))
    await run.ask(change(BROKER_LOGGER, "", (SET, "kafka", "INFO")))
    await run.ask(change(BROKER_LOGGER, "1", (SET, "no.such.logger.at.all", "INFO")))
    await run.ask(change(BROKER_LOGGER, "1", (SET, "root", "NEVER")))
    await run.ask(change(BROKER_LOGGER, "1", (DELETE, "root", None)))
    await run.ask(change(BROKER_LOGGER, "1", (APPEND, "root", "INFO")))


@case("IncrementalAlterConfigs", kafka="4.0")
async def of_client_metrics(run: Run) -> None:
    name = run.name()
    seen = describe(CLIENT_METRICS, name, synonyms=True, documentation=True)
    await run.ask(seen)
    await run.ask(change(CLIENT_METRICS, name, (SET, "interval.ms", "1000"), validate_only=True))
    await run.ask(change(CLIENT_METRICS, name, (SET, "interval.ms", "1000"), (SET, "metrics", "a.,b.")))
    await run.until(seen, lambda answer: any(one.value == "1000" for one in answer.results[0].configs))
    await run.ask(describe(CLIENT_METRICS, name, "interval.ms", "no.such.config"))
    await run.ask(change(CLIENT_METRICS, name, (SET, "match", "client_id=a.*, client_source_port = [0-9]+")))
    await run.until(seen, lambda answer: any("a.*" in (one.value or "") for one in answer.results[0].configs))
    await run.ask(change(CLIENT_METRICS, name, *((DELETE, key, None) for key in ("interval.ms", "metrics", "match"))))
    await run.until(seen, lambda answer: all(one.value != "1000" for one in answer.results[0].configs))


@case("IncrementalAlterConfigs", kafka="4.0")
async def of_client_metrics_refused(run: Run) -> None:
    name = run.name()
    for step in (
        (SET, "no.such.config", "1"),
        (SET, "interval.ms", "soon"),
        (SET, "interval.ms", "99"),
        (SET, "interval.ms", "3600001"),
        (SET, "interval.ms", None),
        (SET, "match", "client_id"),
        (SET, "match", "client_id=a=b"),
        (SET, "match", "client_id="),
        (SET, "match", "colour=red"),
        (SET, "match", "client_id=["),
        (APPEND, "metrics", "c."),
        (SUBTRACT, "metrics", "c."),
        (APPEND, "interval.ms", "1"),
        (APPEND, "no.such.config", "1"),
        (DELETE, "no.such.config", None),
        (SET, "metrics", "a.,a."),
        (SET, "metrics", ""),
        (SET, "match", ""),
    ):
        await run.ask(change(CLIENT_METRICS, name, step))
    await run.ask(change(CLIENT_METRICS, "", (SET, "metrics", "*")))
    await run.ask(describe(CLIENT_METRICS, ""))


TOPIC_CONFIGS = """
cleanup.policy compression.type delete.retention.ms file.delete.delay.ms flush.messages flush.ms
follower.replication.throttled.replicas index.interval.bytes leader.replication.throttled.replicas
max.compaction.lag.ms max.message.bytes message.downconversion.enable message.format.version
message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.difference.max.ms
message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
unclean.leader.election.enable remote.storage.enable local.retention.ms local.retention.bytes
compression.gzip.level compression.lz4.level compression.zstd.level
"""
BROKER_CONFIGS = """
broker.id num.partitions default.replication.factor auto.create.topics.enable delete.topic.enable
message.max.bytes log.retention.ms log.retention.minutes log.retention.hours log.retention.bytes log.segment.bytes
log.roll.ms log.roll.hours log.cleanup.policy log.cleaner.enable log.cleaner.threads log.cleaner.backoff.ms
log.message.timestamp.type log.index.interval.bytes log.index.size.max.bytes compression.type min.insync.replicas
unclean.leader.election.enable offsets.topic.num.partitions offsets.topic.replication.factor
offsets.retention.minutes group.initial.rebalance.delay.ms group.min.session.timeout.ms
group.max.session.timeout.ms group.max.size transaction.max.timeout.ms transactional.id.expiration.ms
transaction.state.log.num.partitions transaction.state.log.replication.factor transaction.state.log.min.isr
replica.lag.time.max.ms replica.fetch.max.bytes replica.selector.class socket.request.max.bytes
connections.max.idle.ms max.connections max.incremental.fetch.session.cache.slots fetch.max.bytes
num.network.threads num.io.threads num.replica.fetchers background.threads queued.max.requests
request.timeout.ms zookeeper.session.timeout.ms controlled.shutdown.enable auto.leader.rebalance.enable
leader.imbalance.check.interval.seconds inter.broker.protocol.version log.message.format.version
producer.id.expiration.ms quota.window.num quota.window.size.seconds sasl.enabled.mechanisms
ssl.keystore.password authorizer.class.name log.flush.interval.messages log.flush.interval.ms broker.rack
"""
