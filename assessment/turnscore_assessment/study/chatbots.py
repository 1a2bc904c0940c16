"""The next replies of the systems under test: over HTTP in OpenAI's chat form, or, degraded ones, from a corpus.

Bounded in time, bytes and simultaneous requests. An endpoint's answer is data: it is measured before it is decoded, and
no redirect is followed.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np

from turnscore_assessment.distortion import read_corpus
from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.study.plan import LimitPlan, StudyPlan, SystemPlan


class ChatbotError(Exception):
    """A system gave no reply that can be shown; the message, for those who run the study, says why."""


class MissingKeyError(AssessmentError):
    """The environment lacks a key that the plan names."""


class Chatbots:
    """All systems of a study; one client, its connections kept."""

    def __init__(self, plan: StudyPlan, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._limits = plan.limits
        self._keys = {system.name: find_key(system.key_variable) for system in plan.systems}
        self._rooms = {system.name: asyncio.Semaphore(plan.limits.replies_at_once) for system in plan.systems}
        self._corpora = {system.name: read_corpus(system.corpus) for system in plan.systems if system.corpus}
        self._client = httpx.AsyncClient(transport=transport, timeout=plan.limits.reply_seconds, follow_redirects=False)

    async def reply(self, system: SystemPlan, texts: Sequence[str], dialogue_id: str) -> str:
        """The system's next reply; even places of `texts` are the worker's. Raises NoReplyError.

        A reply from a corpus is the same when it is asked for again.
        """
        if system.name in self._corpora:
            seed = hashlib.sha256(f"{dialogue_id} {len(texts)}".encode()).digest()
            return self._corpora[system.name].draw(np.random.default_rng(int.from_bytes(seed)))
        try:
            async with asyncio.timeout(self._limits.reply_seconds), self._rooms[system.name]:
                body = await self._ask(system, texts)
        except TimeoutError:
            raise ChatbotError(f"no answer within {self._limits.reply_seconds:g} seconds") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ChatbotError(f"{type(error).__name__}: {error}"[:300]) from error
        return read_reply(body, self._limits)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _ask(self, system: SystemPlan, texts: Sequence[str]) -> bytes:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if key := self._keys[system.name]:
            headers["Authorization"] = f"Bearer {key}"
        assert system.url is not None
        body = bytearray()
        request = build_request(system, texts)
        async with self._client.stream("POST", system.url, json=request, headers=headers) as response:
            if response.status_code != 200:
                raise ChatbotError(f"status {response.status_code}")
            if response.headers.get("content-encoding", "identity") != "identity":
                raise ChatbotError("the answer is compressed, which was not asked for")
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > self._limits.reply_bytes:
                    raise ChatbotError(f"the answer is longer than {self._limits.reply_bytes} bytes")
        return bytes(body)


def find_key(variable: str | None) -> str | None:
    """The value of an environment variable that the plan names; MissingKeyError where it is missing or not a key."""
    if variable is None:
        return None
    key = os.environ.get(variable, "")
    if not key:
        raise MissingKeyError(f"key_variable: the environment has no {variable}")
    if not key.isascii() or not key.isprintable():
        raise MissingKeyError(f"key_variable: {variable} must be of printable ASCII characters")
    return key


def build_request(system: SystemPlan, texts: Sequence[str]) -> dict[str, Any]:
    """The request's body in OpenAI's chat form."""
    prompt = [{"role": "system", "content": system.prompt}] if system.prompt else []
    said = [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]
    model = {"model": system.model} if system.model is not None else {}
    return {**system.parameters, **model, "messages": prompt + said, "stream": False}


def read_reply(body: bytes, limits: LimitPlan) -> str:
    """The text of an answer in OpenAI's chat form; NoReplyError where there is none, or too much."""
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, RecursionError):
        raise ChatbotError("the answer is not JSON") from None
    except (TypeError, KeyError, IndexError):
        content = None
    if not isinstance(content, str):
        raise ChatbotError("the answer has no choices[0].message.content")
    text = clean_text(content).strip()
    if not text:
        raise ChatbotError("the answer is empty")
    if len(text) > limits.reply_characters:
        raise ChatbotError(f"the reply is longer than {limits.reply_characters} characters")
    return text


def clean_text(text: str) -> str:
    """The text as every database stores it: halves of surrogate pairs and NUL become the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
