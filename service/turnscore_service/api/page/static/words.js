// Words: what scorers, heads, warnings and errors mean, for somebody who reads them here for the first time.

export const SCORERS = {
  quality: "Would people call it good?",
  engagement: "Is it engaging for the other side?",
  sentiment_stop: "Will the user be pleased, and go on?",
  relevance: "Does it fit what was said before?",
  usr: "Is it likely, and does it fit?",
  fed: "Eighteen qualities of a language model",
  reaction: "How does the user take it?",
};

/** What a user's turn shows, as a badge. */
const SIGNALS = {
  frustrated: "frustrated",
  corrects: "corrects the chatbot",
  repeats_request: "asks again",
  does_not_understand: "does not understand",
  wants_out: "wants to stop",
  asks_for_a_person: "asks for a person",
  abuse: "abusive",
  pleased: "pleased",
  engages: "engaged",
  disengages: "loses interest",
};
const GOOD_SIGNALS = ["pleased", "engages"];

/** Of each head of `quality`: what a very low one says of the turn, and a rather low one. */
const HEADS = {
  relevant: ["does not answer what was said", "only half answers what was said"],
  fluent: ["is hardly well-formed language", "reads a little oddly"],
  engaging: ["gives nothing to go on with", "gives little to go on with"],
  sentiment: ["is likely to sour the mood", "may sour the mood"],
  continues: ["is likely to end the talk", "may end the talk"],
  overall: ["is of a kind that people rate low", "is of a kind that people rate rather low"],
};
const WARNINGS = {
  context_not_read: "The turn before was not read whole.",
  response_cut: "The end of the reply was not read.",
  repeats_user: "It repeats the user.",
  repeats_itself: "It repeats itself.",
  not_in_language: "It is hardly English.",
  stuck: "The conversation goes in circles.",
};
const SUFFIX = "_percentile";
const VERY_LOW = 10; // "the lowest tenth deserves a look" (docs/reading-the-scores.md)

/** "sentiment_stop" as people read it. */
export function plain(name) {
  return name.replaceAll("_", " ");
}

/** A percentile as it is shown. */
export function whole(percentile) {
  return percentile === null || percentile === undefined ? "–" : String(Math.round(percentile));
}

/** A score's parts: `{name, value, percentile}` each, the lowest percentile first. */
export function partsOf(score) {
  const names = Object.keys(score.details).filter(
    (name) => !(name.endsWith(SUFFIX) && name.slice(0, -SUFFIX.length) in score.details),
  );
  const parts = names.map((name) => ({
    name,
    value: score.details[name],
    percentile: score.details[name + SUFFIX] ?? null,
  }));
  return parts.sort((a, b) => (a.percentile ?? 101) - (b.percentile ?? 101));
}

/** The reasons that the service gives for the value, as a sentence; empty where it gives none. */
export function reasonOf(score) {
  const told = score.reasons
    .filter((name) => name in HEADS)
    .map((name) => {
      const percentile = score.details[name + SUFFIX];
      return `${HEADS[name][percentile < VERY_LOW ? 0 : 1]} (${plain(name)}\u00a0${whole(percentile)})`;
    });
  if (!told.length) return "";
  return `Weak: it ${told.join(", and ")}.`;
}

/** The signals of a scored turn of the user: `{text, isGood}` each. */
export function signalsOf({ scores }) {
  const names = Object.values(scores).flatMap(({ signals }) => signals ?? []);
  return names.map((name) => ({ text: SIGNALS[name] ?? plain(name), isGood: GOOD_SIGNALS.includes(name) }));
}

/** Its warnings, as sentences. */
export function warningsOf(score) {
  return score.warnings.map((warning) => WARNINGS[warning] ?? `${plain(warning)}.`);
}

/** A score in one phrase, for those who hear it. */
export function spoken(name, score) {
  if (!score) return `${plain(name)}: no score`;
  return `${plain(name)}: percentile ${whole(score.percentile)}${score.label ? `, ${score.label}` : ""}`;
}

/** "1 turn", "2 turns". */
export function counted(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

/** What went wrong, for the reader; the place of a field becomes a turn. */
export function explain(error) {
  const place = /^(?:turns|context)\.(\d+)/.exec(error.field ?? "");
  const where = place
    ? `Turn ${Number(place[1]) + 1}: `
    : error.field && error.field !== "body"
      ? `${error.field}: `
      : "";
  const sentence = `${where}${error.message}`;
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}
