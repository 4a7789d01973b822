"""Error codes are found wherever a declaration has a field for them, and nowhere else."""

from __future__ import annotations

from anabranch.protocol.apis.fetch import FetchResponse
from anabranch.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from anabranch.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from anabranch.protocol.apis.write_txn_markers import WriteTxnMarkersResponse
from anabranch.protocol.error_codes import error_codes


def test_error_codes_are_found_at_every_level() -> None:
    partitions = [PartitionProduceResponse(index=0, error_code=code, base_offset=0) for code in (0, 6)]
    produced = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=partitions)])
    assert list(error_codes(produced, ProduceResponse)) == [0, 6]
    topic = MetadataResponseTopic(
        error_code=3,
        name="t",
        partitions=[
            MetadataResponsePartition(error_code=5, partition_index=0, leader_id=-1, replica_nodes=[], isr_nodes=[])
        ],
    )
    metadata = MetadataResponse(brokers=[], topics=[topic])
    assert list(error_codes(metadata, MetadataResponse)) == [3, 5, 0]
    assert list(error_codes(FetchResponse(error_code=70, responses=[]), FetchResponse)) == [70]
    assert list(error_codes(WriteTxnMarkersResponse(markers=[]), WriteTxnMarkersResponse)) == []
