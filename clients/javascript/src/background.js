// Scores turns behind a chatbot's back: it waits for nothing, and gets no error from here.
import { TurnScoreError } from "./errors.js";

/**
 * At most `maxWaiting` turns wait and `concurrency` are being scored; one more is dropped and counted in `dropped`. `onScored`
 * gets each outcome, `{tag, reply, error}`, in the order in which they come; what it throws is logged by its name, and stops
 * nothing. What else is given, such as `scorers`, holds for every turn; `call` is for every call.
 */
export class BackgroundScorer {
  /** Turns that will not be scored: the queue was full, or there was no time at the end. */
  dropped = 0;
  #call;
  #choice;
  #client;
  #concurrency;
  #goodbyeMs;
  #idle = [];
  #isOpen = true;
  #maxWaiting;
  #onScored;
  #running = new Set();
  #stop = new AbortController();
  #waiting = [];

  /**
   * @param {import("./turnscore.js").TurnScoreClient} client @param {(scored: any) => unknown} onScored
   * @param {import("./turnscore.js").BackgroundOptions} [options]
   */
  constructor(client, onScored, options = {}) {
    const { maxWaiting = 256, concurrency = 8, goodbyeMs = 5000, call = {}, ...choice } = options;
    if (!(maxWaiting >= 1 && concurrency >= 1)) throw new RangeError("maxWaiting and concurrency must be 1 or more");
    [this.#client, this.#onScored, this.#call, this.#choice] = [client, onScored, call, choice];
    [this.#maxWaiting, this.#concurrency, this.#goodbyeMs] = [maxWaiting, concurrency, goodbyeMs];
  }

  /** Takes a turn, as a client's `score` does, and returns at once; false where it is dropped. @param {any} request @param {unknown} [tag] */
  submit(request, tag) {
    const isFull = this.#waiting.length + this.#running.size >= this.#maxWaiting + this.#concurrency;
    if (!this.#isOpen || isFull) {
      this.dropped += 1;
      return false;
    }
    this.#waiting.push({ request: copied(request), tag });
    queueMicrotask(() => this.#next());
    return true;
  }

  /** Returns when every submitted turn has its outcome. @returns {Promise<void>} */
  waitUntilIdle() {
    return new Promise((resolve) => {
      this.#idle.push(resolve);
      this.#next();
    });
  }

  /** Takes no more turns, waits `goodbyeMs` for those it has, and drops the rest. */
  async close() {
    this.#isOpen = false;
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, this.#goodbyeMs)));
    await Promise.race([this.waitUntilIdle(), late]);
    clearTimeout(timer);
    this.dropped += this.#waiting.splice(0).length + this.#running.size;
    this.#running.clear();
    this.#stop.abort(new DOMException("the scorer is closed", "AbortError"));
    this.#next();
  }

  #next() {
    while (this.#waiting.length && this.#running.size < this.#concurrency) {
      const job = this.#waiting.shift();
      this.#running.add(job);
      this.#score(job).finally(() => {
        this.#running.delete(job);
        this.#next();
      });
    }
    if (!this.#waiting.length && !this.#running.size) for (const resolve of this.#idle.splice(0)) resolve();
  }

  async #score(job) {
    const { request, tag } = job;
    try {
      const outcome = { tag, reply: null, error: null };
      try {
        outcome.reply = await this.#client.score(
          { ...this.#choice, ...request },
          { ...this.#call, signal: this.#stop.signal },
        );
      } catch (error) {
        if (!(error instanceof TurnScoreError)) throw error;
        outcome.error = error;
      }
      if (this.#running.has(job)) await this.#onScored(outcome);
    } catch (error) {
      // Not its words: they may be the dialogue's.
      if (this.#running.has(job)) console.error("turnscore: a turn's outcome is lost: %s", error?.name ?? typeof error);
    }
  }
}

/** The caller's lists go on. */
function copied(request) {
  const kept = Object.entries(request ?? {}).map(([name, value]) => [name, Array.isArray(value) ? [...value] : value]);
  return Object.fromEntries(kept);
}
