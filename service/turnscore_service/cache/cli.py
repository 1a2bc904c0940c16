"""`turnscore cache`: removes a model's scores from the shared cache. Exit status 1 if the Redis cannot be used."""

import asyncio
import re
import secrets
from typing import Annotated, NoReturn

import typer
from turnscore_core.score_entries import key_pattern, mark_key

from turnscore_service.cache.redis_client import EntryStore, PendingWrite, cause_of, open_store
from turnscore_service.settings.cache import CacheSettings, RedisAddress
from turnscore_service.settings.service import read_settings


async def clear_model(store: EntryStore, model: str, settings: CacheSettings) -> int:
    """Removes the entries of `name:version` in every namespace; how many there were.

    Returns when every worker that has the Redis in use has asked for the mark: what it knew is no longer found, and
    what it has written meanwhile of that is removed too. Raises what the store does.
    """
    removed = await store.remove(key_pattern(model))
    # No worker holds anything from before as long. When a mark ends, entries made since are no longer found.
    mark = PendingWrite(secrets.token_bytes(8), 1000 * 365 * 86_400)
    for refusal in await store.write({mark_key(model): mark}):
        raise refusal
    in_flight = (settings.timeout_ms + settings.write_delay_ms) / 1000
    await asyncio.sleep(settings.clear_poll_seconds + 2 * in_flight)
    return removed + await store.remove(key_pattern(model))


app = typer.Typer(add_completion=False, no_args_is_help=True, help="Remove scores from the cache that processes share.")


@app.callback()
def _group() -> None: ...  # so that `clear` stays a command of its own


@app.command()
def clear(
    model: Annotated[str, typer.Argument(help="The bundle, as `name:version`; /v1/models lists them.")],
    url: Annotated[str, typer.Option(help="Address of the Redis; default: TURNSCORE_CACHE__URL.")] = "",
    timeout_seconds: Annotated[float, typer.Option(min=1, help="Seconds for the whole command.")] = 300,
) -> None:
    """Remove a bundle's scores from the shared cache, in every namespace, and from the workers that use it.

    Ends when no worker that reaches the Redis finds these scores: after TURNSCORE_CACHE__CLEAR_POLL_SECONDS at least.
    """
    settings = read_settings({"cache": {"url": url}} if url else {}).cache
    address = settings.address()
    if not re.fullmatch(r"[\w.+-]+:[\w.+-]+", model):
        _refuse(f"{model!r} is not a name:version", status=2)
    if address is None:
        _refuse("there is no shared cache: neither --url nor TURNSCORE_CACHE__URL names one", status=2)
    try:
        removed = asyncio.run(_clear(address, settings, model, timeout_seconds))
    except Exception as error:
        _refuse(f"the Redis cannot be used: {cause_of(error)}", status=1)
    typer.echo(f"removed {removed} scores of {model}")


async def _clear(address: RedisAddress, settings: CacheSettings, model: str, seconds: float) -> int:
    # for a person at a terminal, perhaps far from the Redis
    store = open_store(address, settings.model_copy(update={"timeout_ms": 5000}))
    try:
        async with asyncio.timeout(seconds):
            return await clear_model(store, model, settings)
    finally:
        await store.close()


def _refuse(reason: str, status: int) -> NoReturn:
    typer.secho(reason, fg=typer.colors.RED, err=True)
    raise typer.Exit(status)
