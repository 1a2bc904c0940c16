// The client: one method for each call of the service. Requests and replies are the wire's own, as docs/openapi.json has them.
import { Attempts, DEFAULTS } from "./attempts.js";
import { LiveConversation } from "./conversation.js";
import { ConnectionFailedError, ServiceError, UnexpectedReplyError, isErrorDetail } from "./errors.js";

const MAX_REPLY_BYTES = 64 * 1024 * 1024; // of one reply, unpacked; as the Python client
const BODY_START_CHARS = 200; // how much of a body that is not turnscore's goes into the error

/** Calls one turnscore service. Keeps nothing but the API key, in memory. */
export class TurnScoreClient {
  #apiKey;
  #fetch;
  #options;
  #WebSocket;

  /**
   * @param {string | URL} [url] where the service is; a path is kept, for a service behind a proxy
   * @param {import("./turnscore.js").ClientOptions} [options]
   */
  constructor(url = "http://localhost:3000/", options = {}) {
    const { apiKey = null, fetch = globalThis.fetch, WebSocket = globalThis.WebSocket, ...times } = options;
    this.url = new URL(url);
    if (!this.url.pathname.endsWith("/")) this.url.pathname += "/";
    this.#apiKey = apiKey;
    this.#fetch = fetch;
    this.#WebSocket = WebSocket;
    this.#options = { ...DEFAULTS, ...times };
  }

  /** Whether there is an API key to send. */
  get hasApiKey() {
    return this.#apiKey !== null;
  }

  /** Sends this API key from now on, or none. @param {string | null} apiKey */
  useApiKey(apiKey) {
    this.#apiKey = apiKey || null;
  }

  /** One turn in its context: `{context, response}`; the user's with `speaker: "user"`. */
  score(request, call) {
    return this.#post("score", request, call);
  }

  /** Independent turns, `{items}`: each is scored, or refused, by itself. */
  scoreBatch(request, call) {
    return this.#post("score_batch", request, call);
  }

  /** Every turn of a dialogue that the scorers asked score: `{turns}`. */
  scoreDialogue(request, call) {
    return this.#post("score_dialogue", request, call);
  }

  /** Several responses to one context, best first: `{context, candidates}`. */
  rank(request, call) {
    return this.#post("rank", request, call);
  }

  /** The loaded models, and the limits of a request. */
  models(call) {
    return this.#run(call, (signal) => this.#ask("v1/models", { signal }, call));
  }

  /** Whether the service says that it is ready. Asks once; never throws but for the caller's own `signal`. */
  async isReady(call = {}) {
    try {
      await this.#run({ ...call, maxRetries: 0 }, (signal) => this.#ask("readyz", { signal }, call));
      return true;
    } catch (error) {
      call.signal?.throwIfAborted();
      return false;
    }
  }

  /** Opens a live conversation over a WebSocket; `opening` is the wire's: `{scorers, context, options, deadline_ms}`. */
  async conversation(opening = {}, call = {}) {
    if (!this.#WebSocket) throw new TypeError("this runtime has no WebSocket: pass one as the client's option");
    const url = new URL("v1/conversations", this.url);
    url.protocol = url.protocol.replace("http", "ws");
    const protocols = ["turnscore.v1", ...(this.#apiKey === null ? [] : [`turnscore.key.${this.#apiKey}`])];
    return this.#run(call, (signal) =>
      LiveConversation.open(() => new this.#WebSocket(url, protocols), opening, signal),
    );
  }

  #post(path, request, call = {}) {
    return this.#run(call, (signal, attempts) => {
      const timed = path === "score_batch" ? withDeadlines(request, attempts) : withDeadline(request, attempts);
      const headers = { "content-type": "application/json" };
      return this.#ask(`v1/${path}`, { method: "POST", body: JSON.stringify(timed), headers, signal }, call);
    });
  }

  async #run(call = {}, attempt) {
    const { signal, timeoutMs = this.#options.timeoutMs, maxRetries = this.#options.maxRetries } = call;
    const attempts = new Attempts({ ...this.#options, timeoutMs, maxRetries });
    return attempts.run((ending) => attempt(ending, attempts), signal);
  }

  async #ask(path, init, call = {}) {
    const headers = { ...init.headers };
    if (this.#apiKey !== null) headers.authorization = `Bearer ${this.#apiKey}`;
    if (call.requestId) headers["x-request-id"] = call.requestId;
    let response, text;
    try {
      const send = this.#fetch; // by a name of its own: browsers refuse to be called as a method of something else
      response = await send(new URL(path, this.url), { ...init, headers, credentials: "omit", cache: "no-store" });
      text = await readText(response);
    } catch (error) {
      if (error instanceof UnexpectedReplyError) throw error;
      throw new ConnectionFailedError("the service cannot be reached", error);
    }
    return readReply(response, text, path);
  }
}

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
      const message = `status ${response.status} with a body of more than ${MAX_REPLY_BYTES} bytes`;
      throw new UnexpectedReplyError(message, response.status, text.slice(0, BODY_START_CHARS));
    }
  }
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isScore = (score) => isObject(score) && typeof score.value === "number";
const isScores = (reply) =>
  isObject(reply) && isObject(reply.scores) && Object.values(reply.scores).every(isScore) && isObject(reply.errors);

/** What a reply of each call must have for the caller to rely on it. */
const SHAPES = {
  "v1/score": isScores,
  "v1/score_batch": (reply) => Array.isArray(reply.results) && reply.results.every(isObject),
  "v1/score_dialogue": (reply) => Array.isArray(reply.turns) && reply.turns.every(isScores) && isObject(reply.dialogue),
  "v1/rank": (reply) => Array.isArray(reply.candidates) && reply.candidates.every(isScores),
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
  if (isErrorDetail(reply?.error)) throw new ServiceError(reply.error, reply.request_id ?? null);
  if (response.ok && isObject(reply) && SHAPES[path](reply)) return reply;
  throw new UnexpectedReplyError(
    `status ${response.status} without a reply of turnscore's`,
    response.status,
    text.slice(0, BODY_START_CHARS),
  );
}

function withDeadline(request, attempts) {
  return { ...request, deadline_ms: attempts.deadlineMs(request.deadline_ms) };
}

function withDeadlines(request, attempts) {
  return { ...request, items: request.items.map((item) => withDeadline(item, attempts)) };
}
