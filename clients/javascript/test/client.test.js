// The client without a service: what it sends, what it throws, and when it tries again.
import assert from "node:assert/strict";
import test from "node:test";
import {
  ConnectionFailedError,
  InvalidRequestError,
  ServiceError,
  TurnScoreClient,
  UnexpectedReplyError,
  errorFromReply,
} from "../src/turnscore.js";

const TURN = { context: [{ speaker: "user", text: "hi" }], response: "hello" };
const REPLY = { request_id: "r", scores: {}, errors: {}, timing_ms: {} };

function refusal(status, code, more = {}) {
  return new Response(JSON.stringify({ error: { code, message: "no", ...more }, request_id: "r" }), { status });
}

/** A connection on which nothing comes. It keeps the process alive, as a socket does. */
function silence(signal) {
  return new Promise((_, reject) => {
    const open = setInterval(() => {}, 1000);
    signal.addEventListener("abort", () => {
      clearInterval(open);
      reject(signal.reason);
    });
  });
}

/** A client whose calls get these answers in turn; an Error is a broken connection. */
function scripted(answers, options = {}) {
  const sent = [];
  const fetch = async (url, init) => {
    sent.push({ url: String(url), ...init, body: init.body && JSON.parse(init.body) });
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer ?? silence(init.signal);
  };
  return { sent, client: new TurnScoreClient("http://scores.test/behind", { fetch, firstDelayMs: 1, ...options }) };
}

test("a call sends the request with the time that is left, below the path of the service", async () => {
  const { client, sent } = scripted([Response.json(REPLY)], { apiKey: "key", timeoutMs: 5000 });
  assert.deepEqual(await client.score(TURN, { requestId: "mine" }), REPLY);
  const [{ url, method, headers, body, credentials }] = sent;
  assert.equal(url, "http://scores.test/behind/v1/score");
  assert.deepEqual(
    [method, credentials, headers.authorization, headers["x-request-id"]],
    ["POST", "omit", "Bearer key", "mine"],
  );
  assert.equal(headers["content-type"], "application/json");
  assert.deepEqual({ ...body, deadline_ms: 0 }, { ...TURN, deadline_ms: 0 });
  assert.ok(body.deadline_ms > 3000 && body.deadline_ms <= 5000);
});

test("the caller's own shorter deadline is kept, for every item of a batch too", async () => {
  const { client, sent } = scripted([Response.json({ request_id: "r", results: [REPLY, REPLY] })]);
  await client.scoreBatch({ items: [{ ...TURN, deadline_ms: 50 }, TURN] });
  const [short, long] = sent[0].body.items.map((item) => item.deadline_ms);
  assert.ok(short <= 50 && long > 1000);
});

test("what is said of a batch holds for items that do not say it themselves", async () => {
  const { client, sent } = scripted([Response.json({ request_id: "r", results: [REPLY, REPLY] })]);
  await client.scoreBatch({ items: [TURN, { ...TURN, scorers: ["fed"] }], scorers: ["quality"], cache: "bypass" });
  const asked = sent[0].body.items.map(({ scorers, cache }) => [scorers, cache]);
  assert.deepEqual(asked, [
    [["quality"], "bypass"],
    [["fed"], "bypass"],
  ]);
});

test("of messages only what a speaker reads is sent, and a wrong one is named before anything is", async () => {
  const { client, sent } = scripted([Response.json(REPLY)]);
  const image = { type: "image_url", image_url: { url: "data:image/png;base64,c2VjcmV0" } };
  const messages = [
    { role: "system", content: "secret prompt" },
    { role: "user", content: [{ type: "text", text: "what is it?" }, image], name: "secret" },
    { role: "assistant", content: null, tool_calls: [{ function: { arguments: "secret" } }] },
    { role: "tool", content: "secret result" },
    { role: "assistant", content: "a cat." },
  ];
  await client.score({ messages });
  assert.deepEqual(sent[0].body.messages, [
    { role: "system" },
    { role: "user", parts: [{ type: "text", text: "what is it?" }, { type: "image_url" }] },
    { role: "assistant", calls_tools: true },
    { role: "tool" },
    { role: "assistant", content: "a cat." },
  ]);
  const wrong = [{ messages }, { messages: [{ role: "user", content: [{ type: "mood" }] }] }];
  await assert.rejects(client.scoreBatch({ items: wrong }), { field: "items.1.messages.0.content.0.type" });
  assert.equal(sent.length, 1);
});

test("metadata travels as headers, and what no header can carry, or is the client's own, is refused", async () => {
  const { client, sent } = scripted([Response.json(REPLY)]);
  await client.score(TURN, { metadata: { Traceparent: "00-a" } });
  assert.equal(sent[0].headers.traceparent, "00-a");
  for (const [call, field] of [
    [{ metadata: { Authorization: "x" } }, "metadata"],
    [{ metadata: { trace: "a\nb" } }, "metadata.trace"],
    [{ requestId: "two words" }, "request_id"],
  ])
    await assert.rejects(client.models(call), (error) => error instanceof InvalidRequestError && error.field === field);
  assert.equal(sent.length, 1);
});

test("a refusal becomes an error with its code, its field and the request's id", async () => {
  const { client, sent } = scripted([refusal(400, "invalid_request", { field: "turns.1.text" })]);
  await assert.rejects(client.scoreDialogue({ turns: [] }), (error) => {
    assert.ok(error instanceof InvalidRequestError && error instanceof ServiceError);
    assert.deepEqual(
      [error.code, error.field, error.requestId, error.isRetryable],
      ["invalid_request", "turns.1.text", "r", false],
    );
    return true;
  });
  assert.equal(sent.length, 1);
});

test("a broken connection, overloaded and not_ready are tried again, and no other error is", async () => {
  const { client, sent } = scripted([
    new TypeError("down"),
    refusal(429, "overloaded", { retry_after_ms: 1 }),
    refusal(503, "not_ready"),
    new Response("<html>no server is available</html>", { status: 503 }),
    Response.json(REPLY),
  ]);
  assert.deepEqual(await client.score(TURN), REPLY);
  assert.equal(sent.length, 5);
  for (const [status, code] of [
    [401, "unauthenticated"],
    [404, "not_found"],
    [413, "too_large"],
    [500, "internal"],
    [504, "deadline_exceeded"],
  ]) {
    const other = scripted([refusal(status, code)]);
    await assert.rejects(other.client.models(), { code });
    assert.equal(other.sent.length, 1, code);
  }
});

test("every code has its class", () => {
  const codes = ["invalid_request", "unauthenticated", "not_found", "too_large"];
  for (const code of [...codes, "overloaded", "internal", "not_ready", "deadline_exceeded"]) {
    const error = errorFromReply({ error: { code, message: "no", field: null, retry_after_ms: 5 }, request_id: "r" });
    assert.equal(error.name.toLowerCase(), `${code.replaceAll("_", "")}error`);
    assert.deepEqual([error.code, error.constructor.code, error.retryAfterMs, error.requestId], [code, code, 5, "r"]);
  }
});

test("after maxRetries the last error is the call's", async () => {
  const { client, sent } = scripted([new TypeError("1"), new TypeError("2"), new TypeError("3")], { maxRetries: 2 });
  await assert.rejects(client.models(), ConnectionFailedError);
  assert.equal(sent.length, 3);
});

test("a delay that the service asks for and that is longer than the time left is not waited for", async () => {
  const { client, sent } = scripted([refusal(429, "overloaded", { retry_after_ms: 60_000 })]);
  await assert.rejects(client.models(), { code: "overloaded", retryAfterMs: 60_000 });
  assert.equal(sent.length, 1);
});

test("a call whose time runs out ends as deadline_exceeded, also between attempts", async () => {
  await assert.rejects(scripted([]).client.models({ timeoutMs: 20 }), {
    code: "deadline_exceeded",
    message: "no answer within 0.02 s",
  });
  const { client } = scripted([new TypeError("down")]);
  await assert.rejects(client.models({ timeoutMs: 700 }), { code: "deadline_exceeded" }); // the machine may be busy
});

test("a call ends with its caller's own signal, also while it waits to try again", async () => {
  const waiting = new AbortController();
  const silent = scripted([]).client.models({ signal: waiting.signal });
  waiting.abort(new Error("enough"));
  await assert.rejects(silent, { message: "enough" });
  const pausing = new AbortController();
  const { client, sent } = scripted([new TypeError("down")], { firstDelayMs: 1500 });
  const paused = client.models({ signal: pausing.signal });
  setTimeout(() => pausing.abort(new Error("enough")), 5);
  await assert.rejects(paused, { message: "enough" });
  assert.equal(sent.length, 1);
});

test("an answer that is not turnscore's is an error with the beginning of what it says", async () => {
  for (const [body, status] of [
    ["", 307],
    ["<h1>gateway</h1>", 502],
    ["[]]", 200],
    ['{"error": "no"}', 503],
    ['{"error": {"code": "mood", "message": "x"}}', 400],
  ]) {
    const { client } = scripted([new Response(body, { status })], { maxRetries: 0 });
    await assert.rejects(
      client.models(),
      (error) => error instanceof UnexpectedReplyError && error.status === status && error.bodyStart === body,
    );
  }
});

test("isReady is false for a service that is away or not ready", async () => {
  const { client } = scripted([new TypeError("down"), refusal(503, "not_ready"), Response.json({ status: "ready" })]);
  assert.deepEqual([await client.isReady(), await client.isReady(), await client.isReady()], [false, false, true]);
});

test("arguments that make no sense are refused", async () => {
  for (const url of ["nowhere", "ftp://scores.test", "http://me@scores.test", "http://scores.test/?a=b"])
    assert.throws(() => new TurnScoreClient(url), TypeError, url);
  assert.throws(() => new TurnScoreClient("http://scores.test", { apiKey: "two words" }), TypeError);
  assert.throws(() => new TurnScoreClient("http://scores.test", { timeoutMs: 0 }), RangeError);
  await assert.rejects(scripted([]).client.models({ timeoutMs: NaN }), RangeError);
  await assert.rejects(scripted([]).client.models({ maxRetries: 1.5 }), RangeError);
  await assert.rejects(new TurnScoreClient("http://scores.test", { WebSocket: null }).conversation(), /no WebSocket/);
});

test("what looks like a reply but is none is refused", async () => {
  const score = { value: 0.5, percentile: 40 };
  const wrong = [
    { scores: 5, errors: "x" },
    { scores: { quality: 5 }, errors: {} },
    { scores: { quality: { ...score, value: "high" } }, errors: {} },
    { scores: [score], errors: {} },
    [score],
    "fine",
  ];
  for (const reply of wrong) {
    const { client } = scripted([Response.json(reply)]);
    await assert.rejects(client.score(TURN), UnexpectedReplyError, JSON.stringify(reply));
  }
  const calls = [
    ["scoreBatch", { items: [] }, { results: [5] }],
    ["scoreDialogue", { turns: [] }, { turns: [{ index: 0 }], dialogue: {} }],
    ["rank", { candidates: [] }, { candidates: [{ index: 0 }] }],
    ["similarity", { texts: [] }, { texts: [{}] }],
    ["models", undefined, { models: {} }],
  ];
  for (const [call, request, reply] of calls) {
    const { client } = scripted([Response.json(reply)]);
    await assert.rejects(request ? client[call](request) : client[call](), UnexpectedReplyError, call);
  }
});

test("a reply without an end is refused by its size, and no longer read", async () => {
  let sent = 0;
  const body = new ReadableStream({
    pull(controller) {
      sent += 2 ** 20;
      if (sent > 2 ** 28) controller.error(new Error("four times what a reply may have was read"));
      else controller.enqueue(new Uint8Array(2 ** 20).fill(32));
    },
  });
  const { client } = scripted([new Response(body)]);
  await assert.rejects(client.score(TURN), (error) => {
    return error instanceof UnexpectedReplyError && /more than 67108864 bytes/.test(error.message);
  });
});
