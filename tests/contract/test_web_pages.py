"""What a browser's pages may ask of the service, by which names, and the service's own page as it is served."""

import gzip
import re
import subprocess
import sys
from itertools import chain

import pytest
from support.fakes import FakeScorer
from turnscore_service.api.page import FIRST, read_page
from turnscore_service.settings.api import HttpSettings, PageSettings
from turnscore_service.settings.service import Settings
from turnscore_wire import ErrorReply

BODY = b'{"response": "a"}'
JSON = {"content-type": "application/json"}
NAMED = Settings(http=HttpSettings(allowed_hosts=("turnscore.example",)))
SHARED = Settings(http=HttpSettings(allowed_origins=("https://chat.example",)))


def refused(content):
    error = ErrorReply.model_validate_json(content).error
    return str(error.code), error.field


@pytest.mark.parametrize("path", ["score", "score_batch", "score_dialogue", "rank"])
@pytest.mark.parametrize(
    "sent",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "text/json", "application/jsonx"],
)
async def test_only_json_is_taken(client, path, sent):
    headers = {"content-type": sent} if sent else {}
    response = await client.post(f"/v1/{path}", content=BODY, headers=headers)
    assert (response.status_code, refused(response.content)) == (415, ("invalid_request", "content-type"))


async def test_a_compressed_body_is_refused_by_its_name(client):
    headers = JSON | {"content-encoding": "gzip"}
    response = await client.post("/v1/score", content=gzip.compress(BODY), headers=headers)
    assert (response.status_code, refused(response.content)) == (415, ("invalid_request", "content-encoding"))


@pytest.mark.parametrize("sent", ["application/json", "Application/JSON; charset=utf-8", "application/json;x=y"])
async def test_json_may_be_said_in_every_way(client, sent):
    response = await client.post("/v1/score", content=BODY, headers={"content-type": sent})
    assert response.status_code == 200


OTHER_PAGES = [
    ("127.0.0.1:3000", "https://evil.example"),
    ("127.0.0.1:3000", "http://127.0.0.1:8080"),
    ("127.0.0.1:3000", "null"),
    ("localhost:3000", "http://localhost.evil.example:3000"),
    ("evil.example:3000", "http://evil.example:3000"),  # whose owner lets the name lead to 127.0.0.1
    ("localhost.evil.example", "http://localhost.evil.example"),
    ("", "http://"),
]


@pytest.mark.parametrize(("host", "origin"), OTHER_PAGES)
@pytest.mark.parametrize("call", ["POST /v1/score", "GET /v1/models", "GET /metrics"])
async def test_pages_of_others_are_refused(client, call, host, origin):
    method, path = call.split()
    headers = {**JSON, "host": host, "origin": origin}
    response = await client.request(method, path, content=BODY, headers=headers)
    assert (response.status_code, refused(response.content)) == (400, ("invalid_request", "origin"))


@pytest.mark.parametrize("host", ["127.0.0.1:3000", "localhost:3000", "[::1]:3000", "10.0.0.7", "LOCALHOST:3000"])
async def test_the_services_own_pages_may_ask(client, host):
    headers = {**JSON, "host": host, "origin": f"http://{host.lower()}"}
    assert (await client.post("/v1/score", content=BODY, headers=headers)).status_code == 200


async def test_programs_may_ask_by_any_name_unless_names_are_set(serve):
    headers = {**JSON, "host": "whatever.example"}
    async with serve(fake=FakeScorer()) as (client, _):
        assert (await client.post("/v1/score", content=BODY, headers=headers)).status_code == 200
    async with serve(NAMED, fake=FakeScorer()) as (client, _):
        response = await client.post("/v1/score", content=BODY, headers=headers)
        assert (response.status_code, refused(response.content)) == (400, ("invalid_request", "host"))
        for path in ("/livez", "/readyz"):  # a probe asks by whatever name it likes
            assert (await client.get(path, headers=headers)).status_code == 200
        for host in ("turnscore.example", "turnscore.example:443", "10.1.2.3:3000", "localhost"):
            headers["host"] = host
            assert (await client.post("/v1/score", content=BODY, headers=headers)).status_code == 200
        own = {**JSON, "host": "turnscore.example", "origin": "https://turnscore.example"}
        assert (await client.post("/v1/score", content=BODY, headers=own)).status_code == 200


async def test_an_allowed_page_may_ask_and_read(serve):
    page = {"origin": "https://chat.example"}
    async with serve(SHARED, fake=FakeScorer()) as (client, _):
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-api-key"}
        before = await client.options("/v1/score", headers={**page, **asked})
        assert (before.status_code, before.headers["access-control-allow-origin"]) == (200, "https://chat.example")
        response = await client.post("/v1/score", content=BODY, headers={**page, **JSON})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, "https://chat.example")
        other = await client.post("/v1/score", content=BODY, headers={**JSON, "origin": "https://evil.example"})
        assert other.status_code == 400
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("path", ["/v1/models%0a", "/v1/models%0d%0a", "/v1/score%0a", "/metrics%0a", "/livez%00"])
async def test_a_path_with_control_characters_is_no_path_of_ours(client, path):
    for response in (await client.get(path), await client.post(path, content=BODY, headers=JSON)):
        assert (response.status_code, refused(response.content)) == (404, ("not_found", None))


def test_bentoml_by_itself_listens_on_loopback_and_trusts_no_forwarded_address():
    """uvicorn believes everybody on its own machine unless FORWARDED_ALLOW_IPS says otherwise."""
    program = (
        "import importlib, os\n"
        "from bentoml._internal.configuration.containers import BentoMLContainer\n"
        "from turnscore_service import bento\n"
        "for host in (None, '0.0.0.0'):\n"
        "    if host is not None:\n"
        "        os.environ['TURNSCORE_HTTP__HOST'] = host\n"
        "        importlib.reload(bento)\n"
        "    bento.TurnScore.inject_config()\n"
        "    trusted = repr(os.environ['FORWARDED_ALLOW_IPS'])\n"
        "    print(BentoMLContainer.http.host.get(), BentoMLContainer.http.port.get(), trusted)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert run.stdout.split() == ["127.0.0.1", "3000", "''", "0.0.0.0", "3000", "''"], run.stderr


MOST_BYTES = 160_000  # of the whole page, uncompressed: what the first view fetches is all there is


async def test_every_file_is_served_to_this_service_alone(client):
    for name in ["", *(f"page/{each}" for each in read_page() if each != FIRST)]:
        answer = await client.get(f"/{name}")
        assert answer.status_code == 200, name
        policy = dict(each.strip().split(" ", 1) for each in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["trusted-types"] == policy["base-uri"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert {policy[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await client.head(f"/{name}")).headers["etag"] == answer.headers["etag"]
        again = await client.get(f"/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "index.html", "../__init__.py", "..%2f__init__.py", "turnscore", ""])
async def test_nothing_else_is_served_below_it(client, name):
    answer = await client.get(f"/page/{name}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_the_settings_turn_it_off(serve):
    async with serve(Settings(page=PageSettings(enabled=False)), fake=FakeScorer()) as (client, _):
        assert [(await client.get(path)).status_code for path in ("/", "/page/app.js", "/docs")] == [404, 404, 200]


async def test_a_foreign_name_gets_no_page_where_names_are_set(serve):
    async with serve(Settings(http=HttpSettings(allowed_hosts=("a.example",))), fake=FakeScorer()) as (client, _):
        assert (await client.get("/", headers={"host": "b.example"})).status_code == 400
        assert (await client.get("/", headers={"host": "a.example"})).status_code == 200


def test_the_page_is_small_and_asks_for_every_module_at_once():
    page = read_page()
    assert sum(len(file.content) for file in page.values()) < MOST_BYTES
    index = page[FIRST].content.decode()
    asked = re.findall(r'(?:href|src)="page/([^"]+)"', index)
    assert set(asked) == page.keys() - {FIRST}
    assert not re.search(r"<script(?! type=\"module\" src=)|\sstyle=|\son\w+=|https?://", index)


def test_modules_import_nothing_but_each_other():
    page = read_page()
    modules = {name: file.content.decode() for name, file in page.items() if name.endswith(".js")}
    imported = chain.from_iterable(
        re.findall(r'(?:from|^import) "(.+)"', text, re.MULTILINE) for text in modules.values()
    )
    assert all(each.startswith("./") for each in imported)
    assert not any("innerHTML" in text or "insertAdjacent" in text or "eval(" in text for text in modules.values())
