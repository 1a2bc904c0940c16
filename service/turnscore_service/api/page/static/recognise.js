// Recognising: what somebody pasted becomes dialogues. Pure; asks nobody and changes nothing.

import { fromMessages, isMessage, strangeRole } from "./messages.js";

const USER = /^(user|human|customer|visitor|client|person|me|q)$/i;
const SYSTEM = /^(bot|chatbot|system|assistant|ai|agent|model|a)$/i;
const LABEL = /^\s*\**([\p{L}][\p{L}\p{N} ._-]{0,30}?)\**\s*[::]\**(?!\/\/)\s*(.*)$/u;

class Unreadable extends Error {}

/**
 * The dialogues in a text: `{form, dialogues: [{turns, skipped}]}`, or `{problem}`, a sentence; null where there is no text.
 * `skipped` counts what is no turn of either side: prompts, tool calls, images, turns without text.
 */
export function recognise(text) {
  if (!text.trim()) return null;
  try {
    const found = /^\s*[[{]/.test(text) ? fromJson(text) : fromLabelled(text);
    const dialogues = found.dialogues.map(withoutBlanks);
    if (!dialogues.some(({ turns }) => turns.some((turn) => turn.speaker === "system"))) {
      throw new Unreadable("There is no turn of the chatbot in it.");
    }
    return { form: found.form, dialogues };
  } catch (error) {
    if (error instanceof Unreadable) return { problem: error.message };
    throw error;
  }
}

/** The turns as labelled text, which `recognise` reads again. */
export function asText(turns) {
  return turns.map((turn) => `${turn.speaker === "user" ? "User" : "Bot"}: ${turn.text}`).join("\n");
}

function withoutBlanks({ turns, skipped }) {
  return { turns: turns.filter((turn) => turn.text.trim()), skipped };
}

function fromJson(text) {
  const whole = parsed(text);
  if (whole !== undefined) return fromValue(whole);
  const lines = text
    .split("\n")
    .map((line, place) => [line, place + 1])
    .filter(([line]) => line.trim());
  const values = lines.map(([line, number]) => {
    const value = parsed(line);
    if (value === undefined)
      throw new Unreadable(
        lines.length > 1 && parsed(lines[0][0]) !== undefined
          ? `Line ${number} is not JSON.`
          : "This begins like JSON, and is not JSON.",
      );
    return value;
  });
  const found = fromValue(values);
  return { ...found, form: `JSON lines (${found.form})` };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function fromValue(value) {
  if (Array.isArray(value)) {
    if (value.length && value.every(isMessage)) {
      const strange = strangeRole(value);
      if (strange !== null) throw new Unreadable(`“${strange.slice(0, 40)}” is no role of a chat.`);
      return { form: "OpenAI messages", dialogues: [fromMessages(value)] };
    }
    if (value.length && value.every(isTurn))
      return { form: "turns", dialogues: [{ turns: value.map(copyTurn), skipped: 0 }] };
    if (value.length && value.every((each) => each && typeof each === "object" && !Array.isArray(each))) {
      const each = value.map(fromValue);
      return { form: each[0].form, dialogues: each.flatMap((found) => found.dialogues) };
    }
  } else if (value && typeof value === "object") {
    if (Array.isArray(value.messages)) {
      const answers = Array.isArray(value.choices) ? value.choices.slice(0, 1).map((choice) => choice?.message) : [];
      return fromValue([...value.messages, ...answers]);
    }
    if (Array.isArray(value.turns)) return fromValue(value.turns);
    if (typeof value.response === "string")
      return fromValue([...(value.context ?? []), { speaker: "system", text: value.response }]);
    if (isMessage(value) || isTurn(value)) return fromValue([value]);
  }
  throw new Unreadable("This JSON holds neither `messages`, nor `turns`, nor `context` and `response`.");
}

function isTurn(each) {
  return (each?.speaker === "user" || each?.speaker === "system") && typeof each.text === "string";
}

function copyTurn({ speaker, text }) {
  return { speaker, text };
}

function fromLabelled(text) {
  const lines = text
    .split(/\r?\n/)
    .filter((line) => line.trim())
    .map((line) => ({ line, label: LABEL.exec(line) }));
  const names = [...new Set(lines.flatMap(({ label }) => (label ? [label[1].toLowerCase()] : [])))];
  const speakerOf = chooseSpeakers(names);
  const turns = [];
  for (const { line, label } of lines) {
    const speaker = label && speakerOf(label[1].toLowerCase());
    if (speaker) turns.push({ speaker, text: label[2] });
    else if (turns.length) turns.at(-1).text += `\n${line}`;
    else throw new Unreadable("Begin each turn with who says it, such as “User:” and “Bot:”, or paste JSON.");
  }
  const known = names.some((name) => USER.test(name) || SYSTEM.test(name));
  return {
    form: known ? "labelled text" : `labelled text, ${names[0]} as the user`,
    dialogues: [{ turns: turns.map(trimmed), skipped: 0 }],
  };
}

function trimmed({ speaker, text }) {
  return { speaker, text: text.trim() };
}

/** Known labels win; else two names are two speakers, the user first. */
function chooseSpeakers(names) {
  const ofKnown = (name) => (USER.test(name) ? "user" : SYSTEM.test(name) ? "system" : null);
  if (names.some(ofKnown)) return ofKnown;
  if (names.length === 2) return (name) => (name === names[0] ? "user" : "system");
  return () => null;
}
