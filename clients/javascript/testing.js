// For the tests of turnscore's users: a service that answers in this process, and a clock that never waits.
import { TurnScoreClient } from "./src/client.js";
import { Transcript } from "./src/conversation.js";
import {
  InternalError,
  InvalidRequestError,
  NotFoundError,
  ServiceError,
  TooLargeError,
  errorFromDetail,
} from "./src/errors.js";
import { countSkipped, isBlank, mapMessages, trimMessages } from "./src/messages.js";

const URL_OF_MOCK = "http://turnscore.test/";
const NO_TIME = { total: 0, tokenize: 0, queue: 0, inference: 0, cache: 0 };
const STATUSES = {
  ...{ invalid_request: 400, unauthenticated: 401, not_found: 404, too_large: 413 },
  ...{ overloaded: 429, internal: 500, not_ready: 503, deadline_exceeded: 504 },
};
const CHOICE = ["scorers", "options", "deadline_ms", "cache", "cache_namespace", "conversation"];
const READING = ["deadline_ms", "cache", "cache_namespace"];
const FIELDS = {
  score: ["messages", "context", "response", "speaker", ...CHOICE],
  score_batch: ["items"],
  score_dialogue: ["messages", "turns", ...CHOICE],
  rank: ["messages", "context", "candidates", "weights", ...CHOICE],
  similarity: ["texts", "references", ...READING],
  open: ["messages", "context", ...CHOICE],
};
const NO_RESPONSE =
  "must end with the assistant's text, or come with `response`; a user's text is scored if all `scorers` are scorers of user turns";

/** A clock on which time passes by being slept through, at once. `sleeps` are the milliseconds of each sleep. */
export class ManualClock {
  ms = 0;
  sleeps = [];

  now() {
    return this.ms;
  }

  async sleep(ms, signal) {
    signal?.throwIfAborted();
    this.sleeps.push(ms);
    this.ms += ms;
  }
}

/**
 * A turnscore without a network or a model: it checks requests as the service does and answers with your scores.
 *
 * `scores` are the values by scorer, or a function of the request that returns them; it may throw a ServiceError, which in a
 * batch becomes that item's result; anything else that it throws reaches the caller at once. `thresholds` are the values, by
 * scorer, below which a score's label is `low`; without one it has none. `signals` makes scorers those of user turns: by name,
 * the signals that their scores show. `similarity` says how near two texts are; without one, what share of their words both
 * have. `requests` are all that came, in order; each message of a conversation is one, of the method `CONVERSATION`.
 */
export class MockTurnScore {
  requests = [];
  clock = new ManualClock();
  isDraining = false;
  limits = { max_text_chars: 8000, max_turns: 1024, max_items: 256, max_candidates: 64, max_body_bytes: 1024 * 1024 };
  #planned = [];

  constructor({ scores = { engagement: 0.5 }, thresholds = {}, similarity = shareWords, signals = {} } = {}) {
    Object.assign(this, { scores, thresholds, similarity, signals });
    const mock = this;
    /** What a client of this mock sends with. */
    this.fetch = async (url, init) => mock.#handle(new URL(url), init);
    this.WebSocket = class extends MockSocket {
      constructor(_url, protocols) {
        super(mock, mock.#converse(protocols));
      }
    };
  }

  /** A client of this mock. Its retries sleep on the mock's clock, which does not wait. */
  client(options) {
    const { fetch, WebSocket, clock } = this;
    return new TurnScoreClient(URL_OF_MOCK, { apiKey: null, fetch, WebSocket, clock, ...options });
  }

  /** The next requests, that many, are refused with this code. */
  failNext(code, { message = "planned by the test", field = null, retryAfterMs = null, times = 1 } = {}) {
    if (!(code in STATUSES)) throw new RangeError(`there is no code ${code}`);
    const error = errorFromDetail({ code, message, field, retry_after_ms: retryAfterMs });
    this.#plan(times, () => {
      throw error;
    });
  }

  /** The next requests, that many, find no service: the connection is refused. */
  breakNext(times = 1) {
    this.#plan(times, () => {
      throw new TypeError("connection refused, planned by the test");
    });
  }

  /** The next requests, that many, get this answer, such as a proxy's page. */
  answerNext(status, body, headers = {}, times = 1) {
    this.#plan(times, () => new Response(body, { status, headers }));
  }

  /** From now on every conversation learns, with its next answer, that the service is shutting down. */
  beginDrain() {
    this.isDraining = true;
  }

  #plan(times, answer) {
    for (let each = 0; each < times; each += 1) this.#planned.push(answer);
  }

  #requestId(headers) {
    return headers["x-request-id"] ?? `mock-${this.requests.length}`;
  }

  #handle({ pathname }, { method = "GET", headers: sent = {}, body: text = null }) {
    const headers = Object.fromEntries(new Headers(sent));
    this.requests.push({ method, path: pathname, headers, body: text && JSON.parse(text) });
    const request_id = this.#requestId(headers);
    const planned = this.#planned.shift();
    try {
      return planned?.() ?? Response.json(new Answers(this, request_id).answer(pathname, text && JSON.parse(text)));
    } catch (error) {
      if (!(error instanceof ServiceError)) {
        if (planned) throw error;
        return new Unanswerable(error);
      }
      const retry = error.retryAfterMs === null ? {} : { "retry-after": String(Math.ceil(error.retryAfterMs / 1000)) };
      return Response.json({ error: detailOf(error), request_id }, { status: STATUSES[error.code], headers: retry });
    }
  }

  /** Answers the messages of one conversation; null breaks the connection off. */
  #converse(protocols) {
    const key = protocols.find((each) => each.startsWith("turnscore.key."))?.slice("turnscore.key.".length);
    const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
    const conversation = new Conversation(this, () => new Answers(this, this.#requestId({})));
    return (body) => {
      this.requests.push({ method: "CONVERSATION", path: "/v1/conversations", headers, body });
      let planned = null;
      try {
        const response = this.#planned.shift()?.();
        if (response) return response.text().then((text) => [text]);
      } catch (error) {
        if (!(error instanceof ServiceError)) return null;
        planned = error;
      }
      return conversation.answer(body, planned).map((each) => JSON.stringify(each));
    };
  }
}

/** Throws what `scores` threw when the client reads it: a `fetch` that rejects is a failed connection, and is tried again. */
class Unanswerable {
  body = null;
  #error;

  constructor(error) {
    this.#error = error;
  }

  get status() {
    throw this.#error;
  }
}

class MockSocket extends EventTarget {
  #answer;
  #isOpen = true;

  constructor(_mock, answer) {
    super();
    this.#answer = answer;
    queueMicrotask(() => this.dispatchEvent(new Event("open")));
  }

  /** Throws what `scores` throws. */
  send(text) {
    this.#hear(this.#answer(JSON.parse(text)));
  }

  async #hear(coming) {
    const answers = await coming;
    if (answers === null) return this.close(1006);
    for (const data of this.#isOpen ? answers : []) this.dispatchEvent(Object.assign(new Event("message"), { data }));
  }

  close(code = 1000) {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    queueMicrotask(() => this.dispatchEvent(Object.assign(new Event("close"), { code })));
  }
}

/** Answers requests with the mock's values, under one request id. */
class Answers {
  constructor(mock, requestId) {
    this.mock = mock;
    this.request_id = requestId;
  }

  answer(path, body) {
    const call = path.replace(/^\/v1\//, "");
    if (path === "/readyz") return { status: "ready" };
    if (call === "models") return this.models();
    if (!(call in FIELDS) || call === "open" || call === path)
      throw new NotFoundError({ message: "there is no such path" });
    const request = call === "score_batch" ? body : checked(call, body);
    if (call === "score") return this.score(request);
    if (call === "score_batch")
      return { ...this.id, results: request.items.map((item, place) => this.result(item, place)) };
    if (call === "score_dialogue") return this.scoreDialogue(request);
    return call === "rank" ? this.rank(request) : this.compare(request);
  }

  get id() {
    return { request_id: this.request_id };
  }

  /** An item that is not well-formed is refused by its place, for the whole batch. */
  result(item, place) {
    const request = checked("score", item, `items.${place}.`);
    return this.orError(() => this.score(request));
  }

  orError(score) {
    try {
      return score();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return { error: detailOf(error), ...this.id };
    }
  }

  score(request) {
    const { scores, thresholds, signals } = this.mock;
    const values = typeof scores === "function" ? scores(request) : scores;
    const asked = request.scorers ?? this.ofSystem(Object.keys(values));
    if (request.speaker === "user" && !request.isSpeakerGiven && this.ofSystem(asked).length)
      throw invalid("messages", NO_RESPONSE);
    const scored = asked.map((name, place) => {
      const field = request.scorers ? `scorers.${place}` : "scorers";
      if (!(name in values)) throw invalid(field, "no such scorer is loaded");
      if (this.speakerOf(name) !== request.speaker)
        throw invalid(
          field,
          `${name} scores turns of the ${this.speakerOf(name)}, but this is one of the ${request.speaker}`,
        );
      return [name, scoreOf(name, values[name], request.response, thresholds[name], signals[name])];
    });
    const place = { index: request.index ?? null, skipped: request.skipped ?? 0 };
    return { ...this.id, scores: Object.fromEntries(scored), errors: {}, timing_ms: NO_TIME, ...place };
  }

  speakerOf(name) {
    return name in this.mock.signals ? "user" : "system";
  }

  ofSystem(names) {
    return names.filter((name) => this.speakerOf(name) === "system");
  }

  /** Those of the scorers asked that score the turn; null for the default ones, which score the system's. */
  askedOf(turn, scorers) {
    if (!scorers && turn.speaker === "system") return null;
    return (scorers ?? []).filter((name) => this.speakerOf(name) === turn.speaker && !isBlank(turn.text));
  }

  scoreDialogue({ turns: given, indices, skipped = 0, scorers = null, messages }) {
    const turns = [];
    for (const [index, turn] of given.entries()) {
      if (turn.speaker === "system" && isBlank(turn.text))
        throw invalid(`turns.${index}.text`, "a system turn must not be empty");
      const asked = this.askedOf(turn, scorers);
      if (asked?.length === 0) continue;
      const one = { context: given.slice(0, index), response: turn.text, speaker: turn.speaker, scorers: asked };
      turns.push({ index: indices?.[index] ?? index, scores: this.score(one).scores, errors: {} });
    }
    const missing = (scorers ?? []).find((name) => turns.every(({ scores }) => !(name in scores)));
    if (missing !== undefined || !turns.length) {
      const speaker = missing === undefined ? "system" : this.speakerOf(missing);
      throw invalid(messages ? "messages" : "turns", `there is no ${speaker} turn to score`);
    }
    return { ...this.id, turns, dialogue: aggregate(turns), timing_ms: NO_TIME, skipped };
  }

  /** As the service ranks; a candidate whose scores are an error comes last, and all failing throws the first. */
  rank(request) {
    const scorers = this.rankedBy(request);
    const results = request.candidates.map((response) =>
      this.orError(() => this.score({ context: request.context, response, speaker: "system", scorers })),
    );
    const known = results.find(({ scores }) => scores);
    const wrong = results.find(({ error }) => error && (error.code === "invalid_request" || !known));
    if (wrong) throw errorFromDetail(wrong.error);
    const weights = weightsOf(request.weights ?? {}, Object.keys(known.scores));
    const candidates = results.map(({ scores = {}, error }, index) => ({
      ...{ index, combined: null, scores },
      errors: error ? Object.fromEntries(Object.keys(weights).map((name) => [name, error])) : {},
    }));
    return {
      ...this.id,
      candidates: ordered(candidates, weights),
      weights,
      timing_ms: NO_TIME,
      skipped: request.skipped ?? 0,
    };
  }

  rankedBy({ scorers = null, weights = {} }) {
    const { scores } = this.mock;
    if (scorers || typeof scores === "function") return scorers;
    const known = Object.keys(weights).filter((name) => name in scores);
    return known.length ? known : "quality" in scores ? ["quality"] : null;
  }

  compare({ texts, references = [] }) {
    const others = references.length ? references : texts;
    if (texts.length + others.length > this.mock.limits.max_items) {
      const field = texts.length < others.length ? "references" : "texts";
      throw new TooLargeError({ field, message: `together at most ${this.mock.limits.max_items} are allowed` });
    }
    const compared = texts.map((text, place) => {
      const similarities = others.map((other) => this.mock.similarity(text, other));
      const rivals = others.map((_, each) => each).filter((each) => references.length || each !== place);
      const best = rivals.reduce(
        (top, each) => (top === null || similarities[each] > similarities[top] ? each : top),
        null,
      );
      return { similarities, best, tokens: tokensOf(text), cached: false };
    });
    const read = references.map((text) => ({ tokens: tokensOf(text), cached: false }));
    const origin = { model: "encoder:0.0.0", digest: "0".repeat(64), timing_ms: NO_TIME };
    return { ...this.id, texts: compared, references: read, ...origin };
  }

  models() {
    const { scores, signals, thresholds, limits } = this.mock;
    const names = typeof scores === "function" ? ["engagement", ...Object.keys(signals)] : Object.keys(scores);
    const models = names.map((scorer) => ({
      ...{
        scorer,
        model: `${scorer}:0.0.0`,
        digest: "0".repeat(64),
        graph: "mock",
        max_text_tokens: 512,
        max_turn_tokens: 512,
      },
      ...{
        speaker: this.speakerOf(scorer),
        option_limits: {},
        is_default: this.speakerOf(scorer) === "system",
        stand_in: false,
      },
      ...{ threshold: thresholds[scorer] ?? null, threshold_percentile: null, good_threshold: null },
    }));
    return { ...this.id, models, limits, candidates: [] };
  }
}

/** Answers each message as the service would: one answer each, in order. */
class Conversation {
  #answers;
  #hasAnnounced = false;
  #mock;
  #opening = {};
  #scored = [];
  #transcript = new Transcript([], 0);

  constructor(mock, answers) {
    this.#mock = mock;
    this.#answers = answers;
  }

  /** The answer, and `draining` before it once. */
  answer(body, planned) {
    const notice = this.#mock.isDraining && !this.#hasAnnounced ? [{ draining: { ends_in_ms: 1000 } }] : [];
    this.#hasAnnounced ||= notice.length > 0;
    try {
      if (body.open) {
        if (planned) return [{ error: detailOf(planned) }];
        return [...notice, { opened: this.#open(checked("open", body.open, "open.")) }];
      }
      return [...notice, body.turn ? this.#say(body.turn, planned) : this.#addMessages(body.messages, planned)];
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return [...notice, { error: detailOf(error) }];
    }
  }

  #open(opening) {
    this.#opening = opening;
    const { context, messages } = opening;
    this.#transcript = new Transcript(context, (messages ?? context).length);
    const answers = this.#answers();
    const defaults = answers.models().models.filter((model) => model.is_default);
    const scorers = opening.scorers ?? defaults.map(({ scorer }) => scorer);
    return { ...answers.id, scorers, turns: this.#transcript.taken };
  }

  #say({ speaker, text }, planned) {
    checkTurn({ speaker, text }, "turn.");
    if (speaker === "system" && isBlank(text)) throw invalid("turn.text", "a system turn must not be empty");
    if (isRefusal(planned)) throw planned;
    const turn = { speaker, text };
    return this.#hear(this.#transcript.addTurn(turn), turn, planned, 0);
  }

  #addMessages({ messages }, planned) {
    const read = trimMessages(messages, "messages.messages");
    if (mapMessages(read).endsSilent)
      throw invalid("messages.messages", "the assistant's last message has no text to score");
    if (isRefusal(planned)) throw planned;
    const [index, turn] = this.#transcript.addMessages(read);
    return this.#hear(index, turn, planned, countSkipped(read));
  }

  #hear(index, turn, planned, skipped) {
    const answers = this.#answers();
    const { turns, taken, waiting } = this.#transcript;
    const asked = turn === null ? [] : answers.askedOf(turn, this.#opening.scorers);
    if (asked?.length === 0) return { ack: { index: taken + waiting.length - 1, skipped } };
    const scored = { index, scores: {}, errors: {} };
    try {
      if (planned) throw planned;
      const one = { context: turns.slice(0, -1), response: turn.text, speaker: turn.speaker, scorers: asked };
      scored.scores = answers.score(one).scores;
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      scored.errors = { mock: detailOf(error) };
    }
    this.#scored.push(scored);
    const kind = turn.speaker === "system" ? "scored" : "user_turn";
    return { [kind]: { ...scored, dialogue: aggregate(this.#scored), timing_ms: NO_TIME, skipped } };
  }
}

/** A refused turn is not part of the conversation; one that could not be scored is. */
const isRefusal = (error) => error instanceof InvalidRequestError || error instanceof TooLargeError;

/** The request with its turns, given as turns or as messages. Throws InvalidRequestError. */
function checked(call, body, place = "") {
  const unknown = Object.keys(body).find((name) => !FIELDS[call].includes(name));
  if (unknown) throw invalid(`${place}${unknown}`, "extra inputs are not permitted");
  if (call === "similarity") {
    checkTexts(body.texts, "texts", 1);
    checkTexts(body.references ?? [], "references", 0);
    return body;
  }
  if (call === "rank") checkTexts(body.candidates, "candidates", 1);
  const field = call === "score_dialogue" ? "turns" : "context";
  if (body.messages && body[field]?.length)
    throw invalid(`${place}${field}`, "must not be given together with `messages`");
  (body[field] ?? []).forEach((turn, index) => checkTurn(turn, `${place}${field}.${index}.`));
  if (body.response !== undefined) checkSpoken(body.response, `${place}response`);
  if (call === "score_dialogue" && !body.messages && !body.turns?.length)
    throw invalid(`${place}turns`, "list should have at least 1 item after validation, not 0");
  if (call === "score" && !body.messages && body.response === undefined)
    throw invalid(`${place}response`, "field required");
  const { speaker = "system", ...own } = body;
  const spoken = call === "score" ? { speaker, isSpeakerGiven: "speaker" in body } : {};
  if (!body.messages) return { ...own, ...spoken, [field]: body[field] ?? [] };
  const { turns, indices, skipped, endsSilent } = mapMessages(trimMessages(body.messages, `${place}messages`));
  if (call !== "score" || body.response !== undefined) return { ...own, ...spoken, [field]: turns, indices, skipped };
  const last = turns.at(-1);
  const isTaken = "speaker" in body || !body.scorers ? last?.speaker === speaker : true;
  if (!last || endsSilent || isBlank(last.text) || !isTaken) throw invalid(`${place}messages`, NO_RESPONSE);
  const found = { response: last.text, speaker: last.speaker, index: indices.at(-1) };
  return { ...own, ...spoken, ...found, context: turns.slice(0, -1), skipped };
}

function checkTurn({ speaker, text }, place) {
  if (speaker !== "user" && speaker !== "system")
    throw invalid(`${place}speaker`, "input should be 'user' or 'system'");
  if (typeof text !== "string") throw invalid(`${place}text`, "input should be a valid string");
}

function checkTexts(texts, field, least) {
  if (texts === undefined) throw invalid(field, "field required");
  if (texts.length < least) throw invalid(field, "list should have at least 1 item after validation, not 0");
  texts.forEach((text, place) => checkSpoken(text, `${field}.${place}`));
}

function checkSpoken(text, field) {
  if (typeof text !== "string") throw invalid(field, "input should be a valid string");
  if (isBlank(text)) throw invalid(field, "must not be empty");
}

function scoreOf(name, value, response, threshold, signals = []) {
  if (typeof value !== "number") throw new InternalError({ message: `the mock's score of ${name} is not a number` });
  return {
    ...{ value, percentile: 100 * Math.min(Math.max(value, 0), 1) },
    details: Object.fromEntries(signals.map((signal) => [signal, 1])),
    ...{ model: `${name}:0.0.0`, tokens: tokensOf(response), cached: false, warnings: [] },
    label: threshold === undefined ? null : value < threshold ? "low" : "fair",
    ...{ reasons: [], signals: [...signals], stand_in: false },
  };
}

/** Each scorer's view of the turns. */
function aggregate(turns) {
  const names = [...new Set(turns.flatMap(({ scores }) => Object.keys(scores)))].sort();
  const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
  const views = names.map((name) => {
    const scores = turns.filter((turn) => name in turn.scores).map((turn) => turn.scores[name]);
    const [values, percentiles] = [scores.map(({ value }) => value), scores.map(({ percentile }) => percentile)];
    const own = { mean: mean(values), min: Math.min(...values), max: Math.max(...values), turns: values.length };
    const low = { percentile_mean: mean(percentiles), percentile_min: Math.min(...percentiles) };
    return [name, { ...own, ...low, percentile_max: Math.max(...percentiles) }];
  });
  return Object.fromEntries(views);
}

function weightsOf(given, names) {
  const unknown = Object.keys(given).find((name) => !names.includes(name));
  if (unknown) throw invalid(`weights.${unknown}`, "this scorer is not among those asked");
  const weights = Object.fromEntries(names.map((name) => [name, given[name] ?? 1]));
  if (!Object.values(weights).some(Boolean)) throw invalid("weights", "at least one scorer must weigh more than 0");
  return weights;
}

/** The candidates by the weighted mean of their percentiles, best first; those without one last. */
function ordered(candidates, weights) {
  const counting = Object.entries(weights).filter(([, weight]) => weight > 0);
  const total = counting.reduce((sum, [, weight]) => sum + weight, 0);
  for (const each of candidates)
    if (counting.every(([name]) => name in each.scores))
      each.combined = counting.reduce(
        (sum, [name, weight]) => sum + (weight / total) * each.scores[name].percentile,
        0,
      );
  return candidates.sort((one, other) => (other.combined ?? -1) - (one.combined ?? -1));
}

function shareWords(left, right) {
  const [own, other] = [left, right].map((text) => new Set(text.toLowerCase().split(/\s+/).filter(Boolean)));
  const both = [...own].filter((word) => other.has(word)).length;
  return both / Math.max(1, own.size + other.size - both);
}

const tokensOf = (text) => ({ used: text.split(/\s+/).filter(Boolean).length, dropped: 0, truncated: false });
const invalid = (field, message) => new InvalidRequestError({ field, message });
const detailOf = ({ code, message, field, retryAfterMs }) => ({ code, message, field, retry_after_ms: retryAfterMs });
