// A live conversation: every message of the caller has one answer, in order. docs/conversations.md describes the messages.
import { ConnectionFailedError, ServiceError, UnexpectedReplyError, isErrorDetail } from "./errors.js";

/**
 * An open conversation. Fires `draining` when the service is about to stop, and `close` once at its end, with the error
 * that ended it as `detail`, or null.
 */
export class LiveConversation extends EventTarget {
  /** What was said and taken, the opening's context included: the next conversation's `context`. */
  turns = [];
  /** The scorers asked; each scores the turns of one speaker. */
  scorers = [];
  /** Whether the service said that it is about to stop: finish, then open another conversation. */
  isDraining = false;
  /** Whether nothing can be said any more. */
  isClosed = false;
  #socket;
  #waiting = [];
  #ending = null;

  /** Use `TurnScoreClient.conversation`. @param {WebSocket} socket */
  constructor(socket) {
    super();
    this.#socket = socket;
    socket.addEventListener("message", (event) => this.#hear(event.data));
    socket.addEventListener("close", (event) => this.#end(event.code));
    socket.addEventListener("error", () => this.#end(1006)); // Node 20 says no more of a refused handshake
  }

  /** Connects and opens. @param {() => WebSocket} connect @param {any} opening @param {AbortSignal} signal */
  static async open(connect, opening, signal) {
    let socket;
    try {
      socket = connect();
    } catch (error) {
      throw new TypeError("no WebSocket can be opened with this address and key", { cause: error });
    }
    const conversation = new LiveConversation(socket);
    const stop = () => conversation.close();
    signal.addEventListener("abort", stop, { once: true });
    try {
      await conversation.#connected();
      const { opened } = await conversation.#send({ open: opening });
      conversation.scorers = opened.scorers;
      conversation.turns = [...(opening.context ?? [])];
      return conversation;
    } catch (error) {
      conversation.close();
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }

  /**
   * Says a turn. Returns its scores, and those of the conversation so far; null where nobody scores it.
   * Throws ServiceError where the turn is refused and not part of the conversation. Never sent twice.
   * @param {"user" | "system"} speaker @param {string} text @param {{deadline_ms?: number}} [options]
   */
  async say(speaker, text, options = {}) {
    const turn = { speaker, text };
    const reply = await this.#send({ turn: { ...turn, ...options } });
    this.turns.push(turn);
    return reply.scored ?? reply.user_turn ?? null;
  }

  /** Ends the conversation. */
  close() {
    this.#socket.close(1000);
  }

  #connected() {
    return new Promise((resolve, reject) => {
      this.#socket.addEventListener("open", resolve, { once: true });
      this.addEventListener("close", (event) => reject(event.detail ?? closed(1000)), { once: true });
    });
  }

  #send(message) {
    if (this.isClosed) return Promise.reject(this.#ending ?? closed(1000));
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#socket.send(JSON.stringify(message));
    });
  }

  #hear(data) {
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      this.#ending = new UnexpectedReplyError("a message is not JSON");
      this.close();
      return;
    }
    if (message.draining) {
      this.isDraining = true;
      this.dispatchEvent(new CustomEvent("draining", { detail: message.draining }));
    } else if (isErrorDetail(message.error)) {
      const error = new ServiceError(message.error);
      const waiting = this.#waiting.shift();
      // The last message before the end answers nothing where no answer is due.
      if (waiting) waiting.reject(error);
      else this.#ending = error;
    } else if (message.opened || message.ack || message.scored || message.user_turn) {
      this.#waiting.shift()?.resolve(message);
    }
  }

  #end(code) {
    if (this.isClosed) return;
    this.isClosed = true;
    if (code !== 1000) this.#ending ??= closed(code);
    for (const { reject } of this.#waiting.splice(0)) reject(this.#ending ?? closed(code));
    this.dispatchEvent(new CustomEvent("close", { detail: this.#ending }));
  }
}

function closed(code) {
  return new ConnectionFailedError(code === 1000 ? "the conversation is closed" : `the connection broke off (${code})`);
}
