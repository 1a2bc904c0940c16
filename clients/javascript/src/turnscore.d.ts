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
  deadline_ms?: number;
  cache?: "use" | "bypass" | "refresh";
  cache_namespace?: string;
  /** Your name for the conversation, the same for each of its turns. */
  conversation?: string;
}
/** A message in OpenAI's chat form; docs/api.md says what becomes of it. */
export interface ChatMessage {
  role: "user" | "assistant" | "system" | "developer" | "tool" | "function";
  content?: string | { type: string; [field: string]: unknown }[] | null;
  [field: string]: unknown;
}
/** `response` after `context` or `messages`; or `messages` alone, of which the last turn is scored. */
export interface ScoreRequest extends ScorerChoice {
  context?: Turn[];
  messages?: ChatMessage[];
  response?: string;
  /** Who said the turn to score; `system` when left out. */
  speaker?: Speaker;
}
export interface BatchRequest {
  items: ScoreRequest[];
}
/** Either `turns` or `messages`. */
export interface DialogueRequest extends ScorerChoice {
  turns?: Turn[];
  messages?: ChatMessage[];
}
export interface RankRequest extends ScorerChoice {
  context?: Turn[];
  messages?: ChatMessage[];
  candidates: string[];
  weights?: Record<string, number>;
}
export interface ConversationOpening extends Omit<ScorerChoice, "cache" | "cache_namespace"> {
  context?: Turn[];
}

export interface Score {
  value: number;
  /** Share of real turns, 0 to 100, that score lower; null if no reference turn was scored this way. */
  percentile: number | null;
  details: Record<string, number>;
  model: string;
  tokens: { used: number; dropped: number; truncated: boolean };
  cached: boolean;
  warnings: string[];
  label: "low" | "fair" | "good" | null;
  reasons: string[];
  /** What a user's turn shows, such as `frustrated`, the most probable first. */
  signals: string[];
  stand_in: boolean;
}
export interface ErrorDetail {
  code: string;
  message: string;
  field: string | null;
  retry_after_ms: number | null;
}
export interface Timing {
  total: number;
  tokenize: number;
  queue: number;
  inference: number;
  cache: number;
}
export interface Scored {
  scores: Record<string, Score>;
  errors: Record<string, ErrorDetail>;
}
export interface ScoreReply extends Scored {
  request_id: string;
  /** With `messages`: the place of the message that was scored. */
  index?: number | null;
  skipped?: number;
  timing_ms: Timing;
}
export interface BatchReply {
  request_id: string;
  results: (ScoreReply | { error: ErrorDetail; request_id: string })[];
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
  turns: (Scored & { index: number })[];
  dialogue: Record<string, DialogueAggregate>;
  timing_ms: Timing;
}
export interface RankReply {
  request_id: string;
  candidates: (Scored & { index: number; combined: number | null })[];
  weights: Record<string, number>;
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
export interface ModelsReply {
  request_id: string;
  models: ModelDescription[];
  limits: {
    max_text_chars: number;
    max_turns: number;
    max_items: number;
    max_candidates: number;
    max_body_bytes: number;
  };
  /** Other versions of these models; a service before them sends none. */
  candidates?: VersionDescription[];
}
export interface ConversationScored extends Scored {
  index: number;
  dialogue: Record<string, DialogueAggregate>;
  timing_ms: Timing;
}

export interface CallOptions {
  /** Ends the call; it then rejects with the signal's reason. */
  signal?: AbortSignal;
  /** Milliseconds for the whole call, retries included; 10,000 by default. */
  timeoutMs?: number;
  /** How often a call is sent again after a failed connection, `overloaded` or `not_ready`; 5 by default. */
  maxRetries?: number;
  /** An id of your own, which the reply and the service's log repeat. */
  requestId?: string;
}
export interface ClientOptions {
  apiKey?: string | null;
  timeoutMs?: number;
  maxRetries?: number;
  /** Delay before the first retry, doubled for each further one; 100 by default. */
  firstDelayMs?: number;
  longestDelayMs?: number;
  fetch?: typeof globalThis.fetch;
  /** For runtimes without one of their own: Node before 22. */
  WebSocket?: typeof globalThis.WebSocket;
}

export class TurnScoreClient {
  constructor(url?: string | URL, options?: ClientOptions);
  readonly url: URL;
  get hasApiKey(): boolean;
  useApiKey(apiKey: string | null): void;
  score(request: ScoreRequest, call?: CallOptions): Promise<ScoreReply>;
  scoreBatch(request: BatchRequest, call?: CallOptions): Promise<BatchReply>;
  scoreDialogue(request: DialogueRequest, call?: CallOptions): Promise<DialogueReply>;
  rank(request: RankRequest, call?: CallOptions): Promise<RankReply>;
  models(call?: CallOptions): Promise<ModelsReply>;
  isReady(call?: CallOptions): Promise<boolean>;
  conversation(opening?: ConversationOpening, call?: Omit<CallOptions, "requestId">): Promise<LiveConversation>;
}

/** Fires `draining` when the service is about to stop, and `close` once, with the error that ended it, or null, as `detail`. */
export class LiveConversation extends EventTarget {
  readonly turns: Turn[];
  readonly scorers: string[];
  readonly isDraining: boolean;
  readonly isClosed: boolean;
  say(speaker: "user", text: string, options?: { deadline_ms?: number }): Promise<ConversationScored | null>;
  /** Null where `scorers` are of user turns alone. */
  say(speaker: "system", text: string, options?: { deadline_ms?: number }): Promise<ConversationScored>;
  close(): void;
}

export class TurnScoreError extends Error {
  readonly code: string;
  readonly requestId: string | null;
  get isRetryable(): boolean;
}
export class ServiceError extends TurnScoreError {
  readonly field: string | null;
  readonly retryAfterMs: number | null;
}
export class ConnectionFailedError extends TurnScoreError {}
export class UnexpectedReplyError extends TurnScoreError {
  readonly status: number | null;
  readonly bodyStart: string;
}
