"""Cluster metadata: ApiVersions, Metadata, DescribeCluster, FindCoordinator, features."""

from __future__ import annotations

from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.protocol.wire import ZERO_UUID
from tests.differential.case import Run, case


@case("ApiVersions")
async def what_is_served(run: Run) -> None:
    await run.ask(ApiVersionsRequest(client_software_name="corpus", client_software_version="1.0"))


@case("ApiVersions", "3-4")
async def software_names(run: Run) -> None:
    for name, version in (("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a", "1_"), ("a.b-c", "1.0-beta")):
        await run.ask(ApiVersionsRequest(client_software_name=name, client_software_version=version))


@case("Metadata")
async def a_topic(run: Run) -> None:
    await run.create(topic := run.name(), partitions=3)
    asked = [MetadataRequestTopic(name=topic)]
    await run.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    await run.ask(
        MetadataRequest(
            topics=asked,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
    )


@case("Metadata")
async def the_same_topic_twice(run: Run) -> None:
    await run.create(topic := run.name())
    await run.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)] * 2, allow_auto_topic_creation=False))


@case("Metadata", "4-12")
async def unknown_topics(run: Run) -> None:
    names = [run.name("none"), "not a name", "", "x" * 250, ".", "..", "a/b"]
    for name in names:
        await run.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False))


@case("Metadata", "10-12")
async def by_topic_id(run: Run) -> None:
    await run.create(topic := run.name())
    known = await run.prepare(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), version=12)
    ids = [known.topics[0].topic_id, b"\x11" * 16]
    for one in ids:
        await run.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=one, name=None)]))
    await run.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=one, name=None) for one in ids]))
    await run.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=ids[0], name=topic)]))
    await run.ask(
        MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=ids[0], name=None), MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
        )
    )
    await run.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=None)]))


@case("Metadata", "1-12")
async def no_topics(run: Run) -> None:
    await run.ask(MetadataRequest(topics=[]))


@case("Metadata")
async def creates_what_it_is_asked_for(run: Run) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=run.name())])
    await run.ask(asked)
    await run.until(asked, lambda answer: answer.topics[0].error_code == 0)


@case("Metadata")
async def does_not_create_a_bad_name(run: Run) -> None:
    for name in ("not a name", "..", "x" * 250, ""):
        await run.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))


@case("Metadata", "4-12")
async def internal_topics(run: Run) -> None:
    """Asking for a coordinator makes them."""
    for kind, name in ((0, "__consumer_offsets"), (1, "__transaction_state")):
        await run.settled(
            FindCoordinatorRequest(coordinator_keys=["x"], key_type=kind),
            lambda answer: answer.coordinators[0].error_code == 0,
        )
        await run.until(
            MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
            lambda answer: (
                answer.topics[0].error_code == 0 and all(one.error_code == 0 for one in answer.topics[0].partitions)
            ),
        )


@case("DescribeCluster")
async def itself(run: Run) -> None:
    await run.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
    await run.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))


@case("DescribeCluster", "1")
async def endpoint_types(run: Run) -> None:
    for kind in (1, 2, 3, 0):
        await run.ask(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind))


@case("FindCoordinator", "0-3")
async def one_key(run: Run) -> None:
    for kind in (0, 1) if run.version else (0,):
        await run.until(
            FindCoordinatorRequest(key=run.name("key"), key_type=kind), lambda answer: answer.error_code != 15
        )


@case("FindCoordinator", "0-3")
async def bad_keys(run: Run) -> None:
    await run.ask(FindCoordinatorRequest(key=""))
    if run.version:
        await run.ask(FindCoordinatorRequest(key="", key_type=1))
        await run.ask(FindCoordinatorRequest(key="x", key_type=2))
        await run.ask(FindCoordinatorRequest(key="x", key_type=9))


@case("FindCoordinator", "4-6")
async def many_keys(run: Run) -> None:
    for kind in (0, 1):
        await run.until(
            FindCoordinatorRequest(coordinator_keys=["a", "b", "a", ""], key_type=kind),
            lambda answer: all(one.error_code != 15 for one in answer.coordinators),
        )
    await run.ask(FindCoordinatorRequest(coordinator_keys=[], key_type=0))


@case("FindCoordinator", "4-6")
async def unknown_kinds(run: Run) -> None:
    for kind in (2, 9, -1):
        await run.ask(FindCoordinatorRequest(coordinator_keys=["a"], key_type=kind))


@case("UpdateFeatures")
async def nothing_known(run: Run) -> None:
    await run.ask(UpdateFeaturesRequest(feature_updates=[]))
    await run.ask(UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="", max_version_level=1)]))
    unknown = FeatureUpdateKey(feature="flight", max_version_level=1)
    await run.ask(UpdateFeaturesRequest(feature_updates=[unknown]))
    await run.ask(UpdateFeaturesRequest(feature_updates=[unknown, unknown]))
    if run.version:
        await run.ask(UpdateFeaturesRequest(feature_updates=[unknown], validate_only=True))
        for kind in (0, 2, 3, 9):
            update = FeatureUpdateKey(feature="flight", max_version_level=1, upgrade_type=kind)
            await run.ask(UpdateFeaturesRequest(feature_updates=[update]))
    await run.ask(UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="flight", max_version_level=0)]))
    await run.ask(UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="flight", max_version_level=-1)]))
