// Live conversations over a WebSocket that the test holds the other end of: what a service says, and how connections end.
import assert from "node:assert/strict";
import test from "node:test";
import {
  ConnectionFailedError,
  NotReadyError,
  ServiceError,
  TurnScoreClient,
  UnexpectedReplyError,
} from "../src/turnscore.js";
import { MockTurnScore } from "../testing.js";

const OPENED = { opened: { request_id: "r", scorers: ["quality"], turns: 0 } };

/** A WebSocket whose other end is `answer(socket, message)`; one that `refuses` never opens. */
function socketsOf(answer, refuses = 0) {
  const opened = [];
  class FakeSocket extends EventTarget {
    constructor(url, protocols) {
      super();
      Object.assign(this, { url: String(url), protocols, sent: [] });
      opened.push(this);
      queueMicrotask(() => (opened.length <= refuses ? this.end(1006) : this.dispatchEvent(new Event("open"))));
    }

    send(text) {
      const message = JSON.parse(text);
      this.sent.push(message);
      queueMicrotask(() => answer(this, message));
    }

    says(...messages) {
      for (const message of messages) {
        const data = typeof message === "string" ? message : JSON.stringify(message);
        this.dispatchEvent(Object.assign(new Event("message"), { data }));
      }
    }

    end(code) {
      this.dispatchEvent(Object.assign(new Event("close"), { code }));
    }

    close(code) {
      queueMicrotask(() => this.end(code));
    }
  }
  const client = new TurnScoreClient("https://scores.test/a", { WebSocket: FakeSocket, apiKey: "k", firstDelayMs: 1 });
  return { client, opened };
}

function opens(socket, message) {
  if (message.open) socket.says(OPENED);
}

function ending(conversation) {
  return new Promise((resolve) => conversation.addEventListener("close", (event) => resolve(event.detail)));
}

test("it is opened over wss with the key as a subprotocol, and again where the connection fails", async () => {
  const { client, opened } = socketsOf(opens, 2);
  const context = [{ speaker: "user", text: "hi" }];
  const conversation = await client.conversation({ scorers: ["quality"], context });
  assert.equal(opened.length, 3);
  assert.equal(opened[2].url, "wss://scores.test/a/v1/conversations");
  assert.deepEqual(opened[2].protocols, ["turnscore.v1", "turnscore.key.k"]);
  assert.deepEqual(opened[2].sent, [{ open: { scorers: ["quality"], context } }]);
  assert.deepEqual([conversation.scorers, conversation.turns], [["quality"], context]);
});

test("an opening for which there is no room is tried again; a wrong one is not", async () => {
  let tries = 0;
  const full = socketsOf((socket) => {
    tries += 1;
    if (tries > 1) return socket.says(OPENED);
    socket.says({ error: { code: "overloaded", message: "full" } });
    return socket.end(4429);
  });
  await full.client.conversation();
  assert.equal(tries, 2);
  const wrong = socketsOf((socket) => {
    socket.says({ error: { code: "invalid_request", message: "no such scorer", field: "open.scorers.0" } });
    socket.end(4400);
  });
  await assert.rejects(wrong.client.conversation({ scorers: ["mood"] }), { field: "open.scorers.0" });
  assert.equal(wrong.opened.length, 1);
});

test("messages of a kind that it does not know are ignored, and draining is told while an answer is due", async () => {
  const { client } = socketsOf((socket, message) => {
    opens(socket, message);
    if (message.turn) socket.says({ weather: "fine" }, { draining: { ends_in_ms: 1000 } }, { ack: { index: 0 } });
  });
  const conversation = await client.conversation();
  const told = new Promise((resolve) => conversation.addEventListener("draining", (event) => resolve(event.detail)));
  assert.equal(await conversation.say("user", "hi"), null);
  assert.deepEqual([await told, conversation.isDraining], [{ ends_in_ms: 1000 }, true]);
});

test("each speaker's turns are answered by their own scores", async () => {
  const { client } = socketsOf((socket, message) => {
    opens(socket, message);
    if (!message.turn) return;
    const kind = message.turn.speaker === "user" ? "user_turn" : "scored";
    socket.says({ [kind]: { index: 0, scores: { [kind]: { value: 1 } }, errors: {}, dialogue: {} } });
  });
  const conversation = await client.conversation({ scorers: ["quality", "reaction"] });
  assert.deepEqual(Object.keys((await conversation.say("user", "no!")).scores), ["user_turn"]);
  assert.deepEqual(Object.keys((await conversation.say("system", "sorry")).scores), ["scored"]);
  assert.equal(conversation.turns.length, 2);
});

test("the service's last word is the end's reason, also where it answers nothing", async () => {
  const { client, opened } = socketsOf(opens);
  const conversation = await client.conversation({}, { maxReopenings: 0 });
  const ended = ending(conversation);
  opened[0].says({ error: { code: "deadline_exceeded", message: "nobody spoke" } });
  opened[0].end(4504);
  assert.ok((await ended) instanceof ServiceError);
  await assert.rejects(conversation.say("user", "hi"), { code: "deadline_exceeded", message: "nobody spoke" });
});

test("a broken connection that is not to be reopened rejects everything that is due", async () => {
  const { client, opened } = socketsOf(opens);
  const conversation = await client.conversation({}, { maxReopenings: 0 });
  const due = Promise.allSettled([conversation.say("user", "a"), conversation.say("system", "b")]);
  setImmediate(() => opened[0].end(1006));
  for (const { reason } of await due) assert.ok(reason instanceof ConnectionFailedError);
  assert.deepEqual(conversation.turns, [{ speaker: "user", text: "a" }]); // the service may have received it
});

test("a conversation that ended while nobody spoke is reopened for the next turn, with its turns", async () => {
  const { client, opened } = socketsOf((socket, message) => socket.says(message.open ? OPENED : { ack: { index: 0 } }));
  const conversation = await client.conversation({ scorers: ["quality"] });
  await conversation.say("user", "a");
  opened[0].says({ error: { code: "deadline_exceeded", message: "nobody spoke" } });
  opened[0].end(4504);
  await conversation.say("user", "b");
  const turns = ["a", "b"].map((text) => ({ speaker: "user", text }));
  const [{ open }, { turn }] = opened[1].sent;
  assert.deepEqual([open, turn.text], [{ scorers: ["quality"], context: turns.slice(0, 1) }, "b"]);
  assert.deepEqual([conversation.turns, conversation.isClosed], [turns, false]);
});

test("an answer that is no JSON is thrown, and the conversation goes on", async () => {
  const { client } = socketsOf((socket, message) => {
    if (message.open) socket.says(OPENED);
    else socket.says(message.turn.text === "a" ? "<html>" : { ack: { index: 1 } });
  });
  const conversation = await client.conversation();
  await assert.rejects(conversation.say("user", "a"), { code: "unexpected_reply", bodyStart: "<html>" });
  assert.equal(await conversation.say("user", "b"), null);
});

test("the answer to a turn that nobody waits for any more is no other turn's", async () => {
  const due = [];
  const { client } = socketsOf((socket, message) => {
    if (message.open) return socket.says(OPENED);
    due.push({ scored: { index: due.length, scores: { quality: { value: due.length } }, errors: {}, dialogue: {} } });
    return due.length < 2 || socket.says(...due);
  });
  const waiting = setInterval(() => {}, 1000); // a real socket keeps the process alive
  const conversation = await client.conversation();
  await assert.rejects(conversation.say("system", "a", { timeoutMs: 300 }), { code: "deadline_exceeded" });
  assert.equal((await conversation.say("system", "b")).scores.quality.value, 1);
  const stopped = conversation.say("system", "c", { signal: AbortSignal.abort(new Error("enough")) });
  await assert.rejects(stopped, { message: "enough" });
  assert.deepEqual(
    conversation.turns.map(({ text }) => text),
    ["a", "b"],
  );
  clearInterval(waiting);
});

test("an opening that takes too long, or that its caller no longer wants, is closed", async () => {
  const { client, opened } = socketsOf(() => {});
  const waiting = setInterval(() => {}, 1000); // a real socket keeps the process alive
  await assert.rejects(client.conversation({}, { timeoutMs: 300 }), { code: "deadline_exceeded" });
  const stopping = new AbortController();
  const stopped = client.conversation({}, { signal: stopping.signal });
  setTimeout(() => stopping.abort(new Error("enough")), 5);
  await assert.rejects(stopped, { message: "enough" });
  clearInterval(waiting);
  assert.equal(opened.length, 2);
});

const [HI, HELLO] = [
  { role: "user", content: "hi" },
  { role: "assistant", content: "hello" },
];
const RESULT = { role: "tool", content: "b" };

test("it is reopened as often as it may be, and its aggregates go on", async () => {
  const mock = new MockTurnScore();
  const conversation = await mock.client().conversation({}, { maxReopenings: 2 });
  const ended = ending(conversation);
  for (const [place, text] of ["a", "b"].entries()) {
    mock.breakNext();
    const { index, dialogue } = await conversation.say("system", text);
    assert.deepEqual([index, dialogue.engagement.turns, dialogue.engagement.mean], [place, place + 1, 0.5]);
  }
  mock.breakNext();
  await assert.rejects(conversation.say("system", "c"), ConnectionFailedError);
  assert.deepEqual(
    conversation.turns.map(({ text }) => text),
    ["a", "b", "c"],
  );
  assert.ok((await ended) instanceof ConnectionFailedError && conversation.isClosed);
});

test("places of messages go on where the conversation is reopened, also because the service drains", async () => {
  const mock = new MockTurnScore();
  const prompt = { role: "system", content: "be nice" };
  const calling = { role: "assistant", tool_calls: [{ id: "a" }] };
  const conversation = await mock.client().conversation({ messages: [prompt] });
  await conversation.sayMessages([prompt, HI]);
  mock.breakNext();
  assert.equal((await conversation.sayMessages([HELLO])).index, 3);
  assert.equal((await conversation.sayMessages([HI, calling, RESULT, HELLO])).index, 7);
  mock.breakNext();
  assert.equal((await conversation.say("system", "a")).index, 8);
  mock.beginDrain();
  assert.equal((await conversation.sayMessages([HI, HELLO])).index, 10);
  assert.equal(conversation.isDraining, true);
  assert.equal((await conversation.sayMessages([HI, HELLO])).index, 12);
  assert.equal(mock.requests.filter(({ body }) => body.open).length, 4);
});

test("a turn around a tool is one turn where the conversation is reopened within it", async () => {
  const mock = new MockTurnScore();
  const conversation = await mock.client().conversation();
  const calling = { role: "assistant", content: "let me see", tool_calls: [{ id: "a" }] };
  assert.equal(await conversation.sayMessages([HI, calling]), null);
  mock.breakNext();
  assert.equal(await conversation.sayMessages([RESULT]), null);
  mock.breakNext();
  const scored = await conversation.sayMessages([HELLO]);
  assert.deepEqual([scored.index, scored.dialogue.engagement.turns], [3, 1]);
  assert.deepEqual(
    conversation.turns.map(({ text }) => text),
    ["hi", "let me see hello"],
  );
});

test("a turn that finds no replica is thrown and the next one reopens the conversation", async () => {
  const mock = new MockTurnScore();
  const conversation = await mock.client().conversation();
  await conversation.say("user", "hi");
  const loses = async (text) => {
    mock.breakNext();
    mock.failNext("not_ready", { retryAfterMs: 60_000 });
    await assert.rejects(conversation.say("system", text), NotReadyError);
  };
  await loses("lost");
  assert.equal((await conversation.say("system", "a")).index, 1);
  await loses("b");
  assert.equal(conversation.isClosed, true);
  await assert.rejects(conversation.say("system", "b"), /maxReopenings is used up/);
  assert.deepEqual(
    conversation.turns.map(({ text }) => text),
    ["hi", "a"],
  );
});

test("one that is closed while it is being reopened stays closed", async () => {
  const mock = new MockTurnScore();
  const clock = { now: () => 0, sleep: async () => conversation.close() };
  const conversation = await mock.client({ clock }).conversation();
  mock.breakNext(2);
  await assert.rejects(conversation.say("user", "hi"), { message: "the conversation is closed" });
  assert.equal(mock.requests.length, 3);
});

test("one that the service closes as soon as it is open is opened again, and ends where it may not be", async () => {
  let closing = 1;
  const { client, opened } = socketsOf((socket, message) => {
    opens(socket, message);
    if (message.turn) socket.says({ ack: { index: 0 } });
    if ((closing -= 1) >= 0) socket.end(1012);
  });
  const conversation = await client.conversation({}, { maxReopenings: 1, maxRetries: 1 });
  assert.equal(await conversation.say("user", "a"), null);
  assert.equal(opened.length, 2);
  const ended = ending(conversation);
  closing = 2; // both attempts to open another
  opened[1].end(1006);
  await assert.rejects(conversation.say("user", "b"), ConnectionFailedError);
  assert.ok((await ended) instanceof ConnectionFailedError);
  await assert.rejects(conversation.say("user", "b"), /maxReopenings is used up/);
  assert.equal(opened.length, 4);
});

test("what the mock's scores throw reaches the caller at once", async () => {
  const mock = new MockTurnScore({
    scores: ({ response }) => {
      if (response === "a") throw new TypeError("not as expected");
      return { engagement: 0.5 };
    },
  });
  const client = mock.client();
  const conversation = await client.conversation();
  for (const call of [
    () => client.score({ response: "a" }),
    () => client.scoreBatch({ items: [{ response: "a" }] }),
    () => conversation.say("system", "a"),
  ])
    await assert.rejects(call(), { name: "TypeError", message: "not as expected" });
  assert.equal(mock.requests.length, 4);
  assert.deepEqual((await conversation.say("system", "b")).scores.engagement.value, 0.5);
});
