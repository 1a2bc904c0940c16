import json
from pathlib import Path

from turnscore_service.openapi_document import openapi_document

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_served_document_equals_the_committed_file():
    assert COMMITTED.read_text() == openapi_document(), "run `make schema`"


def test_every_reference_of_the_document_leads_somewhere():
    document = json.loads(openapi_document())

    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            found = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return found + [each for value in node.values() for each in references(value)]
        return [each for value in node for each in references(value)] if isinstance(node, list) else []

    schemas = document["components"]["schemas"]
    assert {each.removeprefix("#/components/schemas/") for each in references(document)} <= set(schemas)
