// The second view of what is said: two conversations side by side, and by how much one goes better.
import { announce, el } from "./dom.js";
import { PAIR } from "./examples.js";
import { Judged } from "./judged.js";
import { scorersFor } from "./paste.js";
import { quietly } from "./read-view.js";
import { asked, client, models } from "./service.js";
import { chartsOf, focusHeading, signed } from "./summary.js";
import { tableOf } from "./table.js";
import { plain, whole } from "./words.js";

export class CompareView {
  #root;
  #opening;
  #result;
  #pastes;
  #judged = [];
  #asking = 0;

  constructor(root) {
    this.#root = root;
    this.#opening = root.querySelector(".opening");
    this.#result = root.querySelector(".result");
    this.#pastes = [...root.querySelectorAll("ts-paste")];
    const go = () => this.#pastes.every((paste) => paste.check()) && this.#judge().catch(quietly);
    root.querySelector(".judge").addEventListener("click", go);
    root.querySelector(".example").addEventListener("click", () => {
      this.#pastes.forEach((paste, place) => (paste.value = PAIR[place]));
      go();
    });
    for (const paste of this.#pastes) paste.addEventListener("go", go);
    root.querySelector(".again").addEventListener("click", () => this.#startOver());
    root.querySelector("ts-scorers").addEventListener("change", () => this.#judge().catch(quietly));
    [...root.querySelectorAll(".side")].forEach((side, place) => side.append(tableOf(() => this.#judged[place])));
    this.#link();
  }

  #link() {
    const charts = this.#root.querySelector("ts-trajectories");
    const conversations = [...this.#root.querySelectorAll("ts-conversation")];
    const choose = (reply, chosen) => {
      conversations.forEach((conversation, place) => {
        const index = this.#judged[place].judgedPlaces[reply];
        if (conversation !== chosen && index !== undefined) conversation.select(index);
      });
    };
    charts.addEventListener("turnselect", ({ detail }) => choose(detail.index, null));
    conversations.forEach((conversation, place) => {
      conversation.addEventListener("turnselect", ({ detail }) => {
        const reply = Math.max(
          0,
          this.#judged[place].judgedPlaces.findLastIndex((index) => index <= detail.index),
        );
        charts.select(reply);
        choose(reply, conversation);
      });
    });
  }

  async #judge() {
    const asking = (this.#asking += 1);
    announce("Scoring…", { isSeen: true });
    const requestOf = async ({ turns }) => ({ turns, scorers: await scorersFor(turns) });
    const requests = await Promise.all(this.#pastes.map(requestOf));
    const replies = await asked(() => Promise.all(requests.map((request) => client.scoreDialogue(request))));
    if (asking !== this.#asking) return;
    const isFirst = this.#result.hidden;
    this.#judged = requests.map((request, place) => new Judged(request, replies[place], models));
    this.#opening.hidden = true;
    this.#result.hidden = false;
    const told = verdictOf(this.#judged);
    this.#result.querySelector(".summary").textContent = told;
    this.#result.querySelector(".means").replaceChildren(meansOf(this.#judged));
    const [a, b] = this.#judged;
    const replyCount = Math.max(a.judgedPlaces.length, b.judgedPlaces.length);
    const charts = chartsOf({ title: "A", judged: a }, { title: "B", judged: b });
    this.#result.querySelector("ts-trajectories").show(charts, [...Array(replyCount).keys()]);
    for (const each of this.#result.querySelectorAll(".numbers")) each.open = false;
    if (isFirst) focusHeading(this.#result);
    await Promise.all(
      [...this.#result.querySelectorAll("ts-conversation")].map((each, place) => each.show(this.#judged[place])),
    );
    announce(`Scored. ${told}`);
  }

  #startOver() {
    this.#asking += 1;
    this.#result.hidden = true;
    this.#opening.hidden = false;
    this.#pastes[0].focus();
  }
}

function meanOf(judged, name) {
  return judged.reply.dialogue[name]?.percentile_mean ?? null;
}

function differenceOf([a, b], name) {
  const [left, right] = [meanOf(a, name), meanOf(b, name)];
  return left === null || right === null ? null : Math.round(right) - Math.round(left); // of the numbers as they are shown
}

function verdictOf(both) {
  const [{ main }] = both;
  const difference = differenceOf(both, main);
  if (difference === null) return "";
  const means = both.map((judged) => whole(meanOf(judged, main)));
  if (!difference) return `By ${plain(main)} the two go alike (mean percentiles ${means.join(" and ")}).`;
  const [better, worse] = difference > 0 ? ["B", "A"] : ["A", "B"];
  const [high, low] = difference > 0 ? [means[1], means[0]] : means;
  return `By ${plain(main)} conversation ${better} goes better: mean percentile ${high}, ${worse} ${low}. Two conversations say little about two systems.`;
}

function meansOf(both) {
  const head = ["Scorer", "A, mean", "B, mean", "B − A", "A, lowest", "B, lowest"];
  const rows = both[0].scorers.map((name) => {
    const lowest = both.map((judged) => whole(judged.reply.dialogue[name]?.percentile_min ?? null));
    const cells = [...both.map((judged) => whole(meanOf(judged, name))), signed(differenceOf(both, name)), ...lowest];
    return el(
      "tr",
      {},
      el("th", { scope: "row", text: plain(name) }),
      ...cells.map((text) => el("td", { class: "number", text })),
    );
  });
  const lows = both.map((judged) => `${judged.lowPlaces.length} of ${judged.judgedPlaces.length}`);
  const low = el(
    "tr",
    {},
    el("th", { scope: "row", text: "turns called low" }),
    ...[...lows, "", "", ""].map((text) => el("td", { class: "number", text })),
  );
  const caption = el("caption", { text: "Percentiles: how many of 100 reference turns score lower." });
  return el(
    "table",
    {},
    caption,
    el(
      "thead",
      {},
      el("tr", {}, ...head.map((text) => el("th", { scope: "col", class: text === "Scorer" ? null : "number", text }))),
    ),
    el("tbody", {}, ...rows, low),
  );
}
