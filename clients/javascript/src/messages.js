// Messages: OpenAI's chat messages, and OpenTelemetry's, mapped to turns by the rules of docs/api.md, as the service maps them.
// What no speaker reads (prompts, calls and results of tools, reasoning, pictures) is left out as a message is read, and never sent.
import { InvalidRequestError } from "./errors.js";

export const ROLES = ["user", "assistant", "system", "developer", "tool", "function"];
export const TEXT_PARTS = new Set(["text", "input_text", "output_text", "refusal"]);
const SKIPPED_PARTS = new Set([
  ...["image", "image_url", "input_image", "audio", "audio_url", "input_audio", "output_audio", "video", "video_url"],
  ...["input_video", "file", "input_file", "document", "blob", "uri"],
]);
export const CALL_PARTS = new Set(["tool_call", "tool_use", "function_call", "server_tool_call", "server_tool_use"]);
const RESULT_PARTS = new Set([
  "tool_call_response",
  "tool_result",
  "server_tool_call_response",
  "function_call_output",
]);
const UNSAID_PARTS = new Set(["reasoning", "thinking", "redacted_thinking"]);
const PART_KINDS = [TEXT_PARTS, SKIPPED_PARTS, CALL_PARTS, RESULT_PARTS, UNSAID_PARTS];

// The service's white space: unlike \s with the separators U+001C to U+001F and U+0085, and without U+FEFF.
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
// What only formats what stands around it, such as a joiner of emoji, shows nothing by itself.
const BLANK = new RegExp(`^(?:${SPACE}|[\\xad\\u061c\\u180e\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff])*$`);
const ENDS_IN_SPACE = new RegExp(`${SPACE}$`);
const BEGINS_WITH_SPACE = new RegExp(`^${SPACE}`);

/** Whether a text says nothing. @param {string} text */
export const isBlank = (text) => BLANK.test(text);

/**
 * The turns in a chatbot's messages, as the service reads them. Throws InvalidRequestError with the field at fault, such as
 * `messages.3.content.1.type`.
 * @param {any[]} messages @returns {import("./turnscore.js").MappedMessages}
 */
export function readMessages(messages) {
  return mapMessages(trimMessages(messages));
}

/** What is sent of messages: roles, texts, and the kinds of other parts. @param {any} messages @param {string} [field] */
export function trimMessages(messages, field = "messages") {
  if (typeof messages?.[Symbol.iterator] !== "function" || typeof messages === "string")
    refuse(field, "input should be a valid array");
  const trimmed = Array.from(messages, (message, place) => trim(message, `${field}.${place}`));
  if (!trimmed.length) refuse(field, "list should have at least 1 item after validation, not 0");
  return trimmed;
}

/** @param {any[]} messages that were trimmed */
export function mapMessages(messages) {
  const said = [];
  let goesOn = false;
  let endsSilent = false;
  for (const [index, message] of messages.entries()) {
    const text = textOf(message);
    if (message.role === "user" && !bringsResults(message)) {
      said.push({ index, speaker: "user", texts: [text] });
      goesOn = endsSilent = false;
    } else if (message.role !== "assistant") {
      goesOn ||= message.role === "tool" || message.role === "function" || bringsResults(message);
    } else if (isBlank(text)) {
      goesOn ||= Boolean(message.calls_tools);
      endsSilent = !message.calls_tools;
    } else {
      const last = said.at(-1);
      if (goesOn && last?.speaker === "system") {
        last.index = index;
        last.texts.push(text);
      } else said.push({ index, speaker: "system", texts: [text] });
      goesOn = Boolean(message.calls_tools);
      endsSilent = false;
    }
  }
  return {
    turns: said.map(({ speaker, texts }) => ({ speaker, text: join(texts) })),
    indices: said.map(({ index }) => index),
    skipped: countSkipped(messages),
    goesOn,
    endsSilent,
  };
}

/** Parts that were said and hold no text to score. @param {any[]} messages that were trimmed */
export function countSkipped(messages) {
  return messages.flatMap(({ parts = [] }) => parts).filter(({ type }) => SKIPPED_PARTS.has(type)).length;
}

/** Whether the message only hands results of tools back, as Anthropic's form does in the user's name. */
function bringsResults({ parts = [] }) {
  return parts.length > 0 && parts.every(({ type }) => RESULT_PARTS.has(type));
}

function textOf({ content, parts = [] }) {
  return content ?? join(parts.map(({ text }) => text ?? ""));
}

/** The texts in one: a space between two that would grow together, nothing where white space stands already. */
function join(texts) {
  let joined = "";
  for (const text of texts) {
    const isGap = joined && text && !ENDS_IN_SPACE.test(joined) && !BEGINS_WITH_SPACE.test(text);
    joined += isGap ? ` ${text}` : text;
  }
  return joined;
}

function trim(message, place) {
  if (!isObject(message)) refuse(place, "input should be an object");
  const { role } = message;
  if (role == null) refuse(`${place}.role`, "field required");
  if (!ROLES.includes(role)) refuse(`${place}.role`, `must be one of ${ROLES.join(", ")}`);
  if (role !== "user" && role !== "assistant") return { role };
  if (typeof (message.calls_tools ?? false) !== "boolean" || message.calls_tools === null)
    refuse(`${place}.calls_tools`, "input should be a valid boolean");
  const calls = ["tool_calls", "function_call", "calls_tools"].some((name) => holds(message[name]));
  const said = trimContent(message, place, role === "user" || !calls);
  const callsTools = calls || said.parts?.some(({ type }) => CALL_PARTS.has(type));
  return { role, ...said, ...(callsTools ? { calls_tools: true } : {}) };
}

function trimContent(message, place, isRequired) {
  const { content, parts, refusal } = message;
  const [field, listed] = Array.isArray(content) ? ["content", content] : ["parts", parts];
  if (content != null && holds(parts)) refuse(`${place}.parts`, "must not be given together with `content`");
  if (listed != null && !Array.isArray(listed)) refuse(`${place}.${field}`, "input should be a valid array");
  const read = (listed ?? []).map((part, index) => trimPart(part, `${place}.${field}.${index}`));
  if (typeof content === "string") checkText(content, `${place}.content`);
  else if (content != null && !Array.isArray(content))
    refuse(`${place}.content`, "input should be a string or a list of parts");
  if (refusal != null) checkText(refusal, `${place}.refusal`);
  if (refusal) read.push({ type: "refusal", text: refusal });
  if (holds(message.audio)) read.push({ type: "audio" });
  if (read.length)
    return { parts: [...(content && !Array.isArray(content) ? [{ type: "text", text: content }] : []), ...read] };
  if (content === undefined && listed == null && isRequired) refuse(`${place}.content`, "field required");
  return typeof content === "string" ? { content } : isRequired ? { content: "" } : {};
}

function trimPart(part, place) {
  if (!isObject(part)) refuse(place, "input should be an object");
  const { type } = part;
  if (type == null) refuse(`${place}.type`, "field required");
  if (!PART_KINDS.some((kind) => kind.has(type)))
    refuse(`${place}.type`, "is no type of part; docs/api.md lists those that are");
  if (!TEXT_PARTS.has(type)) return { type };
  const name = ["text", "content", "refusal"].find((each) => part[each] != null);
  if (!name) refuse(`${place}.text`, "field required");
  checkText(part[name], `${place}.${name}`);
  return { type, text: part[name] };
}

function checkText(text, field) {
  if (typeof text !== "string") refuse(field, "input should be a valid string");
  if (text.includes("\0")) refuse(field, "must not contain a NUL character");
  if (/\p{Surrogate}/u.test(text)) refuse(field, "must not contain a lone surrogate");
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Whether there is something in a field: an empty list of calls is none. */
function holds(value) {
  return value !== null && typeof value === "object" ? Object.keys(value).length > 0 : Boolean(value);
}

function refuse(field, message) {
  throw new InvalidRequestError({ message, field });
}
