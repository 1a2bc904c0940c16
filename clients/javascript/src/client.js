// The client: one method for each call of the service. Requests and replies are the wire's own, as docs/openapi.json has them.
import { Attempts, DEFAULTS, checkTimes } from "./attempts.js";
import { LiveConversation, isScores } from "./conversation.js";
import {
  ConnectionFailedError,
  InvalidRequestError,
  UnexpectedReplyError,
  errorFromReply,
  isErrorDetail,
} from "./errors.js";
import { trimMessages } from "./messages.js";

const MAX_REPLY_BYTES = 64 * 1024 * 1024; // of one reply, unpacked; as the Python client
const MAX_REOPENINGS = 3; // of one conversation: a rolling restart moves it as often as there are replicas, mostly less
const ENVIRONMENT = globalThis.process?.env ?? {}; // a browser has none
const VISIBLE = /^[!-~]+$/;
// Names whose values are this package's, or the runtime's, to set.
const OWN_METADATA = new Set([
  ...["accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type"],
  ...["host", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "x-api-key", "x-request-id"],
]);

/** Calls one turnscore service. Keeps nothing but the API key, in memory. */
export class TurnScoreClient {
  #apiKey = null;
  #fetch;
  #options;
  #WebSocket;

  /**
   * @param {string | URL} [url] where the service is; a path is kept, for a service behind a proxy
   * @param {import("./turnscore.js").ClientOptions} [options]
   */
  constructor(url = ENVIRONMENT.TURNSCORE_URL || "http://localhost:3000/", options = {}) {
    const { fetch = globalThis.fetch, WebSocket = globalThis.WebSocket, ...rest } = options;
    const { apiKey = ENVIRONMENT.TURNSCORE_API_KEY || null, ...times } = rest;
    this.url = checkedUrl(url);
    this.#fetch = fetch;
    this.#WebSocket = WebSocket;
    this.#options = { ...DEFAULTS, ...times };
    checkTimes(this.#options);
    if (this.#options.timeoutMs <= 0) throw new RangeError("timeoutMs must be more than 0");
    this.useApiKey(apiKey);
  }

  /** Whether there is an API key to send. */
  get hasApiKey() {
    return this.#apiKey !== null;
  }

  /** Sends this API key from now on, or none. @param {string | null} apiKey */
  useApiKey(apiKey) {
    if (apiKey && !VISIBLE.test(apiKey))
      throw new TypeError("apiKey must be visible ASCII characters without spaces or line ends");
    this.#apiKey = apiKey || null;
  }

  /** One turn in its context: `{context, response}`; the user's with `speaker: "user"`. */
  score(request, call) {
    return this.#post("score", request, call);
  }

  /** Independent turns, `{items}`: each is scored, or refused, by itself. What an item says goes before the batch's own choices. */
  async scoreBatch({ items, ...choice }, call) {
    return this.#post("score_batch", { items: items.map((item) => ({ ...choice, ...item })) }, call);
  }

  /** Every turn of a dialogue that the scorers asked score: `{turns}`. */
  scoreDialogue(request, call) {
    return this.#post("score_dialogue", request, call);
  }

  /** Several responses to one context, best first: `{context, candidates}`. */
  rank(request, call) {
    return this.#post("rank", request, call);
  }

  /** How near each of `{texts}` is to each of `references`, or to the other texts without any, by the sentence encoder. */
  similarity(request, call) {
    return this.#post("similarity", request, call);
  }

  /** The loaded models, and the limits of a request. */
  async models(call) {
    return this.#run(call, (signal) => this.#ask("v1/models", { signal }, call));
  }

  /** Whether the service says that it is ready. Asks once; never throws but for the caller's own `signal`. */
  async isReady(call = {}) {
    try {
      await this.#run({ ...call, maxRetries: 0 }, (signal) => this.#ask("readyz", { signal }, call));
      return true;
    } catch {
      call.signal?.throwIfAborted();
      return false;
    }
  }

  /**
   * Opens a live conversation over a WebSocket; `opening` is the wire's: `{scorers, context, options, deadline_ms}`.
   * `call.timeoutMs` is for the opening, retries included, and for each turn.
   */
  async conversation(opening = {}, call = {}) {
    if (!this.#WebSocket) throw new TypeError("this runtime has no WebSocket: pass one as the client's option WebSocket");
    const { signal, maxReopenings = MAX_REOPENINGS, ...own } = call;
    const url = new URL("v1/conversations", this.url);
    url.protocol = url.protocol.replace("http", "ws");
    const connect = () => {
      const protocols = ["turnscore.v1", ...(this.#apiKey === null ? [] : [`turnscore.key.${this.#apiKey}`])];
      return new this.#WebSocket(url, protocols);
    };
    return LiveConversation.open(connect, trimmed(opening), { ...this.#options, ...given(own), maxReopenings }, signal);
  }

  async #post(path, request, call = {}) {
    const isBatch = path === "score_batch";
    const items = isBatch ? request.items.map((item, place) => trimmed(item, `items.${place}.`)) : [trimmed(request)];
    const deadline_ms = isBatch ? null : request.deadline_ms;
    return this.#run({ ...call, deadline_ms }, (signal, attempts) => {
      const timed = items.map((each) => ({ ...each, deadline_ms: attempts.deadlineMs(each.deadline_ms) }));
      const body = JSON.stringify(isBatch ? { items: timed } : timed[0]);
      return this.#ask(`v1/${path}`, { method: "POST", body, headers: JSON_TYPE, signal }, call);
    });
  }

  async #run({ signal, ...call } = {}, attempt) {
    if (call.requestId != null && !/^[A-Za-z0-9._:-]{1,128}$/.test(call.requestId))
      throw refused("request_id", "must be 1 to 128 letters, digits or any of . _ : -");
    const attempts = new Attempts({ ...this.#options, ...given(call) });
    return attempts.run((ending) => attempt(ending, attempts), signal);
  }

  async #ask(path, init, call = {}) {
    const headers = { ...checkedMetadata(call.metadata), accept: "application/json", ...init.headers };
    if (this.#apiKey !== null) headers.authorization = `Bearer ${this.#apiKey}`;
    if (call.requestId) headers["x-request-id"] = call.requestId;
    const own = { headers, credentials: "omit", cache: "no-store", redirect: "manual" }; // the key goes nowhere else
    let response, text;
    try {
      const send = this.#fetch; // by a name of its own: browsers refuse to be called as a method of something else
      response = await send(new URL(path, this.url), { ...init, ...own });
      text = await readText(response);
    } catch (error) {
      if (error instanceof UnexpectedReplyError) throw error;
      const reason = error?.cause?.message || error?.cause?.code || error?.message || String(error);
      throw new ConnectionFailedError(`no answer from ${this.url}: ${reason}`, error);
    }
    return readReply(response, text, path);
  }
}

const JSON_TYPE = Object.freeze({ "content-type": "application/json" });

/** What was given, without what was left open. */
const given = (call) => Object.fromEntries(Object.entries(call).filter(([, value]) => value != null));

/** The request with no more of its messages than the service reads. */
function trimmed(request, place = "") {
  const { messages, ...rest } = request;
  return messages == null ? rest : { ...rest, messages: trimMessages(messages, `${place}messages`) };
}

function checkedUrl(given) {
  const url = new URL(given);
  if (!["http:", "https:"].includes(url.protocol))
    throw new TypeError("url must look like http://host:port or https://host");
  if (url.username || url.password) throw new TypeError("url must not carry a user or a password; pass apiKey");
  if (url.search || url.hash) throw new TypeError("url must not carry a query or a fragment");
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  return url;
}

function checkedMetadata(metadata) {
  const checked = {};
  for (const [name, value] of Object.entries(metadata ?? {})) {
    const lowered = name.toLowerCase();
    const isName = /^(?!grpc-)[0-9a-z_.-]{1,100}$/.test(lowered) && !lowered.endsWith("-bin");
    if (!isName || OWN_METADATA.has(lowered))
      throw refused("metadata", "must have names of their own: a-z, 0-9, - _ . and not the client's");
    if (typeof value !== "string" || !/^[!-~]([ -~]*[!-~])?$/.test(value))
      throw refused(`metadata.${lowered}`, "must be printable ASCII without spaces at its ends");
    checked[lowered] = value;
  }
  return checked;
}

const refused = (field, message) => new InvalidRequestError({ field, message });

/** The body as text; an UnexpectedReplyError for more than any reply of turnscore's has. @param {Response} response */
async function readText(response) {
  if (!response.body) return "";
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let bytes = 0;
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    bytes += value.byteLength;
    text += decoder.decode(value, { stream: true });
    if (bytes > MAX_REPLY_BYTES) {
      reader.cancel().catch(() => {});
      throw unexpected(response, text, `a body of more than ${MAX_REPLY_BYTES} bytes`);
    }
  }
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** What a reply of each call must have for the caller to rely on it. */
const SHAPES = {
  "v1/score": isScores,
  "v1/score_batch": (reply) => Array.isArray(reply.results) && reply.results.every(isObject),
  "v1/score_dialogue": (reply) => Array.isArray(reply.turns) && reply.turns.every(isScores) && isObject(reply.dialogue),
  "v1/rank": (reply) => Array.isArray(reply.candidates) && reply.candidates.every(isScores),
  "v1/similarity": (reply) =>
    Array.isArray(reply.texts) && reply.texts.every((each) => Array.isArray(each?.similarities)),
  "v1/models": (reply) => Array.isArray(reply.models) && isObject(reply.limits),
  readyz: () => true,
};

function readReply(response, text, path) {
  let reply;
  try {
    reply = JSON.parse(text);
  } catch {
    reply = null;
  }
  if (response.status === 200 && isObject(reply) && SHAPES[path](reply)) return reply;
  if (response.status !== 200 && isErrorDetail(reply?.error)) {
    const error = errorFromReply(reply);
    error.retryAfterMs ??= retryAfterMs(response.headers);
    throw error;
  }
  const kind = response.headers.get("content-type")?.split(";")[0] ?? "no content type";
  throw unexpected(response, text, `a body that is not turnscore's (${kind})`);
}

function unexpected(response, text, what) {
  const message = `status ${response.status} with ${what}; is something else at this address?`;
  return new UnexpectedReplyError(message, response.status, text, response.headers.get("x-request-id"));
}

/** Retry-After (RFC 9110, 10.2.3) in milliseconds; a date counts from the answer's own Date, as clocks differ. */
function retryAfterMs(headers) {
  const value = headers.get("retry-after")?.trim() ?? "";
  if (/^[0-9]{1,9}(\.[0-9]{1,3})?$/.test(value)) return Math.round(Number(value) * 1000);
  const wait = Date.parse(value) - Date.parse(headers.get("date") ?? "");
  return Number.isNaN(wait) ? null : Math.max(0, wait);
}
