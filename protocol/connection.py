"""The protocol state of both ends of a connection, without I/O: bytes in, requests or responses out, and back.

Kafka answers a connection strictly in order, and producers that pipeline rely on being *processed* in order too:
`ServerConnection` has one request open at a time, and the caller asks for the next after answering the last. Only a
Produce may be taken behind an open request (`next_produce`), once the open one's work is done.

`ClientConnection` sends any number of requests and expects the responses in the same order.

Headers (Kafka's `RequestHeader.json`, `ResponseHeader.json`, KIP-482, KIP-511):

    request v0    api key, version, correlation id             ControlledShutdown v0 alone
    request v1    ... client id, classic string, may be null   versions without tagged fields
    request v2    ... tagged fields; the client id stays classic
    response v0   correlation id                               also every ApiVersions response
    response v1   ... tagged fields

Whatever cannot be understood is a `DecodeError`: the owner logs it and closes, as Kafka does. The one exception is an
ApiVersions request of an unknown version, which gets a v0 answer that names the versions there are (KIP-511).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.protocol import codec
from anabranch.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.decoder_source import skip_tags
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.framing import FRAME_BYTES_MAX, FrameReader, ReceiveBuffer
from anabranch.protocol.registry import BY_KEY, Api, api_of
from anabranch.protocol.varint import Buffer

API_VERSIONS: Final = 18
PRODUCE: Final = 0
PRODUCE_HEAD: Final = b"\0\0"
SASL_AUTHENTICATE: Final = 36
BEFORE_LOGIN: Final = frozenset({17, API_VERSIONS, SASL_AUTHENTICATE})
"""Requests allowed before the login: SaslHandshake, ApiVersions, SaslAuthenticate."""
BEFORE_HANDSHAKE: Final = frozenset({17, API_VERSIONS})
BARE_TOKEN: Final = -1
"""The version of a token without a header."""
UNREAD: Final = object()
"""The body of a request that was not decoded, because its peer has not logged in."""
FIRST_FLEXIBLE_API_VERSIONS: Final = 3
CLIENT_SOFTWARE: Final = "anabranch"
NODE_SOFTWARE: Final = "anabranch-node"
"""The software name of this project's clients and nodes in ApiVersions."""
ENTRIES_MAX: Final = 131_072
"""`max.request.partition.size.limit`: the entries of one request. A topic of 100,000 partitions can be read whole."""
ORDERS: Final = frozenset({4, 5, 6, 56})
"""LeaderAndIsr, StopReplica, UpdateMetadata, AlterPartition: they name all partitions of a node, without a limit."""
ORDERED_ENTRY_BYTES: Final = 4
"""The minimum size of an entry in these requests: mostly replica ids."""

_read_request_head = struct.Struct(">hhi").unpack_from
_pack_request_head = struct.Struct(">ihhi").pack
_read_int16 = struct.Struct(">h").unpack_from
_read_int32 = struct.Struct(">i").unpack_from
_pack_response_head = struct.Struct(">ii").pack
_pack_flexible_response_head = struct.Struct(">iix").pack
_pack_int16 = struct.Struct(">h").pack
_pack_length = struct.Struct(">i").pack


class ServerConnection(FrameReader):
    """The server side of one client connection: a reader whose frames are requests."""

    __slots__ = (
        "_behind", "_decode", "_entries_max", "_open", "_open_bytes", "_served", "_served_to", "unanswered_bytes",
    )  # fmt: skip

    def __init__(
        self,
        served: Mapping[int, tuple[int, int]],
        frame_bytes_max: int = FRAME_BYTES_MAX,
        entries_max: int = ENTRIES_MAX,
        served_to: Callable[[str, str], Mapping[int, tuple[int, int]]] | None = None,
        landing: ReceiveBuffer | None = None,
    ) -> None:
        """Create the server side; `served_to` returns the served versions for a client's software name and version.

        `landing`: see `FrameReader`.
        """
        super().__init__(frame_bytes_max, landing)
        self._served = served
        self._served_to = served_to
        self._entries_max = entries_max
        self._open: DecodedRequest | None = None
        self._open_bytes = 0
        self._behind: list[tuple[DecodedRequest, int]] = []
        self.unanswered_bytes = 0
        """The bytes of the requests that were returned and not yet answered."""
        self._decode: Callable[[bytes, Mapping[int, tuple[int, int]], int], DecodedRequest] = decode_request

    def restrict(self, frame_bytes_max: int) -> None:
        """Decode only requests allowed before the login, in frames up to this size."""
        self._decode = decode_before_login
        self.frame_bytes_max = frame_bytes_max

    def expect_tokens(self) -> None:
        """Read frames as bare tokens from now on, after version 0 of SaslHandshake."""
        self._decode = bare_token

    def release(self, frame_bytes_max: int) -> None:
        """Decode all served requests, after the login."""
        self._decode = decode_request
        self.frame_bytes_max = frame_bytes_max

    @property
    def held_bytes(self) -> int:
        """Bytes received and not yet answered."""
        return self.buffered + self.unanswered_bytes

    @property
    def open(self) -> DecodedRequest | None:
        """The request that waits for its response."""
        return self._open

    def next_request(self) -> DecodedRequest | None:
        """Return the next request; None while one is open or bytes are missing. Raises DecodeError.

        An ApiVersions request of an unknown version has `body` None and `version` 0: answer it with None.
        """
        if self._open is not None or not self.buffered:
            return None
        frame = self.next_frame()
        if frame is None:
            return None
        self._open_bytes = len(frame)
        self.unanswered_bytes += len(frame)
        self._open = self._decode(frame, self._served, self._entries_max)
        return self._open

    def next_produce(self) -> DecodedRequest | None:
        """Return the next request, if it is a Produce, behind the open one: it becomes open when that is answered.

        None if it is another request, or bytes are missing. Raises DecodeError.
        """
        assert self._open is not None, "no request is open"
        frame = self.next_frame() if self.is_next(PRODUCE_HEAD) else None
        if frame is None:
            return None
        request = self._decode(frame, self._served, self._entries_max)
        self._behind.append((request, len(frame)))
        self.unanswered_bytes += len(frame)
        return request

    def answer(self, response: Any | None) -> list[Buffer]:
        """Return the bytes of the open request's response; none for None, the response to Produce with acks=0."""
        request, self._open = self._open, None
        assert request is not None, "an answer without a request"
        self.unanswered_bytes -= self._open_bytes
        if self._behind:
            self._open, self._open_bytes = self._behind.pop(0)
        if request.api.key == API_VERSIONS:
            response = self._serve_versions(request, response)
        elif request.version == BARE_TOKEN:
            return [] if response is None else [_pack_length(len(response)) + response]
        return [] if response is None else encode_response(request, response)

    def _serve_versions(self, request: DecodedRequest, response: Any) -> Any:
        """Serve the versions for the client's software from now on; unchanged if ApiVersions failed."""
        if request.body is None:
            return self._unsupported_version()
        if self._served_to is not None and getattr(response, "error_code", None) == ErrorCode.NONE:
            introduced = request.body
            self._served = self._served_to(introduced.client_software_name, introduced.client_software_version)
        return response

    def _unsupported_version(self) -> Any:
        """Return the ApiVersions v0 response that lists the supported versions for a newer client."""
        first, last = self._served[API_VERSIONS]
        own = ApiVersion(api_key=API_VERSIONS, min_version=first, max_version=last)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])


def is_token(request: DecodedRequest) -> bool:
    """Whether a frame was a bare SASL token, which is then the body."""
    return request.version == BARE_TOKEN


def bare_token(frame: bytes, _served: Mapping[int, tuple[int, int]], _entries_max: int) -> DecodedRequest:
    """Decode a frame without a header; its response has none either."""
    return DecodedRequest(BY_KEY[SASL_AUTHENTICATE], BARE_TOKEN, 0, None, frame)


def decode_before_login(frame: bytes, served: Mapping[int, tuple[int, int]], entries_max: int) -> DecodedRequest:
    """Decode a request before the login: only the header, unless it is one of the allowed three.

    The body of others is UNREAD.
    """
    key, version, correlation_id = _read_request_head(frame, 0) if len(frame) >= 8 else (-1, -1, 0)
    if key in BEFORE_LOGIN or key not in served or not served[key][0] <= version <= served[key][1]:
        return decode_request(frame, served, entries_max)
    api = BY_KEY[key]
    header_version = api.request_header_version(version)
    client_id = _read_client_id(frame, api, version, flexible=header_version == 2)[0] if header_version else None
    return DecodedRequest(api, version, correlation_id, client_id, UNREAD)


class ClientConnection:
    """The client side of one connection: correlation ids, headers, and the matching of responses to requests."""

    __slots__ = ("_client_id", "_frames", "_next_id", "_waiting")

    def __init__(self, client_id: str | None, landing: ReceiveBuffer | None = None) -> None:
        """Create the client side; `landing`: see `FrameReader`."""
        raw = None if client_id is None else client_id.encode()
        self._client_id = _pack_int16(-1) if raw is None else _pack_int16(len(raw)) + raw
        self._frames = FrameReader(landing=landing)
        self._next_id = 0
        self._waiting: deque[tuple[int, Api, int]] = deque()

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._waiting)

    @property
    def buffered(self) -> int:
        """Received bytes of an incomplete response."""
        return self._frames.buffered

    def request(self, message: Any, version: int, *, expects_answer: bool = True) -> tuple[int, list[Buffer]]:
        """Return the correlation id and the bytes of a request. Produce with acks=0 never expects a response."""
        api = api_of(type(message))
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        body = codec.encode_chunks(message, version)
        header_version = api.request_header_version(version)
        tail = b"" if header_version == 0 else self._client_id if header_version == 1 else self._client_id + b"\0"
        length = 8 + len(tail) + sum(map(len, body))
        head = _pack_request_head(length, api.key, version, correlation_id) + tail
        if expects_answer and not (api.key == PRODUCE and message.acks == 0):
            self._waiting.append((correlation_id, api, version))
        return correlation_id, _with_head(head, body)

    def receive(self, data: Buffer) -> list[tuple[int, Any]]:
        """Return the responses that these bytes complete, with their correlation ids. Raises DecodeError."""
        self._frames.feed(data)
        return self._responses()

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Return the buffer for the transport's next bytes (`asyncio.BufferedProtocol`)."""
        return self._frames.get_buffer(size_hint)

    def buffer_updated(self, count: int) -> list[tuple[int, Any]]:
        """Return the responses that the `count` bytes just written complete."""
        self._frames.buffer_updated(count)
        return self._responses()

    def _responses(self) -> list[tuple[int, Any]]:
        responses = []
        while (frame := self._frames.next_frame()) is not None:
            responses.append(self._response(frame))
        return responses

    def _response(self, frame: bytes) -> tuple[int, Any]:
        if len(frame) < 4:
            raise DecodeError("a response without a correlation id", buffer=frame)
        correlation_id: int = _read_int32(frame, 0)[0]
        if not self._waiting:
            raise DecodeError(f"answer {correlation_id} without an open request", buffer=frame)
        expected, api, version = self._waiting.popleft()
        if correlation_id != expected:
            raise DecodeError(f"answer {correlation_id} instead of {expected} ({api.name} v{version})", buffer=frame)
        return correlation_id, decode_response(frame, api, version)


def decode_request(
    frame: bytes, served: Mapping[int, tuple[int, int]], entries_max: int = ENTRIES_MAX
) -> DecodedRequest:
    """Decode a request frame: header and body, with a limit on its topics, partitions and the like."""
    if len(frame) < 8:
        raise DecodeError("a request shorter than its header", buffer=frame, part="header")
    key, version, correlation_id = _read_request_head(frame, 0)
    api = BY_KEY.get(key)
    versions = served.get(key)
    if api is None or versions is None:
        named = key if api is None else f"{api.name} ({key})"
        raise DecodeError(f"unknown API {named} v{version}", buffer=frame, part="header")
    if not versions[0] <= version <= versions[1]:
        if key != API_VERSIONS or version < 0:
            served_are = f"{api.name} v{version}, served are v{versions[0]} to v{versions[1]}"
            raise DecodeError(served_are, buffer=frame, part="body" if key in BEFORE_HANDSHAKE else "header")
        client_id, _ = _read_client_id(frame, api, version, flexible=version >= FIRST_FLEXIBLE_API_VERSIONS)
        return DecodedRequest(api, 0, correlation_id, client_id, None)
    entries = max(entries_max, len(frame) // ORDERED_ENTRY_BYTES) if key in ORDERS else entries_max
    header_version = api.request_header_version(version)
    client_id, position = None, 8
    if header_version:
        client_id, position = _read_client_id(frame, api, version, flexible=header_version == 2)
    try:
        body, _ = codec.decode(api.request, version, frame, position, entries)
    except DecodeError as error:
        raise _name_error(f"{api.name} v{version}", error, frame) from None
    return DecodedRequest(api, version, correlation_id, client_id, body)


def _read_client_id(frame: bytes, api: Api, version: int, *, flexible: bool) -> tuple[str | None, int]:
    """Return the client id, a classic string even in header v2, and the start of the body."""
    try:
        length: int = _read_int16(frame, 8)[0]
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise DecodeError(f"length {length} with {len(frame) - 10} bytes left", position=8)
            client_id = frame[10:position].decode()
        if flexible:
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position, ENTRIES_MAX)[0]
    except (struct.error, IndexError, UnicodeDecodeError, DecodeError) as error:
        reason = error.reason if isinstance(error, DecodeError) else "ends too early or is not UTF-8"
        path = f"{api.name} v{version} header"
        raise DecodeError(reason, path=path, buffer=frame, position=8, part="header") from None
    return client_id, position


def decode_response(frame: bytes, api: Api, version: int) -> Any:
    """Decode the body of a response frame, for the request that it answers."""
    try:
        position = 4
        if api.response_header_version(version) == 1:
            position = 5 if frame[4] == 0 else skip_tags(frame, 4)[0]
        if api.key == API_VERSIONS and _read_int16(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        body, _ = codec.decode(api.response, version, frame, position)
    except (struct.error, IndexError) as early:
        raise DecodeError("ends too early", path=f"{api.name} v{version} response", buffer=frame) from early
    except DecodeError as error:
        raise _name_error(f"{api.name} v{version} response", error, frame) from None
    return body


def encode_response(request: DecodedRequest, response: Any) -> list[Buffer]:
    """Encode the frame of a response, in pieces."""
    version = request.version
    if request.api.key == API_VERSIONS and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = 0  # of all versions, a client of any release can read this one (KIP-511)
    body = codec.encode_chunks(response, version)
    length = sum(map(len, body))
    if request.api.response_header_version(request.version):
        head = _pack_flexible_response_head(length + 5, request.correlation_id)
    else:
        head = _pack_response_head(length + 4, request.correlation_id)
    return _with_head(head, body)


def _with_head(head: bytes, body: list[Buffer]) -> list[Buffer]:
    """Prepend the header to the first piece, which is never a record batch: this saves a write."""
    body[0] = head + body[0]
    return body


def _name_error(what: str, error: DecodeError, frame: bytes) -> DecodeError:
    path = f"{what} {error.path}".rstrip()
    return DecodeError(error.reason, path=path, buffer=frame, position=error.position)
