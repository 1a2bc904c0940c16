// Messages: what somebody pasted in OpenAI's chat form, read less strictly than the client reads it, which maps it to turns.
import { CALL_PARTS, ROLES, TEXT_PARTS, mapMessages } from "./turnscore/messages.js";

export function isMessage(each) {
  return typeof each?.role === "string";
}

/** The role of the first message that has none of a chat's; null where all have one. */
export function strangeRole(messages) {
  return messages.find((message) => !ROLES.includes(message.role))?.role ?? null;
}

/** The turns, and how much is no turn of either side: prompts, what tools say, images, messages without text. */
export function fromMessages(messages) {
  const trimmed = messages.map(trim);
  const unsaid = trimmed.flatMap(({ parts = [] }) => parts).filter(({ type }) => !TEXT_PARTS.has(type)).length;
  const silent = trimmed.filter(({ parts = [] }) => !parts.some(({ text }) => text?.trim())).length;
  return { turns: mapMessages(trimmed).turns, skipped: unsaid + silent };
}

/** What the client maps of a message: parts of a type that nobody knows are left as they are. */
function trim({ role, content, parts, refusal, audio, tool_calls, function_call, calls_tools }) {
  if (role !== "user" && role !== "assistant") return { role };
  const listed = (Array.isArray(content) ? content : Array.isArray(parts) ? parts : []).filter(
    (part) => typeof part?.type === "string",
  );
  const read = [
    ...asPart(content),
    ...listed.map((part) => ({ type: part.type, text: textOf(part) })),
    ...asPart(refusal),
    ...(audio ? [{ type: "audio" }] : []),
  ];
  const callsTools = Boolean(tool_calls?.length || function_call || calls_tools);
  return { role, parts: read, calls_tools: callsTools || listed.some(({ type }) => CALL_PARTS.has(type)) };
}

function asPart(text) {
  return text && typeof text === "string" ? [{ type: "text", text }] : [];
}

function textOf(part) {
  const text = TEXT_PARTS.has(part.type) ? (part.text ?? part.content ?? part.refusal) : undefined;
  return typeof text === "string" ? text : undefined;
}
