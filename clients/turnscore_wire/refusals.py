"""Refusals: how a value the wire types refuse is told, alike by the service and by its clients."""

from pydantic import ValidationError

MAX_FIELD_CHARS = 200
"""Longer field paths are cut: only an unknown field's own name can be so long. Chosen."""

BODY_FIELD = "body"
"""The field that is named where no single field is at fault."""


def tell_refusal(error: ValidationError, prefix: str = "") -> tuple[str, str]:
    """The first fault as (field, message): the field's path from the root, the broken rule, never what was sent."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ".".join([*filter(None, [prefix]), *map(str, first["loc"])])
    # An unknown field's name is the caller's own: it may be long, or hold what no reply can carry.
    printable = path.encode(errors="replace").decode()[:MAX_FIELD_CHARS]
    return printable or BODY_FIELD, first["msg"][:1].lower() + first["msg"][1:]
