"""Goal: a failing test prints the exchanges of its topics and groups, in few lines; one that passes prints none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.registry import BY_NAME
from tests.compiled_parts import is_compiled
from tests.exchanges import KEPT, LINES_MAX, Exchanges
from tests.secured.test_leaks import leaks

PLANTED = Path(__file__).parent / "planted_failure.py"
HEADLINE = "last exchanges of clients and brokers"


@pytest.mark.skipif(is_compiled("anabranch.protocol.connection"), reason="compiled methods cannot be replaced")
@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.costly), "1"])
def test_failing_test_prints_the_exchanges_of_its_topics_and_groups(workers: str) -> None:
    command = [sys.executable, "-m", "pytest", str(PLANTED), "-q", "-n", workers, "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count(HEADLINE) == 2
    for number in (0, 1):
        (told,) = re.findall(rf"test_that_fails\[{number}\] _.*?{HEADLINE} -+\n(.*?)\n[=_]", done.stdout, re.DOTALL)
        lines = told.splitlines()
        assert len(lines) <= LINES_MAX + 1
        for expected in (
            rf"producer-{number} #\d+ Produce v\d+ wanted-0 -> NONE [\d.]+ ms",
            r"anabranch #\d+ Fetch v\d+ wanted-0 -> NONE \d+ bytes",
            r"JoinGroup v\d+ billing -> MEMBER_ID_REQUIRED",
            r"OffsetCommit v\d+ billing/wanted-0 -> NONE",
        ):
            assert re.search(expected, told), f"{expected} in\n{told}"
        assert f"producer-{1 - number}" not in told, "of another test"
        assert not re.search(r"Produce v\d+ other", told), "of a topic that the test does not name"
        assert "secret" not in told, "no record"


def test_only_the_last_exchanges_are_kept_and_few_lines_are_printed() -> None:
    exchanges = Exchanges()
    for number in range(KEPT + 1000):
        request = DecodedRequest(BY_NAME["ApiVersions"], 3, number, f"client-{number}", ApiVersionsRequest())
        exchanges.begin(request)
        if number % 2:
            exchanges.end(request, None)
    assert len(exchanges.kept) == KEPT
    lines = exchanges.lines("anything")
    assert len(lines) == LINES_MAX + 1
    assert lines[0] == f"({KEPT - LINES_MAX} lines before)"
    assert f"client-{KEPT + 999}" in lines[-1]
    exchanges.clear()
    assert exchanges.lines() == []


def test_printed_logins_contain_no_password() -> None:
    exchanges = Exchanges()
    login = SaslAuthenticateRequest(auth_bytes=b"\0alice\0planted-of-alice")
    request = DecodedRequest(BY_NAME["SaslAuthenticate"], 2, 1, "client-1", login)
    exchanges.begin(request)
    refusal = "planted-of-alice is wrong"
    exchanges.end(request, SaslAuthenticateResponse(error_code=58, error_message=refusal, auth_bytes=refusal.encode()))
    (line,) = exchanges.lines()
    assert "SaslAuthenticate v2  -> SASL_AUTHENTICATION_FAILED" in line
    assert leaks(line.encode()) == []
