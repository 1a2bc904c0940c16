// The first view: a conversation is pasted, scored, read turn by turn, changed, and scored again.
import { offerRanking } from "./candidates.js";
import { announce, el } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { Judged } from "./judged.js";
import { scorersFor } from "./paste.js";
import { asText } from "./recognise.js";
import { GivenUp, asked, client, models } from "./service.js";
import { chartsOf, focusHeading, summaryOf, takings } from "./summary.js";
import { tableOf } from "./table.js";
import { counted } from "./words.js";

export class ReadView {
  #root;
  #opening;
  #result;
  #paste;
  #judged = null;
  #asking = 0;

  constructor(root) {
    this.#root = root;
    this.#opening = root.querySelector(".opening");
    this.#result = root.querySelector(".result");
    this.#paste = root.querySelector("ts-paste");
    const go = () => this.#paste.check() && this.judge(this.#paste.turns).catch(quietly);
    root.querySelector(".judge").addEventListener("click", go);
    this.#paste.addEventListener("go", go);
    const offered = EXAMPLES.map((example) => el("li", {}, this.#exampleOf(example)));
    root.querySelector(".examples").append(...offered);
    root.querySelector(".again").addEventListener("click", () => this.#startOver());
    root.querySelector(".takings").append(...takings(() => this.#judged));
    this.#result.append(tableOf(() => this.#judged));
    this.#link();
  }

  /** Judges turns that come from another view, or from this one's box. */
  async judge(turns, before = null) {
    const asking = (this.#asking += 1);
    this.#setBusy(true);
    try {
      const request = { turns, scorers: await scorersFor(turns) };
      const reply = await asked(() => client.scoreDialogue(request));
      if (asking !== this.#asking) return;
      await this.#show(new Judged(request, reply, models, before), before !== null);
    } finally {
      if (asking === this.#asking) this.#setBusy(false);
    }
  }

  #exampleOf({ name, about, text }) {
    const judge = () => {
      this.#paste.value = text;
      this.judge(this.#paste.turns).catch(quietly);
    };
    return el(
      "button",
      { type: "button", class: "example", on: { click: judge } },
      el("strong", { text: name }),
      el("span", { text: about }),
    );
  }

  #link() {
    const [conversation, charts] = [
      this.#root.querySelector("ts-conversation"),
      this.#root.querySelector("ts-trajectories"),
    ];
    conversation.addEventListener("turnselect", ({ detail }) => charts.select(detail.index));
    charts.addEventListener("turnselect", ({ detail }) => conversation.select(detail.index));
    conversation.addEventListener("turnedit", ({ detail }) =>
      this.#replace(detail.index, detail.text).catch((error) => detail.failed() || quietly(error)),
    );
    conversation.addEventListener("turnrank", ({ detail: { index, host } }) => {
      offerRanking(host, this.#judged, index, (text) => this.#replace(index, text).catch(quietly));
    });
    this.#root
      .querySelector("ts-scorers")
      .addEventListener("change", () => this.judge(this.#judged.turns, this.#judged).catch(quietly));
    this.#root.querySelector(".swap").addEventListener("click", () => {
      const turns = this.#judged.turns.map(({ speaker, text }) => ({
        speaker: speaker === "user" ? "system" : "user",
        text,
      }));
      this.#paste.value = asText(turns);
      this.judge(turns).catch(quietly);
    });
    this.#root.querySelector(".lowest").addEventListener("click", () => {
      const index = this.#judged.lowestPlace;
      conversation.select(index, { isFocused: true });
      charts.select(index);
    });
  }

  #replace(index, text) {
    const turns = this.#judged.turns.map((turn, place) => (place === index ? { ...turn, text } : turn));
    return this.judge(turns, this.#judged);
  }

  async #show(judged, isSame) {
    this.#judged = judged;
    this.#opening.hidden = true;
    this.#result.hidden = false;
    const own = judged.judgedPlaces.length;
    this.#result.querySelector("h1").textContent = `${counted(judged.turns.length, "turn")}, ${own} of the chatbot’s`;
    this.#result.querySelector(".summary").textContent = summaryOf(judged);
    this.#result.querySelector(".lowest").hidden = judged.lowestPlace === null || own < 2;
    const numbers = this.#result.querySelector(".numbers");
    numbers.open = false;
    this.#result
      .querySelector("ts-trajectories")
      .show(chartsOf({ title: "conversation", judged }), judged.judgedPlaces);
    const conversation = this.#result.querySelector("ts-conversation");
    if (!isSame) focusHeading(this.#result);
    await (isSame ? conversation.update(judged) : conversation.show(judged));
    announce(`Scored. ${summaryOf(judged)}`);
  }

  #startOver() {
    this.#asking += 1;
    this.#setBusy(false);
    if (this.#judged) this.#paste.value = asText(this.#judged.turns);
    this.#result.hidden = true;
    this.#opening.hidden = false;
    this.#paste.focus();
  }

  #setBusy(isBusy) {
    this.#root.toggleAttribute("data-busy", isBusy);
    if (isBusy) announce("Scoring…", { isSeen: true });
    for (const each of this.#root.querySelectorAll(".judge, .example")) each.disabled = isBusy;
  }
}

/** What the reader has been shown already needs nothing more. */
export function quietly(error) {
  announce("");
  if (!(error instanceof GivenUp)) throw error;
}
