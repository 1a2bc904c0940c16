// Errors: everything that the client throws about a call. `code` is one word that a program can branch on.
//
// TurnScoreError                 code
// ├── ServiceError               invalid_request, unauthenticated, not_found, too_large, overloaded, internal,
// │                              not_ready, deadline_exceeded: the service refused, or the time ran out here
// ├── ConnectionFailedError      connection_failed: no answer came over the network
// └── UnexpectedReplyError       unexpected_reply: the answer is not turnscore's, such as a proxy's page

const RETRYABLE = new Set(["overloaded", "not_ready", "connection_failed"]);
const CODES = new Set([
  "invalid_request",
  "unauthenticated",
  "not_found",
  "too_large",
  "overloaded",
  "internal",
  "not_ready",
  "deadline_exceeded",
]);

/** Something went wrong with a call. */
export class TurnScoreError extends Error {
  /** @param {string} code @param {string} message @param {string | null} [requestId] @param {unknown} [cause] */
  constructor(code, message, requestId = null, cause = undefined) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.requestId = requestId;
  }

  /** Whether the same call may succeed later. Scoring changes nothing, so sending it twice is safe. */
  get isRetryable() {
    return RETRYABLE.has(this.code);
  }
}

/** The service refused the request, or had no time for it. `field` is the path of what is wrong, such as `turns.3.text`. */
export class ServiceError extends TurnScoreError {
  /** @param {{code: string, message: string, field?: string | null, retry_after_ms?: number | null}} detail @param {string | null} [requestId] */
  constructor(detail, requestId = null) {
    super(detail.code, detail.message, requestId);
    this.field = detail.field ?? null;
    this.retryAfterMs = detail.retry_after_ms ?? null;
  }
}

/** No answer came: the host is unknown, refused, or broke the connection off. */
export class ConnectionFailedError extends TurnScoreError {
  /** @param {string} message @param {unknown} [cause] */
  constructor(message, cause = undefined) {
    super("connection_failed", message, null, cause);
  }
}

/** An answer came that turnscore does not give. */
export class UnexpectedReplyError extends TurnScoreError {
  /** @param {string} message @param {number | null} [status] @param {string} [bodyStart] */
  constructor(message, status = null, bodyStart = "") {
    super("unexpected_reply", message);
    this.status = status;
    this.bodyStart = bodyStart;
  }

  /** A proxy answers these while the service behind it restarts. */
  get isRetryable() {
    return [502, 503, 504].includes(this.status);
  }
}

/** The error of a call whose time ran out on this side. @param {number} timeoutMs */
export function outOfTime(timeoutMs) {
  return new ServiceError({ code: "deadline_exceeded", message: `no answer within ${timeoutMs / 1000} s` });
}

/** Whether this is an error of the wire: an object with a code of the table. @param {any} detail */
export function isErrorDetail(detail) {
  return typeof detail?.code === "string" && CODES.has(detail.code) && typeof detail.message === "string";
}
