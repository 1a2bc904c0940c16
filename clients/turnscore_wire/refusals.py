"""Refusals: how a refusal of the wire types is reported, alike by the service and by its clients."""

from pydantic import ValidationError

MAX_FIELD_CHARS = 200
"""Longer field paths are cut: only an unknown field's own name can be so long. Chosen."""

BODY_FIELD = "body"
"""The field that is named where no single field is at fault."""

_JSON_WORDS = {
    "model_type": "Input should be an object",
    "dict_type": "Input should be an object",
    "list_type": "Input should be a valid array",
}
"""What pydantic says when it reads JSON; of parsed values it speaks of dictionaries, lists and our classes' names."""


def describe_refusal(error: ValidationError, prefix: str = "") -> tuple[str, str]:
    """The first fault as (field, message): the field's path from the root, the broken rule, never what was sent."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ".".join([*filter(None, [prefix]), *map(str, first["loc"])])
    # An unknown field's name is the caller's own: it may be long, or hold what no reply can carry.
    printable = path.encode(errors="replace").decode()[:MAX_FIELD_CHARS]
    message = _JSON_WORDS.get(first["type"], first["msg"])
    return printable or BODY_FIELD, message[:1].lower() + message[1:]
