"""TLS of the control plane, between server and blocking client: what is accepted, and why the rest is not."""

from __future__ import annotations

import asyncio
import http.cookiejar
import urllib.request
from pathlib import Path

import pytest

from anabranch.control.client import ControlClient, NotTrusted
from anabranch.control.events import Events
from anabranch.control.tls import trusting_context
from tests.anabranch.control.certified import LONG_AGO, Files, serving
from tests.anabranch.control.echo import Controlled


async def test_server_with_tls_is_verified_by_its_ca(tmp_path: Path) -> None:
    files = Files(tmp_path, "right")
    events = Events()
    events.publish("first")
    async with serving(Controlled(events), files.serving) as url:
        client = ControlClient(url, "secret", str(files.ca))
        assert await asyncio.to_thread(client.ask, "GET", "/v1/file") == b"\x00\x01"
        following = client.follow()
        assert (await asyncio.to_thread(next, following))["kind"] == "first"
        following.close()


@pytest.mark.parametrize(
    ("name", "trusted", "reason"),
    [
        (
            "right",
            "other",
            "certificate is not accepted: certificate signature failure; name the file of its CA",
        ),
        ("right", "", "self-signed certificate in certificate chain; name the file of its CA"),
        ("old", "old", "certificate is not accepted: certificate has expired"),
        ("elsewhere", "elsewhere", "certificate is not accepted: IP address mismatch, certificate is not valid for"),
        ("", "right", "the server uses no TLS; write http://"),
    ],
)
async def test_server_with_a_wrong_certificate_or_none_is_refused_in_one_line(
    tmp_path: Path, name: str, trusted: str, reason: str
) -> None:
    made = {
        "right": Files(tmp_path, "right"),
        "other": Files(tmp_path, "other"),
        "old": Files(tmp_path, "old", now=LONG_AGO),
        "elsewhere": Files(tmp_path, "elsewhere", hosts=("10.1.2.3",)),
    }
    async with serving(Controlled(Events()), made[name].serving if name else None) as url:
        client = ControlClient(url.replace("http://", "https://"), "secret", str(made[trusted].ca) if trusted else "")
        for work in (lambda: client.ask("GET", "/v1/file"), lambda: next(client.follow())):
            with pytest.raises(NotTrusted) as refused:
                await asyncio.to_thread(work)
            assert reason in str(refused.value) and "\n" not in str(refused.value)


async def test_client_without_tls_is_told_that_the_server_may_use_it(tmp_path: Path) -> None:
    async with serving(Controlled(Events()), Files(tmp_path, "right").serving) as url:
        client = ControlClient(url.replace("https://", "http://"), "secret")
        for work in (lambda: client.ask("GET", "/v1/file"), lambda: next(client.follow())):
            with pytest.raises(ConnectionError, match="closed the connection without a response; if it uses TLS"):
                await asyncio.to_thread(work)


async def test_ca_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    with pytest.raises(NotTrusted, match=rf"the CA file {path} is not read: .*No such file"):
        ControlClient("https://127.0.0.1:1", ca_file=str(path)).state()
    path.write_text("no certificate")
    with pytest.raises(NotTrusted, match="no certificates in PEM"):
        ControlClient("https://127.0.0.1:1", ca_file=str(path)).state()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_login_cookie_is_for_tls_only_if_the_server_has_tls(tmp_path: Path, is_tls: bool) -> None:
    files = Files(tmp_path, "right")
    jar = http.cookiejar.CookieJar()
    openers = [
        urllib.request.HTTPCookieProcessor(jar),
        urllib.request.HTTPSHandler(context=trusting_context(str(files.ca))),
    ]
    async with serving(Controlled(Events()), files.serving if is_tls else None) as url:
        opener = urllib.request.build_opener(*openers)
        with await asyncio.to_thread(opener.open, f"{url}/v1/login", b'{"token": "secret"}'):
            pass
    assert [cookie.secure for cookie in jar] == [is_tls]
