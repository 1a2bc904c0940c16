// Details of one turn: every scorer's number and parts, how much was read, the model and the times.
import { badge, bar, el } from "./dom.js";
import { SCORERS, partsOf, plain, warningsOf, whole } from "./words.js";

/** The panel below a turn. */
export function detailsOf(judged, index) {
  const turn = judged.byIndex.get(index);
  const scorers = Object.entries(turn.scores).map(([name, score]) => scorerOf(judged, name, score));
  const times = Object.entries(turn.timing_ms ?? judged.timing).map(([name, ms]) => `${name} ${ms.toFixed(1)}`);
  const timing = el("p", { class: "fine", text: `Milliseconds of the request: ${times.join(", ")}.` });
  return el("div", { class: "panel details" }, el("div", { class: "scorers" }, ...scorers), timing);
}

function scorerOf(judged, name, score) {
  const parts = partsOf(score);
  const title = el(
    "h3",
    {},
    plain(name),
    " ",
    el("span", { class: "number", text: whole(score.percentile) }),
    " ",
    badge(score.label),
  );
  return el(
    "section",
    {},
    title,
    el("p", { class: "fine", text: SCORERS[name] ?? "" }),
    score.stand_in
      ? el("p", { class: "fine", text: "Its model only stands in for a better one: do not act on its numbers." })
      : null,
    parts.length ? el("ul", { class: "parts" }, ...parts.map(partOf)) : null,
    factsOf(judged, name, score),
  );
}

function partOf({ name, value, percentile }) {
  const number = percentile === null ? value.toFixed(2) : whole(percentile);
  return el(
    "li",
    {},
    el("span", { class: "name", text: plain(name) }),
    percentile === null ? el("span") : bar(percentile, { isLow: percentile < 10 }),
    el("span", { class: "number", text: number }),
  );
}

function factsOf(judged, name, score) {
  const { used, dropped, truncated } = score.tokens;
  const cut = truncated ? `at least ${dropped} left out` : "none left out";
  const value = name === "quality" ? `${Math.round(100 * score.value)} % would call it good` : score.value.toFixed(3);
  const facts = [
    ["value", value],
    ["tokens", `${used} read, ${cut}`],
    ["model", `${score.model}, ${judged.models.get(name)?.graph ?? "?"}${score.cached ? ", from the cache" : ""}`],
  ];
  for (const warning of warningsOf(score)) facts.push(["warning", warning]);
  return el(
    "dl",
    { class: "facts" },
    ...facts.map(([term, fact]) => el("div", {}, el("dt", { text: term }), el("dd", { text: fact }))),
  );
}
