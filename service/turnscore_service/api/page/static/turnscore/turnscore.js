// turnscore's client for browsers and Node: the public names, and nothing else. No dependencies, no build step.
export { TurnScoreClient } from "./client.js";
export { LiveConversation } from "./conversation.js";
export { ConnectionFailedError, ServiceError, TurnScoreError, UnexpectedReplyError } from "./errors.js";
