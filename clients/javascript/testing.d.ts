import { ClientOptions, Clock, ErrorCode, Limits, ScoreRequest, TurnScoreClient } from "./src/turnscore.js";

/** A clock on which time passes by being slept through, at once. */
export class ManualClock implements Clock {
  ms: number;
  readonly sleeps: number[];
  now(): number;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}
/** One request as it reached the mock; each message of a conversation is one, of the method `CONVERSATION`. */
export interface RecordedRequest {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: any;
}
type Scores = Record<string, number> | ((request: ScoreRequest & { response: string }) => Record<string, number>);
/** A turnscore without a network or a model: it checks requests as the service does and answers with your scores. */
export class MockTurnScore {
  constructor(known?: {
    /**
     * The values by scorer, or a function that returns them; it may throw a ServiceError, and anything else it throws
     * reaches the caller. `{engagement: 0.5}` by default.
     */
    scores?: Scores;
    /** The values, by scorer, below which a score's label is `low`. */
    thresholds?: Record<string, number>;
    /** How near two texts are. */
    similarity?: (left: string, right: string) => number;
    /** Makes scorers those of user turns: the signals that their scores show. */
    signals?: Record<string, string[]>;
  });
  scores: Scores;
  thresholds: Record<string, number>;
  similarity: (left: string, right: string) => number;
  signals: Record<string, string[]>;
  limits: Limits;
  /** What its clients send with, for one of your own. */
  readonly fetch: typeof globalThis.fetch;
  readonly requests: RecordedRequest[];
  readonly clock: ManualClock;
  readonly isDraining: boolean;
  /** A client of this mock; its retries do not wait. */
  client(options?: ClientOptions): TurnScoreClient;
  failNext(
    code: ErrorCode,
    given?: { message?: string; field?: string | null; retryAfterMs?: number | null; times?: number },
  ): void;
  breakNext(times?: number): void;
  answerNext(status: number, body: string, headers?: Record<string, string>, times?: number): void;
  beginDrain(): void;
}
