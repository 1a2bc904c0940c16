// The live view: what is said goes over one open conversation, and each of the chatbot's turns gets its score as it is said.
import { announce } from "./dom.js";
import { Judged } from "./judged.js";
import { chosenScorers } from "./paste.js";
import { quietly } from "./read-view.js";
import { client, loadModels, models, shown, userScorers } from "./service.js";
import { chartsOf, summaryOf } from "./summary.js";
import { signalsOf, spoken } from "./words.js";

export class TalkView {
  #root;
  #form;
  #field;
  #live = null;
  #turns = [];
  #scored = [];
  #request = null;

  /** @param {HTMLElement} root @param {(turns: any[]) => void} read shows the conversation in the first view */
  constructor(root, read) {
    this.#root = root;
    this.#form = root.querySelector("form");
    this.#field = root.querySelector("textarea");
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send().catch(quietly);
    });
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send().catch(quietly);
    });
    root.querySelector(".again").addEventListener("click", () => this.#startOver());
    root.querySelector(".read").addEventListener("click", () => read(this.#turns));
    const [conversation, charts] = [root.querySelector("ts-conversation"), root.querySelector("ts-trajectories")];
    conversation.addEventListener("turnselect", ({ detail }) => charts.select(detail.index));
    charts.addEventListener("turnselect", ({ detail }) => conversation.select(detail.index));
  }

  get #speaker() {
    return this.#form.elements.speaker.value;
  }

  async #send() {
    const text = this.#field.value.trim();
    const button = this.#form.querySelector("button");
    if (!text || button.disabled) return;
    const speaker = this.#speaker;
    button.disabled = true;
    try {
      const scored = await this.#say(speaker, text);
      this.#turns.push({ speaker, text });
      if (scored) this.#scored.push(scored);
      this.#field.value = "";
      this.#form.elements.speaker.value = speaker === "user" ? "system" : "user";
      await this.#show(scored);
    } finally {
      button.disabled = false;
      this.#field.focus();
    }
  }

  /** Over the open conversation; over another that goes on with the same context where that one broke. */
  async #say(speaker, text) {
    for (let isFirst = true; ; isFirst = false) {
      if (!this.#live || this.#live.isClosed || this.#live.isDraining) await this.#open();
      try {
        return await this.#live.say(speaker, text);
      } catch (error) {
        if (error.code !== "connection_failed" || !isFirst) throw shown(error);
      }
    }
  }

  async #open() {
    this.#live?.close();
    await loadModels(); // waits for the service, and asks for a key: a page cannot see why a WebSocket is refused
    this.#request ??= { turns: this.#turns, scorers: [...(await chosenScorers()), ...userScorers()] };
    try {
      const opening = { scorers: this.#request.scorers, context: this.#turns };
      this.#live = await client.conversation(opening, { maxReopenings: 0 });
    } catch (error) {
      throw shown(error);
    }
    const live = this.#live;
    const isOurs = () => live === this.#live;
    live.addEventListener(
      "draining",
      () =>
        isOurs() &&
        announce("The service is about to stop; the next turn opens the conversation again.", { isSeen: true }),
    );
    live.addEventListener(
      "close",
      () =>
        isOurs() &&
        this.#turns.length &&
        announce("The connection has ended; the next turn opens it again.", { isSeen: true }),
    );
  }

  async #show(scored) {
    const { scorers } = this.#request;
    const dialogue = this.#dialogue(scorers);
    const timing = this.#scored.at(-1)?.timing_ms ?? {};
    const judged = new Judged(
      { turns: [...this.#turns], scorers },
      { turns: this.#scored, dialogue, timing_ms: timing },
      models,
    );
    this.#root.querySelector("ts-scorers").hidden = true;
    for (const each of this.#root.querySelectorAll(".started")) each.hidden = false;
    const hasScores = judged.judgedPlaces.length > 0;
    this.#root.querySelector(".read").hidden = !hasScores;
    this.#root.querySelector(".summary").textContent = hasScores ? summaryOf(judged) : "";
    const conversation = this.#root.querySelector("ts-conversation");
    const charts = this.#root.querySelector("ts-trajectories");
    charts.hidden = !hasScores;
    charts.show(chartsOf({ title: "conversation", judged }), judged.judgedPlaces);
    await conversation.update(judged);
    conversation.select(this.#turns.length - 1);
    charts.select(this.#turns.length - 1);
    if (!scored) return;
    const signals = signalsOf(scored).map(({ text }) => text);
    if (this.#turns.at(-1).speaker === "system") announce(`Scored: ${spoken(judged.main, scored.scores[judged.main])}.`);
    else if (signals.length) announce(`The user: ${signals.join(", ")}.`);
  }

  /** The aggregates over all that was scored, also before a connection broke. */
  #dialogue(scorers) {
    const means = scorers.map((name) => {
      const known = this.#scored.map((turn) => turn.scores[name]?.percentile ?? null).filter((each) => each !== null);
      return [
        name,
        { percentile_mean: known.length ? known.reduce((sum, each) => sum + each, 0) / known.length : null },
      ];
    });
    return Object.fromEntries(means);
  }

  #startOver() {
    const old = this.#live;
    this.#live = null;
    old?.close();
    [this.#turns, this.#scored, this.#request] = [[], [], null];
    for (const each of this.#root.querySelectorAll(".started")) each.hidden = true;
    this.#root.querySelector("ts-trajectories").hidden = true;
    this.#root.querySelector("ts-scorers").hidden = false;
    this.#root
      .querySelector("ts-conversation")
      .show(new Judged({ turns: [], scorers: [] }, { turns: [], timing_ms: {} }, models));
    this.#form.elements.speaker.value = "user";
    this.#field.focus();
  }
}
