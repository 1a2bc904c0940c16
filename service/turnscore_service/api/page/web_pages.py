"""Web pages: which pages a browser may let use the service. Programs, which send no `Origin`, are asked for nothing.

A page on the internet reaches whatever its reader's machine reaches, localhost too. So its origin must be allowed, or
be the service's own. Where a name leads its owner decides, at any moment (DNS rebinding): a page is taken for the
service's own only under an address, under `localhost`, or under a name that the settings allow.
"""

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from turnscore_core.errors import InvalidRequestError

from turnscore_service.settings.doors import HttpSettings

ORIGIN_FIELD = "origin"
HOST_FIELD = "host"
CONTENT_TYPE_FIELD = "content-type"


def check_page(headers: Mapping[str, str], settings: HttpSettings) -> None:
    """Raises InvalidRequestError where a page of this origin, or anybody by this host's name, may not ask."""
    origin, authority = headers.get("origin"), headers.get("host", "").lower()
    if settings.allowed_hosts and authority and not _is_known(authority, settings):
        raise InvalidRequestError("this host is not in TURNSCORE_HTTP__ALLOWED_HOSTS", field=HOST_FIELD)
    if origin is None or origin in settings.allowed_origins:
        return
    is_own = origin.lower().partition("://")[2] == authority and _is_known(authority, settings)
    if not is_own:
        message = "pages of this origin may not use the service: TURNSCORE_HTTP__ALLOWED_ORIGINS"
        raise InvalidRequestError(message, field=ORIGIN_FIELD)


def check_content_type(headers: Mapping[str, str]) -> None:
    """Raises InvalidRequestError for a body that is not said to be JSON, as any page may send one unasked."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise InvalidRequestError("the body must be sent as application/json", field=CONTENT_TYPE_FIELD)


def _is_known(authority: str, settings: HttpSettings) -> bool:
    """Whether no other owner decides where the name leads."""
    try:
        host = urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host in settings.allowed_hosts:
        return True
    with suppress(ValueError):
        return bool(ip_address(host))
    return False
