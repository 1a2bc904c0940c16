// <ts-conversation>: the turns, each of the chatbot's with its score, its weak sides, and what one may do with it.
import { badge, bar, button, el, inSlices } from "./dom.js";
import { detailsOf } from "./details.js";
import { percentileOf } from "./judged.js";
import { reasonOf, signalsOf, spoken, warningsOf, whole } from "./words.js";

const LONG = 900; // characters of a turn that are shown at first
const MOVES = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };

/**
 * Fires `turnselect` {index}, `turnedit` {index, text, failed} and `turnrank` {index, host}. With the attribute `fixed`, what was
 * said stays as it was said.
 */
export class Conversation extends HTMLElement {
  #list = el("ol", { class: "turns" });
  #judged = null;
  #rows = [];
  #selected = null;
  #drawing = 0;

  connectedCallback() {
    if (this.#list.isConnected) return;
    this.append(this.#list);
    this.#list.addEventListener("keydown", (event) => this.#move(event));
    this.#list.addEventListener("click", (event) => this.#act(event));
    this.#list.addEventListener("focusin", (event) => this.#follow(event.target));
  }

  /** Shows a judged dialogue from its beginning. Returns whether it was drawn whole, not replaced meanwhile. */
  async show(judged) {
    const drawing = (this.#drawing += 1);
    this.#judged = judged;
    this.#rows = [];
    this.#selected = null;
    this.#list.replaceChildren();
    this.setAttribute("aria-busy", "true");
    const isWhole = await inSlices(
      judged.turns,
      (_, index) => this.#add(index),
      () => drawing === this.#drawing,
    );
    if (isWhole) this.removeAttribute("aria-busy");
    return isWhole;
  }

  /** Shows the same turns with other scores or texts; rows that stayed alike keep what is open in them. */
  async update(judged) {
    const old = this.#judged;
    if (!old || old.turns.length > judged.turns.length) return this.show(judged);
    const drawing = (this.#drawing += 1);
    this.#judged = judged;
    const isSame = (index) =>
      old.turns[index].text === judged.turns[index].text &&
      sameScores(old, judged, index) &&
      !judged.changes.has(index) &&
      !old.changes.has(index);
    return inSlices(
      judged.turns,
      (_, index) => {
        if (index >= this.#rows.length) this.#add(index);
        else if (!isSame(index)) this.#redraw(index);
      },
      () => drawing === this.#drawing,
    );
  }

  /** Marks a turn as the one that is looked at. */
  select(index, { isFocused = false } = {}) {
    const row = this.#rows[index];
    if (!row) return;
    if (this.#selected !== index) {
      this.#rows[this.#selected]?.removeAttribute("aria-current");
      this.#rows[this.#selected]?.setAttribute("tabindex", "-1");
      this.#selected = index;
      row.setAttribute("aria-current", "true");
      row.setAttribute("tabindex", "0");
    }
    if (isFocused) row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  #add(index) {
    const row = el("li", {
      class: `turn ${this.#judged.turns[index].speaker}`,
      tabindex: index ? "-1" : "0",
      "data-index": index,
    });
    this.#rows[index] = row;
    this.#fill(row, index);
    this.#list.append(row);
  }

  #redraw(index) {
    const row = this.#rows[index];
    const hadFocus = row.contains(document.activeElement);
    row.replaceChildren();
    this.#fill(row, index);
    if (hadFocus) row.focus({ preventScroll: true });
  }

  #fill(row, index) {
    const { speaker, text } = this.#judged.turns[index];
    const who = el(
      "p",
      { class: "who" },
      `${speaker === "user" ? "User" : "Chatbot"} `,
      el("span", { class: "place", text: index + 1 }),
    );
    row.append(who, said(text));
    const turn = this.#judged.byIndex.get(index);
    const isOurs = turn && speaker === "system";
    if (turn) row.append(...(isOurs ? verdict(this.#judged, index, turn) : marks(turn)), ...failures(turn));
    const acts = [turn && act("details", "Details", { "aria-expanded": "false" })];
    if (!this.hasAttribute("fixed"))
      acts.push(act("edit", "Edit"), isOurs ? act("rank", "Other replies", { "aria-expanded": "false" }) : null);
    if (acts.some(Boolean)) row.append(el("p", { class: "acts" }, ...acts));
  }

  #act(event) {
    const row = event.target.closest(".turn");
    if (!row) return;
    const index = Number(row.dataset.index);
    const name = event.target.closest("[data-act]")?.dataset.act;
    if (name === "all") event.target.closest(".said").replaceChildren(this.#judged.turns[index].text);
    else if (name === "details") this.#toggle(row, event.target, () => detailsOf(this.#judged, index));
    else if (name === "rank") this.#toggle(row, event.target, () => this.#makeRanking(index));
    else if (name === "edit") this.#edit(row, index);
    else if (!name && !event.target.closest("button, input, textarea, .panel, form") && !String(getSelection()))
      this.#choose(index, false);
  }

  #makeRanking(index) {
    const host = el("div", { class: "panel" });
    this.dispatchEvent(new CustomEvent("turnrank", { detail: { index, host } }));
    return host;
  }

  #toggle(row, pressed, make) {
    const name = pressed.dataset.act;
    const open = row.querySelector(`:scope > [data-panel="${name}"]`);
    pressed.setAttribute("aria-expanded", String(!open));
    if (open) return open.remove();
    const panel = make();
    panel.dataset.panel = name;
    return row.append(panel);
  }

  #edit(row, index) {
    if (row.querySelector(".editor")) return;
    const { text } = this.#judged.turns[index];
    const field = el("textarea", {
      rows: Math.min(8, 2 + Math.floor(text.length / 60)),
      "aria-label": `Text of turn ${index + 1}`,
    });
    field.value = text;
    const stop = () => {
      this.#redraw(index);
      row.focus({ preventScroll: true });
    };
    const save = () => {
      if (!field.value.trim()) return field.focus();
      if (field.value === text) return stop();
      // The editor stays until the new scores are there: what was written is not lost if they never come.
      pressed.disabled = true;
      const failed = () => (pressed.disabled = false);
      return this.dispatchEvent(new CustomEvent("turnedit", { detail: { index, text: field.value, failed } }));
    };
    const pressed = button("Save and rescore", save);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") stop();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    });
    const buttons = el("p", { class: "buttons" }, pressed, button("Cancel", stop, { class: "quiet" }));
    row.querySelector(".said").replaceWith(el("div", { class: "editor" }, field, buttons));
    field.focus();
  }

  #move(event) {
    if (event.target !== this.#rows[this.#selected ?? 0] || event.ctrlKey || event.metaKey || event.altKey) return;
    const places = { Home: 0, End: this.#rows.length - 1 };
    const next = places[event.key] ?? (MOVES[event.key] ? (this.#selected ?? 0) + MOVES[event.key] : null);
    if (next === null || !this.#rows[next]) return;
    event.preventDefault();
    this.#choose(next, true);
  }

  #follow(target) {
    const row = target.closest(".turn");
    const index = Number(row?.dataset.index);
    if (row && index !== this.#selected && target === row) this.#choose(index, false);
  }

  #choose(index, isFocused) {
    this.select(index, { isFocused });
    this.dispatchEvent(new CustomEvent("turnselect", { detail: { index } }));
  }
}

function act(name, text, more = {}) {
  return el("button", { type: "button", class: "act", "data-act": name, text, ...more });
}

/** The text of a turn; the direction of its letters is its own, and ends with it. */
function said(text) {
  const shown = el("p", { class: "said", dir: "auto" });
  if (text.length <= LONG) shown.append(text);
  else shown.append(`${text.slice(0, LONG)}… `, act("all", `Show all ${text.length.toLocaleString("en")} characters`));
  return shown;
}

function failures(turn) {
  return Object.entries(turn.errors).map(([name, error]) =>
    el("p", { class: "why failed", text: `No score of ${name}: ${error.message}.` }),
  );
}

/** The signals of a user's turn. */
function marks(turn) {
  const shown = signalsOf(turn).map(({ text, isGood }) => el("span", { class: isGood ? "badge" : "badge low", text }));
  return shown.length ? [el("p", { class: "signals", "aria-label": "Signals" }, ...shown)] : [];
}

function verdict(judged, index, turn) {
  const score = turn.scores[judged.main];
  if (!score) return [];
  const change = judged.changes.get(index);
  const moved =
    change && el("span", { class: "change", text: `${change > 0 ? "▲ up" : "▼ down"} ${Math.abs(change)}` });
  const line = el(
    "p",
    { class: "verdict" },
    el(
      "span",
      { class: "score", title: spoken(judged.main, score) },
      "percentile ",
      el("strong", { class: "number", text: whole(score.percentile) }),
    ),
    bar(percentileOf(score), { threshold: judged.thresholdOf(), isLow: score.label === "low" }),
    badge(score.label),
    moved || null,
  );
  const reasons = [reasonOf(score), ...warningsOf(score)].filter(Boolean).join(" ");
  return [line, reasons ? el("p", { class: "why", text: reasons }) : null].filter(Boolean);
}

function sameScores(old, judged, index) {
  const values = (each) => Object.entries(each.byIndex.get(index)?.scores ?? {}).map(([name, { value }]) => [name, value]);
  return String(values(old)) === String(values(judged));
}

customElements.define("ts-conversation", Conversation);
