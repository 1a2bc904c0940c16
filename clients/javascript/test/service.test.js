// The client and a real service, whose scorer "fake" gives a response its number of words / 100. Needs TURNSCORE_URL.
import assert from "node:assert/strict";
import test from "node:test";
import { ConnectionFailedError, NotFoundError, ServiceError, TurnScoreClient } from "../src/turnscore.js";

const url = process.env.TURNSCORE_URL;
const key = process.env.TURNSCORE_API_KEY;
const skip = url ? false : "TURNSCORE_URL names no service";
const client = url ? new TurnScoreClient(url, { apiKey: key }) : null;
const live = skip || (globalThis.WebSocket ? false : "this Node has no WebSocket");

test("every call is answered", { skip }, async () => {
  assert.equal(await client.isReady(), true);
  const [model] = (await client.models()).models;
  assert.equal(model.scorer, "fake");
  assert.equal((await client.score({ response: "one two" })).scores.fake.value, 0.02);
  const batch = await client.scoreBatch({ items: [{ response: "one" }, { response: " " }] });
  assert.equal(batch.results[0].scores.fake.value, 0.01);
  assert.equal(batch.results[1].error.code, "invalid_request");
  const turns = [
    { speaker: "user", text: "hi" },
    { speaker: "system", text: "one two three" },
  ];
  assert.equal((await client.scoreDialogue({ turns })).turns[0].scores.fake.value, 0.03);
  const { candidates } = await client.rank({ candidates: ["one", "one two"] });
  assert.deepEqual(
    candidates.map((each) => each.index),
    [1, 0],
  );
  await assert.rejects(client.score({ response: "" }), { code: "invalid_request", field: "response" });
  await assert.rejects(client.similarity({ texts: ["a"] }), NotFoundError); // no encoder is loaded
});

test("without the key every call is refused, a conversation too", { skip: skip || !key }, async () => {
  const stranger = new TurnScoreClient(url, { apiKey: null, maxRetries: 0 });
  await assert.rejects(stranger.models(), { code: "unauthenticated" });
  if (!live) await assert.rejects(stranger.conversation(), ConnectionFailedError);
  stranger.useApiKey(key);
  assert.ok((await stranger.models()).models.length);
});

test("a conversation is scored turn by turn, and goes on after a refused turn", { skip: live }, async () => {
  const conversation = await client.conversation({ scorers: ["fake"], context: [{ speaker: "user", text: "hi" }] });
  assert.deepEqual(conversation.scorers, ["fake"]);
  const [scored, refused, heard] = await Promise.allSettled([
    conversation.say("system", "one two"),
    conversation.say("system", ""),
    conversation.say("user", "and?"),
  ]);
  assert.deepEqual([scored.value.index, scored.value.scores.fake.value, heard.value], [1, 0.02, null]);
  assert.ok(refused.reason instanceof ServiceError);
  assert.equal(refused.reason.field, "turn.text");
  assert.deepEqual(
    conversation.turns.map((turn) => turn.text),
    ["hi", "one two", "and?"],
  );
  const ended = new Promise((resolve) => conversation.addEventListener("close", (event) => resolve(event.detail)));
  conversation.close();
  assert.equal(await ended, null);
  await assert.rejects(conversation.say("user", "more"), {
    code: "connection_failed",
    message: "the conversation is closed",
  });
});

test("a conversation that the service refuses to open throws its reason", { skip: live }, async () => {
  await assert.rejects(client.conversation({ scorers: ["mood"] }), {
    code: "invalid_request",
    field: "open.scorers.0",
  });
});

test("one that the service ends rejects what is due, and says why", { skip: live }, async () => {
  const conversation = await client.conversation({}, { maxReopenings: 0 });
  const ended = new Promise((resolve) => conversation.addEventListener("close", (event) => resolve(event.detail)));
  await assert.rejects(conversation.say("user", "a".repeat(1_100_000)), { code: "too_large" });
  assert.ok((await ended).code);
  assert.equal(conversation.isClosed, true);
});
