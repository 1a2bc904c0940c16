// The summary of a scored dialogue, in a sentence; and what may be taken away from it.
import { announce, button, copyOf, download } from "./dom.js";
import { asCsv, asCurl, asJson, asPython } from "./snippets.js";
import { client } from "./service.js";
import { whole } from "./words.js";

/** How it went: how many turns are low, the mean and the lowest. */
export function summaryOf(judged) {
  const places = judged.judgedPlaces;
  const low = judged.lowPlaces.length;
  const aggregate = judged.reply.dialogue?.[judged.main];
  const hasLabels = places.some((index) => judged.scoreOf(index)?.label);
  const told =
    places.length === 1
      ? `The turn is ${low ? "" : "not "}low. `
      : `${low || "None"} of ${places.length} turns ${low > 1 ? "are" : "is"} low. `;
  const labels = hasLabels ? told : "";
  const lowest = judged.lowestPlace;
  if (lowest === null) return labels;
  const mean = aggregate?.percentile_mean ?? null;
  const average =
    mean === null ? "" : `The chatbot’s mean percentile is ${whole(mean)}; `;
  return `${labels}${average}${average ? "the" : "The"} lowest is turn ${lowest + 1}, with ${whole(judged.scoreOf(lowest).percentile)}.`;
}

/** Buttons for what a program or a spreadsheet can go on with. `judged()` returns what to take. */
export function takings(judged) {
  return [
    button("curl", () => showCode("As a command", asCurl(client.url.href, judged().request, client.hasApiKey)), {
      class: "quiet",
      title: "Copy as curl",
    }),
    button("Python", () => showCode("As a program", asPython(client.url.href, judged().request)), {
      class: "quiet",
      title: "Copy as Python",
    }),
    button("JSON", () => download("turnscore.json", "application/json", asJson(judged())), {
      class: "quiet",
      title: "Download JSON",
    }),
    button("CSV", () => download("turnscore.csv", "text/csv", asCsv(judged())), {
      class: "quiet",
      title: "Download CSV",
    }),
  ];
}

function showCode(title, code) {
  const dialog = copyOf("code").firstElementChild;
  dialog.querySelector("h2").textContent = title;
  const field = dialog.querySelector("textarea");
  field.value = code;
  const copy = async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(code);
      announce("Copied.", { isSeen: true });
    } catch {
      announce("Press Ctrl and C: the text is selected.", { isSeen: true }); // an address without TLS has no clipboard
    }
    dialog.close();
  };
  dialog.querySelector(".copy").addEventListener("click", copy);
  dialog.querySelector(".quiet").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  field.setSelectionRange(0, 0);
  field.scrollTop = 0;
}

/** The charts of judged dialogues, for <ts-trajectories>. */
export function chartsOf(...all) {
  const names = all[0].judged.scorers;
  return names.map((name) => ({
    name,
    threshold: all[0].judged.thresholdOf(name),
    paths: all.map(({ title, judged }) => ({ title, points: judged.pathOf(name) })),
  }));
}

/** A mean or a difference as it is shown. */
export function signed(number) {
  if (number === null) return "–";
  const rounded = Math.round(number);
  return rounded > 0 ? `+${rounded}` : String(rounded).replace("-", "−");
}

/** A heading that gets the focus when what it stands over appears. */
export function focusHeading(root) {
  root.querySelector("h1")?.focus({ preventScroll: false });
}
