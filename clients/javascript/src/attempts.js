// Attempts: how long one call may take, whether it is sent again, and after which delay. The numbers are the Python client's.
import { DeadlineExceededError } from "./errors.js";

export const DEFAULTS = Object.freeze({
  timeoutMs: 10_000, // for one call, retries included: the service's own default deadline
  maxRetries: 5, // with the delays below they span at most 3.1 s: a short restart of the service
  firstDelayMs: 100, // doubled for each further retry
  longestDelayMs: 2_000,
  /** @type {import("./turnscore.js").Clock} */
  clock: Object.freeze({ now: () => performance.now(), sleep }),
});
const JITTER = 0.5; // share of a delay left to chance, so that callers refused together do not come back together
const HINT_JITTER = 0.1; // share by which a delay that the service asked for is stretched, never shortened
const MAX_DEADLINE_MS = 600_000; // the longest deadline that the service takes
const LONGEST_TIMER_MS = 2 ** 31 - 1; // a longer one would fire at once

/** Throws RangeError for options of a client or a call that make no sense. @param {any} options */
export function checkTimes({ timeoutMs, maxRetries }) {
  if (!Number.isFinite(timeoutMs)) throw new RangeError("timeoutMs must be a finite number");
  if (!Number.isInteger(maxRetries) || maxRetries < 0) throw new RangeError("maxRetries must be 0 or more");
}

/** The attempts of one call, from its start to its one deadline. */
export class Attempts {
  #failures = 0;
  #options;
  #startedAt;

  /** @param {any} options as DEFAULTS; `deadline_ms` is the call's own, `requestId` stands in the error of a call without time */
  constructor(options) {
    checkTimes(options);
    this.#options = options;
    this.#startedAt = options.clock.now();
  }

  get #msSpent() {
    return this.#options.clock.now() - this.#startedAt;
  }

  /** What is left for the whole call; not positive once its time ran out. */
  get msLeft() {
    return this.#options.timeoutMs - this.#msSpent;
  }

  /** The deadline to send: what is left of the call, or of the caller's own deadline where that is less. @param {number | null} [own] */
  deadlineMs(own) {
    return Math.max(1, Math.floor(Math.min(this.msLeft, (own ?? Infinity) - this.#msSpent, MAX_DEADLINE_MS)));
  }

  /** Milliseconds to wait before the next attempt; null where the error is the call's. @param {any} error */
  delayAfter(error) {
    this.#failures += 1;
    const { maxRetries, firstDelayMs, longestDelayMs, deadline_ms } = this.#options;
    if (!error?.isRetryable || this.#failures > maxRetries) return null;
    const full = Math.min(firstDelayMs * 2 ** Math.min(this.#failures - 1, 60), longestDelayMs);
    const delay =
      error.retryAfterMs == null
        ? full * (1 - JITTER * Math.random())
        : error.retryAfterMs * (1 + HINT_JITTER * Math.random());
    return delay < Math.min(this.msLeft, (deadline_ms ?? Infinity) - this.#msSpent) ? delay : null;
  }

  /**
   * What one of the attempts returns, or the last one's error.
   * @template T
   * @param {(signal: AbortSignal) => Promise<T>} attempt
   * @param {AbortSignal} [callers] ends the whole call, with its reason
   * @returns {Promise<T>}
   */
  async run(attempt, callers) {
    for (;;) {
      try {
        return await this.once(attempt, callers);
      } catch (error) {
        callers?.throwIfAborted();
        const delay = this.delayAfter(error);
        if (delay === null) throw error;
        await this.#options.clock.sleep(delay, callers);
      }
    }
  }

  /**
   * What one attempt returns. It gets a signal that ends it when the time runs out, or the caller wants no more.
   * @template T
   * @param {(signal: AbortSignal) => Promise<T>} attempt @param {AbortSignal} [callers] @returns {Promise<T>}
   */
  async once(attempt, callers) {
    callers?.throwIfAborted();
    const { timeoutMs, requestId } = this.#options;
    const outOfTime = new DeadlineExceededError({ message: `no answer within ${timeoutMs / 1000} s` }, requestId);
    if (this.msLeft <= 0) throw outOfTime;
    // Not AbortSignal.timeout and any: what they hold may be collected before it fires (Node before 22).
    const ending = new AbortController();
    const timer = setTimeout(() => ending.abort(outOfTime), Math.min(Math.ceil(this.msLeft), LONGEST_TIMER_MS));
    const stop = () => ending.abort(callers?.reason);
    callers?.addEventListener("abort", stop, { once: true });
    try {
      return await attempt(ending.signal);
    } catch (error) {
      ending.signal.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(timer);
      callers?.removeEventListener("abort", stop);
    }
  }
}

/** @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>} */
function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
