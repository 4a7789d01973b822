"""Properties of each API that are known without its declarations."""

from __future__ import annotations

from anabranch.protocol.registry import APIS
from tests.cases import for_each

BY_NAME = {api.name: api for api in APIS}


def test_keys_and_names_are_unique() -> None:
    assert len({api.key for api in APIS}) == len({api.name for api in APIS}) == len(APIS)


@for_each(APIS)
def test_every_api_has_a_request_and_a_response(api: object) -> None:
    assert api.request.__name__ == f"{api.name}Request"  # type: ignore[attr-defined]
    assert api.response.__name__ == f"{api.name}Response"  # type: ignore[attr-defined]


def test_module_names_equal_api_names() -> None:
    assert BY_NAME["LeaderAndIsr"].module == "anabranch.protocol.apis.leader_and_isr"
    assert BY_NAME["OffsetForLeaderEpoch"].module.endswith(".offset_for_leader_epoch")


def test_header_versions_have_two_exceptions() -> None:
    api_versions, shutdown = BY_NAME["ApiVersions"], BY_NAME["ControlledShutdown"]
    assert (api_versions.request_header_version(3), api_versions.response_header_version(3)) == (2, 0)
    assert [shutdown.request_header_version(version) for version in (0, 1, 3)] == [0, 1, 2]
    metadata = BY_NAME["Metadata"]
    assert (metadata.response_header_version(8), metadata.response_header_version(9)) == (0, 1)
