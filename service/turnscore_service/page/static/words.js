// Words: what scorers, heads, warnings and errors mean, for somebody who reads them here for the first time.

export const SCORERS = {
  quality: "Would people call it good?",
  engagement: "Is it engaging for the other side?",
  sentiment_stop: "Will the user be pleased, and go on?",
  relevance: "Does it fit what was said before?",
  usr: "Is it likely, and does it fit?",
  fed: "Eighteen qualities of a language model",
};

/** Of each head of `quality`: what a very low one says of the turn, and a rather low one. */
const HEADS = {
  relevant: ["does not answer what was said", "only half answers what was said"],
  sound: ["is hardly sound language", "reads a little oddly"],
  engaging: ["gives nothing to go on with", "gives little to go on with"],
  sentiment: ["is likely to sour the mood", "may sour the mood"],
  goes_on: ["is likely to end the talk", "may end the talk"],
  overall: ["is of a kind that people rate low", "is of a kind that people rate rather low"],
};
const WARNINGS = {
  context_not_read: "The turn before was not read whole.",
  response_cut: "The end of the reply was not read.",
  repeats_user: "It repeats the user.",
  repeats_itself: "It repeats itself.",
  not_in_language: "It is hardly English.",
};
const SUFFIX = "_percentile";
const VERY_LOW = 10; // "the lowest tenth deserves a look" (docs/reading-the-scores.md)
const LOW = 25; // a head below it is a weak side of a turn that is itself in the lower half. Chosen.
const MOST_NAMED = 2;

/** "goes_on" as people read it. */
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

/** The turn's weak sides, or its weakest one, as a sentence; empty where the score has no heads. */
export function reasonOf(score) {
  const heads = partsOf(score).filter((part) => part.name in HEADS && part.percentile !== null);
  if (!heads.length) return "";
  const low = (score.percentile ?? 0) < 50 ? heads.filter((part) => part.percentile < LOW) : [];
  const reasons = low.filter((part) => part.name !== "overall"); // which is no reason of its own beside others
  const named = (reasons.length ? reasons : low).slice(0, MOST_NAMED);
  if (!named.length) return `Weakest side: ${plain(heads[0].name)} (${whole(heads[0].percentile)}).`;
  const told = named.map(
    ({ name, percentile }) =>
      `${HEADS[name][percentile < VERY_LOW ? 0 : 1]} (${plain(name)}\u00a0${whole(percentile)})`,
  );
  return `Weak: it ${told.join(", and ")}.`;
}

/** Its warnings, as sentences. */
export function warningsOf(score) {
  return score.warnings.map((warning) => WARNINGS[warning] ?? `${plain(warning)}.`);
}

/** A score in one phrase, for those who hear it. */
export function spoken(name, score) {
  if (!score) return `${plain(name)}: no score`;
  return `${plain(name)} ${whole(score.percentile)} of 100${score.label ? `, ${score.label}` : ""}`;
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
