// Other replies to one turn: written or pasted, one a line, ranked side by side by the service, best first.
import { badge, bar, button, el } from "./dom.js";
import { asked, client, limits, shown } from "./service.js";
import { percentileOf } from "./judged.js";
import { counted, reasonOf, warningsOf, whole } from "./words.js";

/** Fills a panel below a turn. `use(text)` puts a reply in the turn's place. */
export function offerRanking(host, judged, index, use) {
  const field = el("textarea", { rows: 4, placeholder: "One reply a line" });
  const results = el("ol", { class: "ranked" });
  const rank = async () => {
    const said = judged.turns[index].text;
    const candidates = [...new Set([said, ...field.value.split("\n").map((line) => line.trim())])].filter(Boolean);
    if (candidates.length < 2) return field.focus();
    if (limits && candidates.length > limits.max_candidates) {
      return void shown({
        code: "too_large",
        message: `at most ${counted(limits.max_candidates, "reply").replace("replys", "replies")} are ranked at once`,
      });
    }
    pressed.disabled = true;
    try {
      const request = { context: judged.turns.slice(0, index), candidates, scorers: [judged.main] };
      const reply = await asked(() => client.rank(request));
      results.replaceChildren(
        ...reply.candidates.map((each) => resultOf(each, candidates[each.index], judged, said, use)),
      );
    } catch (error) {
      shown(error);
    } finally {
      pressed.disabled = false;
    }
  };
  const pressed = button("Rank them with what was said", rank);
  field.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && rank());
  host.append(
    el("label", {}, "Other replies to the same conversation", field),
    el("p", { class: "buttons" }, pressed),
    results,
  );
}

function resultOf({ scores, combined, errors }, text, judged, said, use) {
  const score = scores[judged.main];
  const isSaid = text === said;
  const failed = Object.values(errors).map((error) =>
    el("p", { class: "why failed", text: `No score: ${error.message}.` }),
  );
  return el(
    "li",
    { class: isSaid ? "as-said" : null },
    el(
      "p",
      { class: "verdict" },
      el("span", { class: "score" }, el("strong", { class: "number", text: whole(combined) })),
      score ? bar(percentileOf(score), { threshold: judged.thresholdOf(), isLow: score.label === "low" }) : null,
      badge(score?.label),
    ),
    el("p", { class: "said", dir: "auto", text }),
    score ? el("p", { class: "why", text: [reasonOf(score), ...warningsOf(score)].join(" ") }) : null,
    ...failed,
    isSaid
      ? el("p", { class: "fine", text: "What was said." })
      : el(
          "p",
          {},
          button("Use this reply", () => use(text), { class: "quiet" }),
        ),
  );
}
