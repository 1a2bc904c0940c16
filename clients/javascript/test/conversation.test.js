// Live conversations over a WebSocket that the test holds the other end of: what a service says, and how connections end.
import assert from "node:assert/strict";
import test from "node:test";
import { ConnectionFailedError, ServiceError, TurnScoreClient, UnexpectedReplyError } from "../src/turnscore.js";

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
    socket.says({ [kind]: { index: 0, scores: { [kind]: { value: 1, signals: [] } }, errors: {} } });
  });
  const conversation = await client.conversation({ scorers: ["quality", "reaction"] });
  assert.deepEqual(Object.keys((await conversation.say("user", "no!")).scores), ["user_turn"]);
  assert.deepEqual(Object.keys((await conversation.say("system", "sorry")).scores), ["scored"]);
  assert.equal(conversation.turns.length, 2);
});

test("the service's last word is the end's reason, also where it answers nothing", async () => {
  const { client, opened } = socketsOf(opens);
  const conversation = await client.conversation();
  const ended = ending(conversation);
  opened[0].says({ error: { code: "deadline_exceeded", message: "nobody spoke" } });
  opened[0].end(4504);
  assert.ok((await ended) instanceof ServiceError);
  await assert.rejects(conversation.say("user", "hi"), { code: "deadline_exceeded", message: "nobody spoke" });
});

test("a broken connection rejects everything that is due", async () => {
  const { client, opened } = socketsOf(opens);
  const conversation = await client.conversation();
  const due = Promise.allSettled([conversation.say("user", "a"), conversation.say("system", "b")]);
  opened[0].end(1006);
  for (const { reason } of await due) assert.ok(reason instanceof ConnectionFailedError);
  assert.deepEqual(conversation.turns, []);
});

test("an answer that is no JSON ends the conversation", async () => {
  const { client } = socketsOf((socket, message) => (message.open ? socket.says(OPENED) : socket.says("<html>")));
  const conversation = await client.conversation();
  await assert.rejects(conversation.say("user", "hi"), UnexpectedReplyError);
});

test("an opening that takes too long, or that its caller no longer wants, is closed", async () => {
  const { client, opened } = socketsOf(() => {});
  const waiting = setInterval(() => {}, 1000); // a real socket keeps the process alive
  await assert.rejects(client.conversation({}, { timeoutMs: 20 }), { code: "deadline_exceeded" });
  const stopping = new AbortController();
  const stopped = client.conversation({}, { signal: stopping.signal });
  setTimeout(() => stopping.abort(new Error("enough")), 5);
  await assert.rejects(stopped, { message: "enough" });
  clearInterval(waiting);
  assert.equal(opened.length, 2);
});
