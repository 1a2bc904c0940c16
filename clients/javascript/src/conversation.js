// A live conversation: its turns, the answers that are due, and how it goes on over another connection. As the Python client's.
import { Attempts } from "./attempts.js";
import { ConnectionFailedError, UnexpectedReplyError, errorFromDetail, isErrorDetail } from "./errors.js";
import { mapMessages, trimMessages } from "./messages.js";

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isScore = (score) => isObject(score) && typeof score.value === "number";

/** Whether this has scores and errors by scorer. @param {any} reply */
export const isScores = (reply) =>
  isObject(reply) && isObject(reply.scores) && Object.values(reply.scores).every(isScore) && isObject(reply.errors);

/**
 * An open conversation. Its turns are sent one after the other. Where the connection breaks, or the service is draining, it is
 * reopened with its turns as context, at most `maxReopenings` times, and the unanswered turn is sent there. Fires `draining`
 * when the service is about to stop, and `close` once, when nothing can be said any more, with the error that ended it as
 * `detail`, or null.
 */
export class LiveConversation extends EventTarget {
  /** Whether nothing can be said any more. */
  isClosed = false;
  #connect;
  #ending = null;
  #exchange;
  #isOpen = false; // between two openings it is not
  #opening;
  #options;
  #reopeningsLeft;
  #socket = null;
  #turn = Promise.resolve();

  /** Use `TurnScoreClient.conversation`. */
  constructor(connect, opening, { maxReopenings, ...options }) {
    super();
    if (!Number.isInteger(maxReopenings) || maxReopenings < 0) throw new RangeError("maxReopenings must be 0 or more");
    this.#connect = connect;
    this.#opening = opening;
    this.#options = options;
    this.#reopeningsLeft = maxReopenings;
    this.#exchange = new Exchange(opening);
  }

  /** Connects and opens. @param {() => WebSocket} connect @param {any} opening @param {any} options @param {AbortSignal} [signal] */
  static async open(connect, opening, options, signal) {
    const conversation = new LiveConversation(connect, opening, options);
    await conversation.#open(new Attempts(conversation.#options), signal);
    return conversation;
  }

  /** What the service answered when it opened: the request id, the scorers, the turns of context. */
  get opened() {
    return this.#exchange.opened;
  }

  /** The scorers asked; each scores the turns of one speaker. */
  get scorers() {
    return this.opened.scorers;
  }

  /** Every turn so far, with the context it was opened with: the next conversation's `context`. */
  get turns() {
    const { turns, waiting } = this.#exchange.transcript();
    return [...turns, ...mapMessages(waiting).turns];
  }

  /** Whether the service said that it is about to stop. */
  get isDraining() {
    return this.#exchange.isDraining;
  }

  /**
   * Says a turn. Returns its scores, and those of the conversation so far in `dialogue`; null where nobody scores it.
   * Throws InvalidRequestError or TooLargeError for a turn that is refused, which is then not part of the conversation, and
   * any other ServiceError for one that could not be scored, which is. A timeout leaves open which; the conversation goes on.
   * @param {"user" | "system"} speaker @param {string} text @param {import("./turnscore.js").TurnOptions} [options]
   */
  say(speaker, text, options) {
    return this.#say("turn", { speaker, text }, options);
  }

  /**
   * Hands over the messages since the last ones, in OpenAI's chat form. Returns and throws as `say` does, for the turn that
   * they end with; null while tools are at work, and the service waits for the rest of it.
   * @param {any[]} messages @param {import("./turnscore.js").TurnOptions} [options]
   */
  async sayMessages(messages, options) {
    return this.#say("messages", trimMessages(messages, "messages.messages"), options);
  }

  /** Ends the conversation. */
  close() {
    this.#end(null);
  }

  async #say(kind, sent, { deadline_ms, timeoutMs, signal } = {}) {
    const before = this.#turn;
    let finish;
    this.#turn = new Promise((resolve) => (finish = resolve));
    await before;
    try {
      const own = { requestId: this.opened.request_id, ...(timeoutMs == null ? {} : { timeoutMs }) };
      const attempts = new Attempts({ ...this.#options, ...own });
      if (this.#reopeningsLeft && (this.isDraining || !this.#socket)) await this.#reopen(null, attempts, signal);
      for (;;) {
        if (this.isClosed) throw this.#ending ?? closed(1000);
        try {
          const left = attempts.deadlineMs(deadline_ms ?? this.#opening.deadline_ms);
          const reply = await attempts.once((ending) => this.#ask(kind, sent, left, ending), signal);
          // That replica shuts down, or nobody spoke for too long: it has not taken the turn.
          const hasEnded = ["not_ready", "deadline_exceeded"].includes(reply.error?.code);
          if (!hasEnded || !this.#reopeningsLeft) return readAnswer(reply, this.opened.request_id);
        } catch (error) {
          if (!(error instanceof ConnectionFailedError) || !this.#reopeningsLeft) throw error;
        }
        await this.#reopen(sent, attempts, signal);
      }
    } finally {
      finish();
    }
  }

  /** The answer to one message; to none of what is due where the caller wants no more. */
  #ask(kind, sent, deadline_ms, ending) {
    const exchange = this.#exchange;
    if (!this.#socket) throw closed(1006);
    const content = kind === "turn" ? sent : kind === "messages" ? { messages: sent } : this.#opening;
    this.#socket.send(JSON.stringify({ [kind]: kind === "open" ? content : { ...content, deadline_ms } }));
    const answer = exchange.expect(kind === "open" ? null : sent); // of what could not be sent none is due
    const stop = () => exchange.giveUp(ending.reason);
    ending.addEventListener("abort", stop, { once: true });
    return answer.finally(() => ending.removeEventListener("abort", stop));
  }

  /** With every turn before the one that has no answer. */
  async #reopen(unanswered, attempts, signal) {
    this.#reopeningsLeft -= 1;
    this.#isOpen = false;
    this.#drop();
    const known = this.#exchange;
    const { turns, waiting } = known.transcript(unanswered);
    const shift = known.places(unanswered) - turns.length - waiting.length;
    const { messages, ...choice } = this.#opening;
    this.#opening = { ...choice, context: turns };
    this.#exchange = new Exchange(this.#opening, { dialogue: known.dialogue, shift, waiting, opened: known.opened });
    try {
      await this.#open(attempts, signal);
    } catch (error) {
      const message =
        "the connection is gone, and maxReopenings is used up; open another conversation with these turns";
      if (!this.#reopeningsLeft) this.#end(new ConnectionFailedError(message, error));
      throw error;
    }
  }

  async #open(attempts, signal) {
    const known = this.#exchange.known;
    await attempts.run(async (ending) => {
      if (this.isClosed) throw new ClosedError("the conversation is closed");
      this.#exchange = new Exchange(this.#opening, known);
      try {
        await this.#listen(ending);
        readAnswer(await this.#ask("open", null, null, ending), null);
        const deadline_ms = attempts.deadlineMs(this.#opening.deadline_ms);
        const waiting = this.#exchange.takeWaiting();
        if (waiting.length) readAnswer(await this.#ask("messages", waiting, deadline_ms, ending), null);
        if (!this.#socket) throw this.#exchange.lastWord ?? closed(1006); // closed together with its last answer
        this.#isOpen = true;
      } catch (error) {
        this.#drop();
        throw error;
      }
    }, signal);
  }

  /** Connects, and hears what is said. */
  #listen(ending) {
    const exchange = this.#exchange;
    let socket;
    try {
      socket = this.#connect();
    } catch (error) {
      throw new TypeError("no WebSocket can be opened with this address and key", { cause: error });
    }
    this.#socket = socket;
    return new Promise((resolve, reject) => {
      const isOurs = () => this.#socket === socket;
      const stop = () => reject(ending.reason);
      const broken = (code) => {
        ending.removeEventListener("abort", stop);
        reject(closed(code));
        if (isOurs()) this.#lose(exchange, code);
      };
      ending.addEventListener("abort", stop, { once: true });
      socket.addEventListener("open", () => (ending.removeEventListener("abort", stop), resolve()), { once: true });
      socket.addEventListener("message", ({ data }) => {
        const draining = isOurs() && exchange.hear(data);
        if (draining) this.dispatchEvent(new CustomEvent("draining", { detail: draining }));
      });
      socket.addEventListener("close", ({ code }) => broken(code));
      socket.addEventListener("error", () => broken(1006)); // Node 20 says no more of a refused handshake
    });
  }

  /** The connection has ended by itself. */
  #lose(exchange, code) {
    this.#socket = null;
    const error = exchange.lastWord ?? closed(code);
    exchange.giveUp(closed(code));
    if (this.#isOpen && !this.#reopeningsLeft) this.#end(error);
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close(1000);
  }

  #end(error) {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#reopeningsLeft = 0;
    this.#ending = error;
    this.#drop();
    this.#exchange.giveUp(error ?? closed(1000));
    this.dispatchEvent(new CustomEvent("close", { detail: error }));
  }
}

/** The turns so far. Messages of an assistant's turn that tools are at work for wait for the rest of it. */
export class Transcript {
  waiting = [];

  /** @param {any[]} turns @param {number} taken turns and messages that these came in: the place of the next one */
  constructor(turns, taken) {
    this.turns = [...turns];
    this.taken = taken;
  }

  /** Adds a turn; its place. What waits becomes turns as it is. */
  addTurn(turn) {
    this.turns.push(...mapMessages(this.waiting).turns, turn);
    this.taken += this.waiting.length + 1;
    this.waiting = [];
    return this.taken - 1;
  }

  /** Adds messages. The turn that they end with, null while the assistant's goes on, and the place of its last text. */
  addMessages(messages) {
    const together = [...this.waiting, ...messages];
    const first = this.taken;
    const { turns, indices, goesOn } = mapMessages(together);
    const finished = turns.length - (goesOn && turns.at(-1)?.speaker === "system" ? 1 : 0);
    const cut = !goesOn ? together.length : finished ? indices[finished - 1] + 1 : 0;
    this.turns.push(...turns.slice(0, finished));
    this.taken += cut;
    this.waiting = together.slice(cut);
    if (this.waiting.length || !finished) return [first + together.length - 1, null];
    return [first + indices.at(-1), turns.at(-1)];
  }
}

/** Counts one answer for each message, in order; an answer that no caller waits for any more is left out. */
class Exchange {
  isDraining = false;
  /** The error with which the service ends a conversation, which answers nothing. */
  lastWord = null;
  #before;
  #context;
  #due = []; // what is still to be answered: {sent, resolve, reject}; what was sent is null for the opening
  #opened;
  #shift;
  #taken;
  #waiting;

  /**
   * `dialogue` has the aggregates of the turns that were scored before it was reopened, `shift` is by how much its places are
   * beyond those that the service counts (messages became fewer turns), and `waiting` are messages of an unfinished turn.
   */
  constructor(opening, { dialogue = {}, shift = 0, waiting = [], opened = null } = {}) {
    this.#context = opening.messages ? mapMessages(opening.messages).turns : (opening.context ?? []);
    this.#opened = opening.messages?.length ?? this.#context.length;
    this.#before = dialogue;
    this.#shift = shift;
    this.#taken = [...this.#context];
    this.#waiting = waiting;
    /** The last aggregates, over every turn that was scored since the first opening. */
    this.dialogue = dialogue;
    this.opened = opened;
  }

  get known() {
    return { dialogue: this.#before, shift: this.#shift, waiting: this.#waiting, opened: this.opened };
  }

  /** What the service has received, or may have because its answer did not come, without this last message. */
  transcript(without = undefined) {
    const transcript = new Transcript([], 0);
    for (const sent of this.#sent(without))
      if (Array.isArray(sent)) transcript.addMessages(sent);
      else transcript.addTurn(sent);
    return transcript;
  }

  /** The place that the next turn, or message, would have, as `index` counts them. */
  places(without) {
    const said = this.#sent(without).slice(this.#context.length);
    return this.#shift + this.#opened + said.reduce((sum, each) => sum + (Array.isArray(each) ? each.length : 1), 0);
  }

  #sent(without) {
    const waiting = this.#waiting.length ? [this.#waiting] : [];
    const due = this.#due.map(({ sent }) => sent).filter((sent) => sent !== null);
    return [...this.#taken, ...waiting, ...due].filter((sent) => sent !== without);
  }

  takeWaiting() {
    const waiting = this.#waiting;
    this.#waiting = [];
    return waiting;
  }

  expect(sent) {
    return new Promise((resolve, reject) => this.#due.push({ sent, resolve, reject }));
  }

  /** No caller waits for the answers that are due; what they answer may have been received. */
  giveUp(reason) {
    for (const due of this.#due) due.reject(reason);
  }

  /** Takes a message of the service's; returns its draining, where it is one. */
  hear(data) {
    let reply;
    try {
      reply = JSON.parse(data);
      if (!isReply(reply)) throw new SyntaxError("no reply of a conversation");
    } catch {
      const message = "a message that is not turnscore's; is something else at this address?";
      this.#settle(true)?.reject(new UnexpectedReplyError(message, null, String(data), this.opened?.request_id));
      this.giveUp(new UnexpectedReplyError(message, null, String(data)));
      return null;
    }
    if (reply.draining) {
      this.isDraining = true;
      return reply.draining;
    }
    const kind = ["scored", "user_turn", "opened", "ack", "error"].find((name) => reply[name]);
    if (!kind) return null; // of a kind that this client does not know
    if (reply.error && !this.#due.length) this.lastWord = errorFromDetail(reply.error, this.opened?.request_id);
    const due = this.#settle(!reply.error);
    if (reply.opened) this.opened = reply.opened;
    if (kind === "scored" || kind === "user_turn") reply = { [kind]: this.#goingOn(reply[kind]) };
    due?.resolve(reply);
    return null;
  }

  /** The first of what is due has its answer. */
  #settle(isTaken) {
    const due = this.#due.shift();
    if (due?.sent && isTaken) this.#taken.push(due.sent);
    return due;
  }

  #goingOn(scored) {
    this.dialogue = joined(this.#before, scored.dialogue);
    return { ...scored, index: scored.index + this.#shift, dialogue: this.dialogue };
  }
}

const isReply = (reply) =>
  isObject(reply) &&
  [reply.scored, reply.user_turn].every((each) => !each || (isScores(each) && isObject(each.dialogue))) &&
  (!reply.error || isErrorDetail(reply.error)) &&
  (!reply.opened || Array.isArray(reply.opened.scorers));

/** The aggregates over the turns of both: a conversation's before and after it was reopened. */
function joined(before, after) {
  const both = { ...before, ...after };
  for (const name of Object.keys(before).filter((each) => after[each])) {
    const [one, other] = [before[name], after[name]];
    const turns = one.turns + other.turns;
    const join = (field, how) => (one[field] == null || other[field] == null ? null : how(one[field], other[field]));
    const mean = (first, second) => (first * one.turns + second * other.turns) / turns;
    both[name] = {
      ...{ mean: join("mean", mean), min: join("min", Math.min), max: join("max", Math.max), turns },
      percentile_mean: join("percentile_mean", mean),
      percentile_min: join("percentile_min", Math.min),
      percentile_max: join("percentile_max", Math.max),
    };
  }
  return both;
}

/** The turn's scores, null for one that nobody scores. Throws the error of a turn that was refused or not scored. */
function readAnswer(reply, requestId) {
  if (reply.error) throw errorFromDetail(reply.error, requestId);
  const scored = reply.scored ?? reply.user_turn ?? null;
  if (!scored || Object.keys(scored.scores).length) return scored;
  const [error] = Object.values(scored.errors);
  throw error
    ? errorFromDetail(error, requestId)
    : new UnexpectedReplyError("a turn with neither scores nor errors", null, "", requestId);
}

function closed(code) {
  return new ConnectionFailedError(code === 1000 ? "the conversation is closed" : `the connection broke off (${code})`);
}

/** Closed by its caller while it was being reopened: not to be tried again. */
class ClosedError extends ConnectionFailedError {
  get isRetryable() {
    return false;
  }
}
