"""The page's files as they are served: to whom, with which headers, how large they are, and how to turn them off."""

import re
from itertools import chain

import pytest
from conftest import ServeFakes
from support.fakes import FakeScorer
from turnscore_service.api.page import FIRST, read_page
from turnscore_service.settings.api import HttpSettings, PageSettings
from turnscore_service.settings.service import Settings

MOST_BYTES = 160_000  # of the whole page, uncompressed: what the first view fetches is all there is


async def test_every_file_is_served_to_this_service_alone(serve: ServeFakes):
    async with serve(fake=FakeScorer()) as (client, _):
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
async def test_nothing_else_is_served_below_it(serve: ServeFakes, name: str):
    async with serve(fake=FakeScorer()) as (client, _):
        answer = await client.get(f"/page/{name}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_the_settings_turn_it_off(serve: ServeFakes):
    async with serve(Settings(page=PageSettings(enabled=False)), fake=FakeScorer()) as (client, _):
        assert [(await client.get(path)).status_code for path in ("/", "/page/app.js", "/docs")] == [404, 404, 200]


async def test_a_foreign_name_gets_no_page_where_names_are_set(serve: ServeFakes):
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
