// Scoring behind a chatbot's back, over the mock: it bounds what waits, and throws nothing.
import assert from "node:assert/strict";
import test from "node:test";
import { BackgroundScorer } from "../src/turnscore.js";
import { MockTurnScore } from "../testing.js";

test("each turn has its outcome by its tag, and errors are outcomes", async () => {
  const mock = new MockTurnScore();
  mock.failNext("too_large");
  const told = [];
  const background = new BackgroundScorer(mock.client(), (scored) => told.push(scored), { scorers: ["engagement"] });
  const context = [{ speaker: "user", text: "hi" }];
  assert.deepEqual(
    [background.submit({ response: "a" }, 1), background.submit({ context, response: "b" }, 2)],
    [true, true],
  );
  context.push("the chatbot's own goes on");
  await background.close();
  assert.deepEqual(
    told.map(({ tag, reply, error }) => [tag, reply?.scores.engagement.value, error?.code]),
    [
      [1, undefined, "too_large"],
      [2, 0.5, undefined],
    ],
  );
  assert.deepEqual([mock.requests[1].body.context.length, mock.requests[1].body.scorers], [1, ["engagement"]]);
  assert.equal(background.submit({ response: "late" }), false);
});

test("what finds no room, or has no time at the end, is dropped and counted", async () => {
  let running = 0;
  const fetch = (_url, { signal }) => {
    running += 1;
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  const client = new MockTurnScore().client({ fetch });
  const options = { maxWaiting: 2, concurrency: 3, goodbyeMs: 10 };
  const background = new BackgroundScorer(client, () => assert.fail("none is scored"), options);
  const taken = Array.from({ length: 7 }, () => background.submit({ response: "a" }));
  assert.deepEqual([taken.filter(Boolean).length, background.dropped, running], [5, 2, 0]);
  await background.close();
  assert.deepEqual([running, background.dropped], [3, 7]);
});

test("what a callback throws, and a turn that is none, stop nothing", async (t) => {
  const logged = t.mock.method(console, "error", () => {}).mock;
  const told = [];
  const background = new BackgroundScorer(new MockTurnScore().client(), ({ tag }) => {
    told.push(tag);
    throw new TypeError("the dialogue's words");
  });
  for (const request of [{ response: "a" }, null, { messages: 5 }]) background.submit(request, request);
  await background.waitUntilIdle();
  assert.deepEqual([told.length, logged.callCount()], [3, 3]);
  assert.ok(!JSON.stringify(logged.calls.map((each) => each.arguments)).includes("words"));
});
