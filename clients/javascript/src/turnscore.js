// turnscore's client for browsers and Node: the public names, and nothing else. No dependencies, no build step.
export { BackgroundScorer } from "./background.js";
export { TurnScoreClient } from "./client.js";
export { LiveConversation } from "./conversation.js";
export {
  ConnectionFailedError,
  DeadlineExceededError,
  InternalError,
  InvalidRequestError,
  NotFoundError,
  NotReadyError,
  OverloadedError,
  ServiceError,
  TooLargeError,
  TurnScoreError,
  UnauthenticatedError,
  UnexpectedReplyError,
  errorFromDetail,
  errorFromReply,
} from "./errors.js";
export { readMessages } from "./messages.js";
