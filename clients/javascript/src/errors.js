// Errors: everything that the client throws about a call, in one tree; arguments that make no sense are a TypeError or a RangeError.
//
// TurnScoreError                    code
// ├── ServiceError                                       the service refused; field, retryAfterMs, requestId
// │   ├── InvalidRequestError       invalid_request      a field is wrong and named
// │   ├── UnauthenticatedError      unauthenticated      the API key is missing or wrong
// │   ├── NotFoundError             not_found            there is no such path
// │   ├── TooLargeError             too_large            beyond the service's limits, which `models()` returns
// │   ├── OverloadedError           overloaded           no room at this moment; retried
// │   ├── InternalError             internal             the service failed on this request
// │   ├── NotReadyError             not_ready            models are loading or the service is draining; retried
// │   └── DeadlineExceededError     deadline_exceeded    the time ran out, at the service or here
// ├── ConnectionFailedError         connection_failed    no answer came over the network; retried
// └── UnexpectedReplyError          unexpected_reply     the answer is not turnscore's, such as a proxy's page

const RETRYABLE = new Set(["overloaded", "not_ready", "connection_failed"]);
const BODY_START_CHARS = 200; // how much of a body that is not turnscore's goes into the error

/** Something went wrong with a call. `code` is one word that a program can branch on. */
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
  /** @param {{code?: string, message: string, field?: string | null, retry_after_ms?: number | null}} detail @param {string | null} [requestId] */
  constructor(detail, requestId = null) {
    super(detail.code ?? new.target.code, detail.message, requestId);
    this.field = detail.field ?? null;
    this.retryAfterMs = detail.retry_after_ms ?? null;
  }
}

export class InvalidRequestError extends ServiceError {
  static code = "invalid_request";
}
export class UnauthenticatedError extends ServiceError {
  static code = "unauthenticated";
}
export class NotFoundError extends ServiceError {
  static code = "not_found";
}
export class TooLargeError extends ServiceError {
  static code = "too_large";
}
export class OverloadedError extends ServiceError {
  static code = "overloaded";
}
export class InternalError extends ServiceError {
  static code = "internal";
}
export class NotReadyError extends ServiceError {
  static code = "not_ready";
}
export class DeadlineExceededError extends ServiceError {
  static code = "deadline_exceeded";
}

const CLASSES = new Map(
  [
    ...[InvalidRequestError, UnauthenticatedError, NotFoundError, TooLargeError],
    ...[OverloadedError, InternalError, NotReadyError, DeadlineExceededError],
  ].map((each) => [each.code, each]),
);

/** No answer came: the host is unknown, refused, or broke the connection off. */
export class ConnectionFailedError extends TurnScoreError {
  /** @param {string} message @param {unknown} [cause] */
  constructor(message, cause = undefined) {
    super("connection_failed", message, null, cause);
  }
}

/** An answer came that turnscore does not give; `bodyStart` has its first characters. */
export class UnexpectedReplyError extends TurnScoreError {
  /** @param {string} message @param {number | null} [status] @param {string} [body] @param {string | null} [requestId] */
  constructor(message, status = null, body = "", requestId = null) {
    super("unexpected_reply", message, requestId);
    this.status = status;
    this.bodyStart = body.slice(0, BODY_START_CHARS);
  }

  /** A proxy answers these while the service behind it restarts. */
  get isRetryable() {
    return [502, 503, 504].includes(this.status);
  }
}

/** The typed error that one error of a reply stands for, such as those in `errors`. @param {any} detail @param {string | null} [requestId] */
export function errorFromDetail(detail, requestId = null) {
  return new (CLASSES.get(detail.code) ?? ServiceError)(detail, requestId);
}

/** The typed error that an error reply stands for, such as one of the results of `scoreBatch`. @param {any} reply */
export function errorFromReply(reply) {
  return errorFromDetail(reply.error, reply.request_id ?? null);
}

/** Whether this is an error of the wire: an object with a code of the table. @param {any} detail */
export function isErrorDetail(detail) {
  return typeof detail?.code === "string" && CLASSES.has(detail.code) && typeof detail.message === "string";
}
