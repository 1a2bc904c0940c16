// What the JavaScript client makes of questions that test_javascript.py puts to both clients: JSON in, JSON out.
import { readFile } from "node:fs/promises";
import * as turnscore from "../../../clients/javascript/src/turnscore.js";
import * as testing from "../../../clients/javascript/testing.js";

const { scripts, base } = JSON.parse(await readFile("/dev/stdin", "utf8"));
const { MockTurnScore, ManualClock } = testing;

// Messages in every form, also wrong ones: each alone, and as a reply of the assistant's that goes on.
const product = (left, right, join) => left.flatMap((one) => right.map((other) => join(one, other)));
const kinds = ["text", "refusal", "image_url", "tool_use", "tool_result", "thinking", "mood"];
const parts = product(kinds, [{ text: "b" }, { content: " c" }, {}], (type, said) => ({ type, ...said }));
const contents = [
  ...["hi", "", " \x85", "a ", null, 5, "\0", "\ud800"].map((content) => ({ content })),
  ...parts.map((part) => ({ content: [part, parts[0]] })),
  ...[
    {},
    { parts: parts.slice(0, 2) },
    { content: "a", parts: parts.slice(0, 1) },
    { parts: 5 },
    { content: "a", parts: [] },
  ],
  ...[
    { content: null, refusal: "no" },
    { content: null, audio: { id: "1" } },
    { content: "a", calls_tools: "yes" },
  ],
  ...[{ content: "a", tool_calls: [{}] }, { content: "a", tool_calls: [] }, { function_call: { name: "f" } }],
];
const roles = ["user", "assistant", "tool", "system", "judge", null];
const each = product(roles, contents, (role, content) => ({ role, ...content }));
const begin = [
  { role: "user", content: "hi" },
  { role: "assistant", content: "let me see", tool_calls: [{}] },
];
const messages = [
  ...each.flatMap((message) => [[message], [...begin, message, { role: "assistant", content: "so" }]]),
  ...[[], ["a"], [...begin, { role: "user", content: [{ type: "tool_result" }] }]],
];
const turns = [
  { speaker: "user", text: "hi" },
  { speaker: "system", text: "hello you" },
  { speaker: "user", text: "no" },
];
const chat = [begin[0], { role: "assistant", content: [{ type: "image" }, { type: "text", text: "a" }] }];
const requests = Object.entries({
  score: [
    ...[{ response: "a b" }, { context: turns, response: "a" }, { messages: chat }, { response: " " }, {}],
    ...[{ response: " \u200b\ufeff" }, { response: "\u{1f469}\u200d\u{1f469}" }],
    ...[
      { messages: begin.slice(0, 1), scorers: ["reaction"] },
      { response: "a", scorers: ["mood"] },
    ],
    ...[
      { response: "a", scorers: ["reaction"] },
      { response: "a", mood: 1 },
      { context: turns, messages: chat },
    ],
  ],
  score_batch: [{ items: [{ response: "a" }, { response: "a", scorers: ["mood"] }] }],
  score_dialogue: [
    ...[["quality"], ["reaction", "quality"]].map((scorers) => ({ turns, scorers })),
    ...[{ messages: chat }, { turns: turns.slice(0, 1) }, { messages: begin.slice(0, 1) }, { turns: [] }],
  ],
  rank: [
    ...[{}, { weights: { quality: 1, sentiment: 3 } }].map((given) => ({ candidates: ["a", "b"], ...given })),
    ...[{ mood: 1 }, { quality: 0 }].map((weights) => ({ candidates: ["a"], scorers: ["quality"], weights })),
  ],
  similarity: [[], ["b", "a b c"]].map((references) => ({ texts: ["a b", "b"], references })),
  elsewhere: [{}],
  models: [null],
}).flatMap(([call, bodies]) => bodies.map((body) => [`/v1/${call}`, body]));

function namesOf(value) {
  const own = {
    BackgroundScorer: () => new value(null, () => {}),
    MockTurnScore: () => new value(),
    ManualClock: () => new value(),
  };
  const members = typeof value === "function" && value.prototype ? Object.getOwnPropertyNames(value.prototype) : [];
  return { code: value.code ?? null, members: [...members, ...Object.keys(own[value.name]?.() ?? {})] };
}

function attempt(act) {
  try {
    return act();
  } catch ({ field, message }) {
    return { field, message };
  }
}

async function follow({ options, call, request }, place) {
  const client = new turnscore.TurnScoreClient(`${base}/javascript/${place}`, options);
  try {
    await client.score(request, call);
    return [null, null];
  } catch ({ code, retryAfterMs = null }) {
    return [code, retryAfterMs];
  }
}

// Conversations of steps drawn at random: what is said, and what becomes of the service meanwhile.
const spoken = [
  ["say", "user", "hi"],
  ["say", "system", "a b"],
  ["say", "system", " "],
  ["sayMessages", begin.slice(0, 1)],
  ["sayMessages", begin],
  ["sayMessages", [{ role: "tool", content: "b" }]],
  ["sayMessages", [{ role: "assistant", content: "so" }]],
  ["sayMessages", [{ role: "assistant", content: "" }]],
];
const events = [
  ["breakNext"],
  ["beginDrain"],
  ...["not_ready", "too_large", "internal"].map((code) => ["failNext", code]),
];
let seed = 7;
const draw = (list) => list[(seed = (seed * 48271) % 2147483647) % list.length];
const talks = Array.from({ length: 150 }, (_, place) => ({
  opening: draw([{}, { messages: begin }, { scorers: ["quality", "reaction"], context: turns }]),
  maxReopenings: place % 4,
  steps: Array.from({ length: 9 }, () => draw([...spoken, ...spoken, ...events])),
}));

async function talk({ opening, maxReopenings, steps }) {
  const mock = new MockTurnScore(known);
  const conversation = await mock.client().conversation(opening, { maxReopenings });
  const told = [];
  for (const [name, ...given] of steps)
    try {
      const scored = await (name.startsWith("say") ? conversation : mock)[name](...given);
      told.push(scored ? [scored.index, Object.keys(scored.scores), scored.dialogue] : null);
    } catch ({ code, field }) {
      told.push([code, field ?? null]);
      if (code === "connection_failed") break; // Python's mock would go on over a connection that is gone
    }
  return { told, turns: conversation.turns, requests: mock.requests.length, isDraining: conversation.isDraining };
}

const known = {
  scores: { quality: 0.25, reaction: 0.2, sentiment: 0.75 },
  thresholds: { quality: 0.5 },
  signals: { reaction: ["frustrated"] },
};
const mock = new MockTurnScore(known);
const answered = [];
for (const [path, body] of requests) {
  const sent = body === null ? {} : { method: "POST", body: JSON.stringify(body) };
  const response = await mock.fetch(`http://turnscore.test${path}`, sent);
  answered.push([path, body, response.status, await response.json()]);
}
const named = (module) => Object.fromEntries(Object.entries(module).map(([name, value]) => [name, namesOf(value)]));
console.log(
  JSON.stringify({
    names: { ...named(turnscore), ...named(testing) },
    messages: messages.map((each) => [each, attempt(() => turnscore.readMessages(each))]),
    requests: answered,
    talks: await Promise.all(talks.map(async (each) => [each, await talk(each)])),
    scripts: await Promise.all(scripts.map(follow)),
  }),
);
