// The numbers as a real table: for screen readers, and for whoever would rather read numbers.
import { el, inSlices } from "./dom.js";
import { plain, whole } from "./words.js";

const TEXT = 90; // characters of a turn that the table repeats

/** A disclosure with the table, made when it is opened. `judged()` returns what to show. */
export function tableOf(judged) {
  const host = el("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "All numbers" });
  const details = el("details", { class: "numbers" }, el("summary", { text: "All numbers as a table" }), host);
  details.addEventListener("toggle", () => {
    host.replaceChildren();
    if (details.open) host.append(makeTable(judged(), () => details.open && host.isConnected));
  });
  return details;
}

function makeTable(judged, isWanted) {
  const head = ["Turn", "The chatbot said", ...judged.scorers.map(plain), "Label"];
  const body = el("tbody");
  const caption = el("caption", {
    text: "Percentiles of the chatbot's turns: how many of 100 reference turns score lower.",
  });
  const table = el(
    "table",
    {},
    caption,
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ...head.map((text, place) =>
          el("th", { scope: "col", class: place > 1 && place < head.length - 1 ? "number" : null, text }),
        ),
      ),
    ),
    body,
  );
  inSlices(judged.judgedPlaces, (index) => body.append(rowOf(judged, index)), isWanted);
  return table;
}

function rowOf(judged, index) {
  const { text } = judged.turns[index];
  const numbers = judged.scorers.map((name) =>
    el("td", { class: "number", text: whole(judged.scoreOf(index, name)?.percentile) }),
  );
  const said = el("td", { dir: "auto", text: text.length > TEXT ? `${text.slice(0, TEXT)}…` : text });
  return el(
    "tr",
    {},
    el("th", { scope: "row", text: index + 1 }),
    said,
    ...numbers,
    el("td", { text: judged.scoreOf(index)?.label ?? "–" }),
  );
}
