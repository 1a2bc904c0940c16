// Attempts: how long one call may take, whether it is sent again, and after which delay. The numbers are the Python client's.
import { outOfTime } from "./errors.js";

export const DEFAULTS = Object.freeze({
  timeoutMs: 10_000, // for one call, retries included: the service's own default deadline
  maxRetries: 5, // with the delays below they span at most 3.1 s: a short restart of the service
  firstDelayMs: 100, // doubled for each further retry
  longestDelayMs: 2_000,
});
const JITTER = 0.5; // share of a delay left to chance, so that callers refused together do not come back together
const HINT_JITTER = 0.1; // share by which a delay that the service asked for is stretched, never shortened
const MAX_DEADLINE_MS = 600_000; // the longest deadline that the service takes

/** The attempts of one call, from its start to its one deadline. */
export class Attempts {
  #failures = 0;
  #startedAt = performance.now();

  /** @param {{timeoutMs: number, maxRetries: number, firstDelayMs: number, longestDelayMs: number}} options */
  constructor(options) {
    const { timeoutMs, maxRetries } = options;
    if (!(timeoutMs > 0) || !Number.isFinite(timeoutMs)) throw new RangeError("timeoutMs must be more than 0");
    if (!Number.isInteger(maxRetries) || maxRetries < 0) throw new RangeError("maxRetries must be 0 or more");
    this.options = options;
  }

  /** What is left for the whole call; not positive once its time ran out. */
  get msLeft() {
    return this.options.timeoutMs - (performance.now() - this.#startedAt);
  }

  /** The deadline to send: what is left of the call, or of the caller's own deadline where that is less. @param {number} [own] */
  deadlineMs(own = Infinity) {
    const spent = performance.now() - this.#startedAt;
    return Math.max(1, Math.floor(Math.min(this.msLeft, own - spent, MAX_DEADLINE_MS)));
  }

  /** Milliseconds to wait before the next attempt; null where the error is the call's. @param {any} error */
  delayAfter(error) {
    this.#failures += 1;
    if (!error.isRetryable || this.#failures > this.options.maxRetries) return null;
    const { firstDelayMs, longestDelayMs } = this.options;
    const full = Math.min(firstDelayMs * 2 ** Math.min(this.#failures - 1, 60), longestDelayMs);
    const delay =
      error.retryAfterMs == null
        ? full * (1 - JITTER * Math.random())
        : error.retryAfterMs * (1 + HINT_JITTER * Math.random());
    return delay < this.msLeft ? delay : null;
  }

  /**
   * What one of the attempts returns, or the last one's error. An attempt gets a signal that ends it when the time runs out.
   * @template T
   * @param {(signal: AbortSignal) => Promise<T>} attempt
   * @param {AbortSignal} [callers] ends the whole call, with its reason
   * @returns {Promise<T>}
   */
  async run(attempt, callers) {
    for (;;) {
      callers?.throwIfAborted();
      if (this.msLeft <= 0) throw outOfTime(this.options.timeoutMs);
      const clock = AbortSignal.timeout(Math.ceil(this.msLeft));
      try {
        return await attempt(callers ? AbortSignal.any([clock, callers]) : clock);
      } catch (error) {
        callers?.throwIfAborted();
        if (clock.aborted) throw outOfTime(this.options.timeoutMs);
        const delay = this.delayAfter(error);
        if (delay === null) throw error;
        await pause(delay, callers);
      }
    }
  }
}

/** @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>} */
function pause(ms, signal) {
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
