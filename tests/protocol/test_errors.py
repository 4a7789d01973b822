import pytest

from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError, hex_excerpt, raise_for_error


def test_error_table_is_complete() -> None:
    assert sorted(ErrorCode) == [*range(-1, 134), 2530]


@pytest.mark.parametrize(
    ("code", "retriable", "invalid_metadata"),
    [
        (ErrorCode.NONE, False, False),
        (ErrorCode.NOT_CONTROLLER, True, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, True, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True, True),
        (ErrorCode.STALE_BROKER_EPOCH, False, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False, False),
        (ErrorCode.INVALID_PARTITION_METADATA, True, True),
    ],
)
def test_code_is_retriable_or_requires_metadata_refresh(
    code: ErrorCode, retriable: bool, invalid_metadata: bool
) -> None:
    assert (code.retriable, code.invalid_metadata) == (retriable, invalid_metadata)


def test_invalid_metadata_is_always_retriable() -> None:
    assert all(code.retriable for code in ErrorCode if code.invalid_metadata)
    assert sum(code.retriable for code in ErrorCode) == 33
    assert sum(code.invalid_metadata for code in ErrorCode) == 14


def test_unknown_code_is_an_unknown_server_error() -> None:
    assert ErrorCode(999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_messages_are_readable_sentences() -> None:
    assert str(KafkaError(ErrorCode.INVALID_PARTITIONS, "5 is too few")) == "INVALID_PARTITIONS (37): 5 is too few"
    assert str(KafkaError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER (41)"
    error = DecodeError("ends too early", path="topics[3].name", buffer=b"abc", position=2)
    assert str(error) == "topics[3].name: ends too early at byte 2 [61 62 63]"


def test_excerpt_shows_position_and_is_short() -> None:
    assert hex_excerpt(bytes(range(100)), 50) == "... " + bytes(range(46, 62)).hex(" ") + " ..."
    assert hex_excerpt(b"", 5) == ""
    assert hex_excerpt(b"ab", 99) == "61 62"


def test_response_without_an_error_raises_nothing() -> None:
    raise_for_error(0, "fine")
    with pytest.raises(KafkaError) as raised:
        raise_for_error(3, None)
    assert (raised.value.code, raised.value.message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
