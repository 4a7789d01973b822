"""The settings of a cluster's brokers: made of its arguments, and kept with the ports that the brokers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.broker.config.broker_settings import ConfigError
from anabranch.cluster.cluster_settings import ClusterSettings

ARGUMENTS: dict[str, Any] = {
    "host": "127.0.0.1",
    "advertised_host": "",
    "advertised_port": 0,
    "port": 0,
    "listeners": (),
    "data_dir": None,
    "properties": {},
    "racks": ("",),
    "kafka": "",
}


def settings(brokers: int = 3, **arguments: object) -> ClusterSettings:
    return ClusterSettings.of(brokers, **{**ARGUMENTS, **arguments})


def test_brokers_differ_in_ids_ports_racks_and_directories() -> None:
    made = settings(port=9092, racks=("a", "b"), data_dir="/data", kafka={1: "4.1", 2: "3.9", 3: "4.1"})
    assert made.node_ids == (1, 2, 3)
    assert made.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert [made[one].rack for one in made.node_ids] == ["a", "b", "a"]
    assert made[3].data_dir == "/data/broker-3"
    assert [made[one].kafka_version for one in (1, 3)] == [made[1].kafka_version] * 2 != [made[2].kafka_version] * 2
    assert {made[one].kafka_release for one in made.node_ids} == {made[2].kafka_version}


def test_brokers_without_a_data_directory_keep_everything_in_memory() -> None:
    assert [settings()[one].data_dir for one in (1, 2, 3)] == ["", "", ""]


@pytest.mark.parametrize("brokers", [1, 2, 3, 4])
def test_replication_has_as_many_brokers_as_there_are_and_three_at_most(brokers: int) -> None:
    first = settings(brokers).first
    replicas = min(3, brokers)
    assert (
        first.default_replication_factor,
        first.offsets_topic_replication_factor,
        first.transaction_state_log_replication_factor,
        first.share_coordinator_state_topic_replication_factor,
    ) == (replicas,) * 4
    assert first.transaction_state_log_min_isr == first.share_coordinator_state_topic_min_isr == min(2, brokers)


def test_given_replication_of_internal_topics_is_kept_with_fewer_live_brokers() -> None:
    assert settings().first.internal_topics_limited_to_live_brokers
    given = settings(properties={"offsets.topic.replication.factor": "2"}).first
    assert (given.internal_topics_limited_to_live_brokers, given.offsets_topic_replication_factor) == (False, 2)


def test_clients_reach_brokers_by_an_advertised_port_and_brokers_each_other_by_their_own() -> None:
    made = settings(2, port=9092, advertised_host="outside", advertised_port=19092)
    assert made.bootstrap_servers == "outside:19092,outside:19093"
    assert [made[one].between_brokers.host for one in (1, 2)] == ["127.0.0.1"] * 2


def test_clients_without_authentication_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    settings()
    assert not caplog.messages
    settings(host="192.0.2.1")
    assert ["clients of PLAINTEXT://192.0.2.1 need no authentication" in one for one in caplog.messages] == [True]


def test_restarted_broker_keeps_its_port_also_after_a_reset() -> None:
    made = settings(2)
    made.bind(1, {made[1].first_listener.name: 5001})
    made.bind(2, {made[2].first_listener.name: 5002})
    made.change(2, {"num.partitions": "7"})
    assert (made.address(2), made[2].num_partitions) == (("127.0.0.1", 5002), 7)
    made.reset()
    assert made.bootstrap_servers == "127.0.0.1:5001,127.0.0.1:5002"
    assert made[2].num_partitions == settings()[2].num_partitions


def test_settings_elsewhere_are_the_given_ones_on_free_ports() -> None:
    made = settings(2, port=9092, properties={"num.partitions": "7"})
    made.change(1, {"num.partitions": "8"})
    other = made.elsewhere()
    assert [other[one].first_listener.port for one in other.node_ids] == [0, 0]
    assert [other[one].num_partitions for one in other.node_ids] == [7, 7]


def test_settings_elsewhere_do_not_advertise_the_ports_of_this_cluster() -> None:
    """Clients of a fork would read and write the cluster that it was forked from."""
    made = settings(brokers=1, port=9092, advertised_host="kafka.example", advertised_port=19092)
    assert made.bootstrap_servers == "kafka.example:19092"
    there = made.elsewhere()
    there.bind(1, {"PLAINTEXT": 4711, "INTERNAL": 4712})
    assert there.bootstrap_servers == "kafka.example:4711"
    assert there.bootstrap_servers_of("INTERNAL") == "127.0.0.1:4712"


def test_addresses_of_an_unknown_listener_are_none() -> None:
    made = settings(listeners=("PLAINTEXT://127.0.0.1:9092", "SASL_PLAINTEXT://127.0.0.1:9192"))
    assert made.bootstrap_servers_of("SASL_PLAINTEXT").startswith("127.0.0.1:9192,")
    with pytest.raises(KeyError, match="SSL"):
        made.bootstrap_servers_of("SSL")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"brokers": 0}, "brokers must be a number of at least 1, not 0"),
        ({"brokers": True}, "brokers must be a number of at least 1, not True"),
        ({"properties": {"log.dirs": "/data"}}, "--data-dir"),
        ({"host": "0.0.0.0"}, "clients cannot connect to 0.0.0.0: write --advertise HOST"),
        ({"advertised_port": 9000}, "an advertised port needs an advertised host"),
        (
            {"advertised_port": 9000, "advertised_host": "h", "listeners": ("PLAINTEXT://:1",)},
            "and excludes listeners",
        ),
    ],
)
def test_impossible_arguments_are_refused(arguments: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**arguments)
