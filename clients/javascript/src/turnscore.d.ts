// Types of the module. The wire's own types, described field by field, are in docs/openapi.json.

export type Speaker = "user" | "system";
export interface Turn {
  speaker: Speaker;
  text: string;
}
/** Which scorers are asked, with which options, and until when. */
export interface ScorerChoice {
  scorers?: string[];
  options?: Record<string, Record<string, unknown>>;
  /** For one attempt; what is left of the call's `timeoutMs` says so otherwise. */
  deadline_ms?: number;
  cache?: "use" | "bypass" | "refresh";
  cache_namespace?: string;
  /** Your name for the conversation, the same for each of its turns. */
  conversation?: string;
}
/**
 * A message in OpenAI's chat form, or OpenTelemetry's with `parts`; docs/api.md says what becomes of it. Any object with a
 * role is one, such as those of the openai package; roles, texts and the kinds of other parts are all that is sent.
 */
export interface ChatMessage {
  role: string;
  content?: unknown;
}
interface TakesMessages extends ScorerChoice {
  messages?: readonly ChatMessage[];
}
/** `response` after `context` or `messages`; or `messages` alone, of which the last turn is scored. */
export interface ScoreRequest extends TakesMessages {
  context?: readonly Turn[];
  response?: string;
  /** Who said the turn to score; `system` when left out. */
  speaker?: Speaker;
}
/** What is said besides `items` holds for each item that does not say it itself. */
export interface BatchRequest extends ScorerChoice {
  items: readonly ScoreRequest[];
}
/** Either `turns` or `messages`. */
export interface DialogueRequest extends TakesMessages {
  turns?: readonly Turn[];
}
export interface RankRequest extends TakesMessages {
  context?: readonly Turn[];
  candidates: readonly string[];
  weights?: Record<string, number>;
}
export interface SimilarityRequest {
  texts: readonly string[];
  /** What they are compared with; each other, when left out. */
  references?: readonly string[];
  deadline_ms?: number;
  cache?: "use" | "bypass" | "refresh";
  cache_namespace?: string;
}
/** Either `context` or `messages`, which are not scored; `deadline_ms` is for each turn. */
export interface ConversationOpening extends TakesMessages {
  context?: readonly Turn[];
}

export interface TokenCount {
  used: number;
  dropped: number;
  truncated: boolean;
}
export interface Score {
  value: number;
  /** Share of real turns, 0 to 100, that score lower; null if no reference turn was scored this way. */
  percentile: number | null;
  details: Record<string, number>;
  model: string;
  tokens: TokenCount;
  cached: boolean;
  warnings: string[];
  label: "low" | "fair" | "good" | null;
  reasons: string[];
  /** What a user's turn shows, such as `frustrated`, the most probable first. */
  signals: string[];
  stand_in: boolean;
}
export type ErrorCode =
  | "invalid_request"
  | "unauthenticated"
  | "not_found"
  | "too_large"
  | "overloaded"
  | "internal"
  | "not_ready"
  | "deadline_exceeded";
export interface ErrorDetail {
  code: ErrorCode;
  message: string;
  field: string | null;
  retry_after_ms: number | null;
}
export interface ErrorReply {
  error: ErrorDetail;
  request_id: string;
}
export interface Timing {
  total: number;
  tokenize: number;
  queue: number;
  inference: number;
  cache: number;
}
interface ScoresAndErrors {
  scores: Record<string, Score>;
  errors: Record<string, ErrorDetail>;
}
export interface ScoreReply extends ScoresAndErrors {
  request_id: string;
  /** With `messages`: the place of the message that was scored. */
  index: number | null;
  /** Parts of the messages that hold no text to score. */
  skipped: number;
  timing_ms: Timing;
}
export interface BatchReply {
  request_id: string;
  /** In the order of the items; `"error" in result` tells which it is. */
  results: (ScoreReply | ErrorReply)[];
}
export interface DialogueTurnScores extends ScoresAndErrors {
  index: number;
}
export interface DialogueAggregate {
  mean: number;
  min: number;
  max: number;
  turns: number;
  percentile_mean: number | null;
  percentile_min: number | null;
  percentile_max: number | null;
}
export interface DialogueReply {
  request_id: string;
  turns: DialogueTurnScores[];
  dialogue: Record<string, DialogueAggregate>;
  timing_ms: Timing;
  skipped: number;
}
export interface RankedCandidate extends ScoresAndErrors {
  index: number;
  /** Weighted mean of the percentiles; null if a scorer that counts failed. */
  combined: number | null;
}
export interface RankReply {
  request_id: string;
  candidates: RankedCandidate[];
  weights: Record<string, number>;
  timing_ms: Timing;
  skipped: number;
}
export interface EncodedText {
  tokens: TokenCount;
  cached: boolean;
}
export interface TextSimilarities extends EncodedText {
  /** Cosines, -1 to 1, in the order of the request. */
  similarities: number[];
  /** The place of the greatest; null where there is no other. */
  best: number | null;
}
export interface SimilarityReply {
  request_id: string;
  texts: TextSimilarities[];
  references: EncodedText[];
  model: string;
  digest: string;
  timing_ms: Timing;
}
export interface ModelDescription {
  scorer: string;
  model: string;
  digest: string;
  graph: string;
  max_text_tokens: number;
  max_turn_tokens: number;
  option_limits: Record<string, number>;
  /** Whose turns it scores. */
  speaker: Speaker;
  is_default: boolean;
  stand_in: boolean;
  threshold: number | null;
  /** The threshold's place among real turns, 0 to 100. */
  threshold_percentile: number | null;
  /** The value from which the label is `good`. */
  good_threshold: number | null;
}
/** A candidate: another version of a served bundle. */
export interface VersionDescription {
  scorer: string;
  model: string;
  digest: string;
  graph: string;
  /** `split` answers some conversations, `shadow` is not returned; there may be others. */
  role: string;
  share: number;
}
export interface Limits {
  max_text_chars: number;
  max_turns: number;
  max_items: number;
  max_candidates: number;
  max_body_bytes: number;
}
export interface ModelsReply {
  request_id: string;
  models: ModelDescription[];
  limits: Limits;
  /** Other versions of these models; a service before them sends none. */
  candidates?: VersionDescription[];
}
/** What the service answered when the conversation opened. */
export interface ConversationOpened {
  request_id: string;
  scorers: string[];
  turns: number;
}
export interface ConversationScored extends ScoresAndErrors {
  index: number;
  dialogue: Record<string, DialogueAggregate>;
  timing_ms: Timing;
  skipped: number;
}
/** The turns that messages are; `indices` has for each the place of the message that holds its last text. */
export interface MappedMessages {
  turns: Turn[];
  indices: number[];
  skipped: number;
  /** Whether they end while tools are at work, so that the assistant may have more to say. */
  goesOn: boolean;
  /** Whether the last assistant's message, after every turn, has no text and calls no tools. */
  endsSilent: boolean;
}

interface Waiting {
  /** Ends the call; it then rejects with the signal's reason. */
  signal?: AbortSignal;
  /** Milliseconds for the whole call, retries included; 10,000 by default. */
  timeoutMs?: number;
}
export interface CallOptions extends Waiting {
  /** How often a call is sent again: after a failed connection, `overloaded`, `not_ready`, a proxy's 502, 503 or 504; 5 by default. */
  maxRetries?: number;
  /** An id of your own, which the reply and the service's log repeat. */
  requestId?: string;
  /** Further headers, such as a trace's. */
  metadata?: Record<string, string>;
}
/** `signal` ends the opening; `timeoutMs` is for it and for each turn. */
export interface OpeningOptions extends Waiting {
  maxRetries?: number;
  /** How often the conversation goes on over another connection; 3 by default. 0 leaves that to you. */
  maxReopenings?: number;
}
export interface TurnOptions extends Waiting {
  /** When the service drops the work for this turn; else the opening's. */
  deadline_ms?: number;
}
/** Milliseconds from any fixed point, and a way to let some of them pass. */
export interface Clock {
  now(): number;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}
export interface ClientOptions {
  /** In Node else TURNSCORE_API_KEY of the environment; null for none. */
  apiKey?: string | null;
  timeoutMs?: number;
  maxRetries?: number;
  /** Delay before the first retry, doubled for each further one; 100 by default. */
  firstDelayMs?: number;
  longestDelayMs?: number;
  clock?: Clock;
  fetch?: typeof globalThis.fetch;
  /** For runtimes without one of their own, such as Node before 22: the ws package's. */
  WebSocket?: new (url: URL, protocols: string[]) => any;
}

export class TurnScoreClient {
  /** `url` is in Node else TURNSCORE_URL of the environment, or http://localhost:3000/. */
  constructor(url?: string | URL, options?: ClientOptions);
  readonly url: URL;
  get hasApiKey(): boolean;
  useApiKey(apiKey: string | null): void;
  score(request: ScoreRequest, call?: CallOptions): Promise<ScoreReply>;
  scoreBatch(request: BatchRequest, call?: CallOptions): Promise<BatchReply>;
  scoreDialogue(request: DialogueRequest, call?: CallOptions): Promise<DialogueReply>;
  rank(request: RankRequest, call?: CallOptions): Promise<RankReply>;
  /** Rejects with NotFoundError where the service has no encoder loaded. */
  similarity(request: SimilarityRequest, call?: CallOptions): Promise<SimilarityReply>;
  models(call?: CallOptions): Promise<ModelsReply>;
  isReady(call?: CallOptions): Promise<boolean>;
  conversation(opening?: ConversationOpening, call?: OpeningOptions): Promise<LiveConversation>;
}

interface ConversationEvents {
  /** The service is about to stop, in `ends_in_ms`. */
  draining: CustomEvent<{ ends_in_ms: number }>;
  /** Nothing can be said any more: the error that ended it, or null. */
  close: CustomEvent<TurnScoreError | null>;
}
/** Its turns are sent one after the other. Where the connection breaks it is reopened with its turns. */
export class LiveConversation extends EventTarget {
  private constructor();
  readonly opened: ConversationOpened;
  readonly turns: Turn[];
  readonly scorers: string[];
  readonly isDraining: boolean;
  readonly isClosed: boolean;
  /** Null where `scorers` are of user turns alone, whatever the type says here. */
  say(speaker: "system", text: string, options?: TurnOptions): Promise<ConversationScored>;
  /** Null for a user's turn where no `scorers` are of user turns. */
  say(speaker: Speaker, text: string, options?: TurnOptions): Promise<ConversationScored | null>;
  /** Null while tools are at work, and where nobody scores the turn that they end with. */
  sayMessages(messages: readonly ChatMessage[], options?: TurnOptions): Promise<ConversationScored | null>;
  close(): void;
  addEventListener<K extends keyof ConversationEvents>(
    type: K,
    listener: (event: ConversationEvents[K]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

/** What became of one turn: its reply, or the error it failed with. `tag` is what it was submitted with. */
export interface Scored<T = unknown> {
  tag: T;
  reply: ScoreReply | null;
  error: TurnScoreError | null;
}
/** What is said about the scoring holds for every turn. */
export interface BackgroundOptions extends ScorerChoice {
  /** Turns that wait, besides those that are being scored; 256 by default. */
  maxWaiting?: number;
  /** Turns that are scored at once; 8 by default. */
  concurrency?: number;
  /** How long `close` waits; 5,000 by default. */
  goodbyeMs?: number;
  /** For every call. */
  call?: Omit<CallOptions, "signal">;
}
/** Scores turns behind a chatbot's back. */
export class BackgroundScorer<T = unknown> {
  constructor(client: TurnScoreClient, onScored: (scored: Scored<T>) => unknown, options?: BackgroundOptions);
  readonly dropped: number;
  /** Never throws and never waits; false where the turn is dropped. */
  submit(request: ScoreRequest, tag?: T): boolean;
  waitUntilIdle(): Promise<void>;
  close(): Promise<void>;
}

/** The turns in a chatbot's messages, as the service reads them. */
export function readMessages(messages: readonly ChatMessage[]): MappedMessages;

export class TurnScoreError extends Error {
  readonly code: ErrorCode | "connection_failed" | "unexpected_reply";
  readonly requestId: string | null;
  get isRetryable(): boolean;
}
export class ServiceError extends TurnScoreError {
  constructor(detail: { message: string } & Partial<ErrorDetail>, requestId?: string | null);
  readonly code: ErrorCode;
  readonly field: string | null;
  readonly retryAfterMs: number | null;
}
export class InvalidRequestError extends ServiceError {}
export class UnauthenticatedError extends ServiceError {}
export class NotFoundError extends ServiceError {}
export class TooLargeError extends ServiceError {}
export class OverloadedError extends ServiceError {}
export class InternalError extends ServiceError {}
export class NotReadyError extends ServiceError {}
export class DeadlineExceededError extends ServiceError {}
export class ConnectionFailedError extends TurnScoreError {}
export class UnexpectedReplyError extends TurnScoreError {
  readonly status: number | null;
  readonly bodyStart: string;
}
/** The typed error that one error of a reply stands for, such as those in `errors`. */
export function errorFromDetail(detail: ErrorDetail, requestId?: string | null): ServiceError;
/** The typed error that an error reply stands for, such as one of the results of `scoreBatch`. */
export function errorFromReply(reply: ErrorReply): ServiceError;
