// Messages: OpenAI's chat form becomes turns, by the service's own rules (docs/api.md). A test compares the two.

const ROLES = new Set(["user", "assistant", "system", "developer", "tool", "function"]);
const TOOL_ROLES = new Set(["tool", "function"]);
const TEXTS = new Set(["text", "input_text", "output_text", "refusal"]);
const CALLS = new Set(["tool_call", "tool_use", "function_call", "server_tool_call", "server_tool_use"]);
const RESULTS = new Set(["tool_call_response", "tool_result", "server_tool_call_response", "function_call_output"]);

export function isMessage(each) {
  return typeof each?.role === "string";
}

/** The role of the first message that has none of a chat's; null where all have one. */
export function strangeRole(messages) {
  return messages.find((message) => !ROLES.has(message.role))?.role ?? null;
}

/** The turns, and how much is no turn of either side: prompts, what tools say, images, messages without text. */
export function fromMessages(messages) {
  const said = [];
  let skipped = 0;
  let goesOn = false; // whether tools are at work: what the assistant says after them belongs to the same turn
  for (const message of messages) {
    const { texts, types } = read(message);
    const text = joinTexts(texts);
    const isResult = types.length > 0 && types.every((type) => RESULTS.has(type));
    const callsTools =
      Boolean(message.tool_calls?.length || message.function_call || message.calls_tools) ||
      types.some((type) => CALLS.has(type));
    skipped += types.filter((type) => !TEXTS.has(type)).length + (text.trim() ? 0 : 1);
    if (message.role === "user" && !isResult) {
      said.push({ speaker: "user", texts: [text] });
      goesOn = false;
    } else if (message.role !== "assistant") {
      goesOn ||= TOOL_ROLES.has(message.role) || isResult;
    } else if (text.trim()) {
      if (goesOn && said.at(-1)?.speaker === "system") said.at(-1).texts.push(text);
      else said.push({ speaker: "system", texts: [text] });
      goesOn = callsTools;
    } else {
      goesOn ||= callsTools;
    }
  }
  return { turns: said.map(({ speaker, texts }) => ({ speaker, text: joinTexts(texts) })), skipped };
}

/** The texts of a message that one of the two says, and the types of its parts. */
function read({ role, content, parts, refusal, audio }) {
  if (role !== "user" && role !== "assistant") return { texts: [], types: [] };
  const listed = (Array.isArray(content) ? content : Array.isArray(parts) ? parts : []).filter(
    (part) => typeof part?.type === "string",
  );
  const texts = listed.filter((part) => TEXTS.has(part.type)).map((part) => part.text ?? part.content ?? part.refusal);
  const whole = typeof content === "string" ? [content] : [];
  const types = [...listed.map((part) => part.type), ...(audio ? ["audio"] : [])];
  return { texts: [...whole, ...texts, refusal].filter((text) => typeof text === "string"), types };
}

/** In one, with a space between two that would grow together. */
function joinTexts(texts) {
  return texts
    .filter(Boolean)
    .reduce(
      (joined, text) => (joined && !/\s$/.test(joined) && !/^\s/.test(text) ? `${joined} ${text}` : joined + text),
      "",
    );
}
