"""The page is small and complete, runs only its own scripts, and refuses other origins."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from anabranch.control.pages import AccessControl, page_file, policy
from tests.anabranch.control.test_server import served, status

PAGE = Path(str(resources.files("anabranch.dashboard"))) / "page"
LIMIT_BYTES = 300_000


def files() -> list[str]:
    return [one.relative_to(PAGE).as_posix() for one in PAGE.rglob("*") if one.is_file()]


def test_all_page_files_are_served_and_small() -> None:
    found = [page_file(name) for name in files()]
    assert len(found) > 20
    assert sum(len(one[0]) for one in found if one is not None) < LIMIT_BYTES
    assert all(one is not None for one in found)


@pytest.mark.parametrize(
    "name", ["", "../feed.py", "views/../../feed.py", "views", "feed.py", "nothing.js", "/etc/passwd"]
)
def test_no_other_file_is_served(name: str) -> None:
    assert page_file(name) is None


def test_pages_refer_to_no_other_host() -> None:
    for name in files():
        if not name.startswith("vendor/") and not name.endswith(".svg"):
            addresses = re.findall(r"https?://[^\s`\"')]+", (PAGE / name).read_text())
            assert not addresses, name


def test_every_imported_module_exists() -> None:
    for name in files():
        if name.endswith(".js") and not name.startswith("vendor/"):
            for wanted in re.findall(r'from "(\.[^"]+)"', (PAGE / name).read_text()):
                assert (PAGE / name).parent.joinpath(wanted).is_file(), (name, wanted)


@pytest.mark.parametrize(
    ("local", "host", "origin", "expected"),
    [
        (True, "127.0.0.1:9190", None, None),
        (True, "localhost:9190", None, None),
        (True, "[::1]:9190", None, None),
        (True, "evil.example:9190", None, 403),
        (True, "", None, 403),
        (True, "127.0.0.1:9190", "http://127.0.0.1:9190", None),
        (True, "127.0.0.1:9190", "http://127.0.0.1:8000", 403),
        (True, "127.0.0.1:9190", "null", 403),
        (False, "cluster.example:9190", "https://cluster.example:9190", None),
        (False, "cluster.example:9190", "https://evil.example", 403),
    ],
)
def test_requests_of_other_origins_are_refused(
    local: bool, host: str, origin: str | None, expected: int | None
) -> None:
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    refused = AccessControl("", local=local, port=9190).refusal(headers, {})
    assert (refused and refused[0]) == expected


def test_session_cookie_replaces_token_and_differs_from_it() -> None:
    admission = AccessControl("secret", local=True, port=9190)
    here = {"Host": "localhost:9190"}
    assert admission.log_in("other") is admission.log_in(None) is None
    session = admission.log_in("secret")
    assert session is not None
    assert "secret" not in session
    for headers, cookies, expected in [
        (here, {}, 401),
        (here, {admission.cookie: session}, None),
        (here, {admission.cookie: ""}, 401),
        (here, {"anabranch_9191": session}, 401),
        ({**here, "Authorization": "Bearer secret"}, {}, None),
        ({**here, "Authorization": "Bearer "}, {}, 401),
        ({**here, "Origin": "https://evil.example"}, {admission.cookie: session}, 403),
    ]:
        refused = admission.refusal(headers, cookies)
        assert (refused and refused[0]) == expected


async def test_browser_logs_in_once() -> None:
    async with served("secret") as (_, session):
        for path in ("/", "/docs"):
            async with session.get(path) as page:
                text = await page.text()
                assert page.status == 200 and "<noscript>" in text
                assert page.headers["Content-Security-Policy"] == policy(text)
                assert "unsafe-inline" not in page.headers["Content-Security-Policy"].split("style-src")[0]
        async with session.get("/dashboard/main.js") as script:
            assert script.headers["Content-Type"].startswith("text/javascript")
        assert (await status(session, "GET", "/dashboard/nothing.js"))[0] == 404
        assert (await status(session, "GET", "/v1/nodes"))[0] == 401
        assert (await status(session, "POST", "/v1/login", json={"token": "other"}))[0] == 401
        assert (await status(session, "POST", "/v1/login", data=b"{"))[0] == 400
        async with session.post("/v1/login", json={"token": "secret"}) as answer:
            cookie = answer.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict"} <= {one.strip() for one in cookie.split(";")}
        name, _, value = cookie.partition(";")[0].partition("=")
        assert (await status(session, "GET", "/v1/nodes", headers={"Cookie": f"{name}={value}"}))[0] == 200
