"""The public face: what is exported, and that both clients have the same methods."""

import inspect
from pathlib import Path

import pytest
import turnscore_client
from turnscore_client import (
    AsyncConversation,
    AsyncTurnScoreClient,
    AsyncTurnScoreGrpcClient,
    Conversation,
    TurnScoreClient,
    TurnScoreGrpcClient,
)

FOLDER = Path(turnscore_client.__file__).parent
CALLS = ["score", "score_batch", "score_dialogue", "rank", "similarity", "models"]
METHODS = [*CALLS, "conversation"]


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_public_name_of_the_package_is_exported():
    exported = {name for name in vars(turnscore_client) if not name.startswith("_")}
    submodules = {path.stem for path in FOLDER.iterdir()}
    assert exported - submodules == set(turnscore_client.__all__) - {"__version__"}


def unmarked(signature):
    """The signature with the types' names as those of the world of threads."""
    named = signature.return_annotation
    return signature.replace(return_annotation=Conversation if named is AsyncConversation else named)


@pytest.mark.parametrize("name", METHODS)
def test_sync_and_async_methods_have_the_same_signature(name):
    sync, other = getattr(TurnScoreClient, name), getattr(AsyncTurnScoreClient, name)
    assert inspect.signature(sync) == unmarked(inspect.signature(other))
    assert inspect.getdoc(sync) == inspect.getdoc(other)
    assert inspect.iscoroutinefunction(other) == (name in CALLS)
    assert not inspect.iscoroutinefunction(sync)


@pytest.mark.parametrize(
    ("over_grpc", "over_http"),
    [(TurnScoreGrpcClient, TurnScoreClient), (AsyncTurnScoreGrpcClient, AsyncTurnScoreClient)],
)
def test_a_grpc_client_has_the_very_methods_of_the_http_client(over_grpc, over_http):
    assert public(over_grpc) == public(over_http)
    for name in METHODS:
        assert getattr(over_grpc, name) is getattr(over_http, name)


def test_no_client_has_a_public_method_the_other_lacks():
    assert public(TurnScoreClient) - {"close"} == public(AsyncTurnScoreClient) - {"aclose"} == set(METHODS)
    assert (
        public(Conversation)
        == public(AsyncConversation)
        == {"say", "say_messages", "opened", "turns", "is_draining", "close"}
    )
