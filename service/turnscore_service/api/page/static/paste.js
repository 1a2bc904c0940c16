// <ts-paste>: the box for a conversation, which says what it recognised; and <ts-scorers>: which scorers are asked.
import { el } from "./dom.js";
import { recognise } from "./recognise.js";
import { loadModels, models, ofUser, userScorers } from "./service.js";
import { counted, plain } from "./words.js";

const HINT = "OpenAI's JSON, lines such as “User: …” and “Bot: …”, or turnscore's JSON lines.";
let boxes = 0;

/** `turns` is the dialogue that is recognised and chosen, or null. Fires `go` when the reader wants it judged. */
export class Paste extends HTMLElement {
  #field;
  #note = el("p", { class: "note" });
  #choice = el("select", { "aria-label": "Which conversation" });
  #found = null;

  connectedCallback() {
    if (this.#field) return;
    boxes += 1;
    const [id, noteId] = [`paste-${boxes}`, `paste-note-${boxes}`];
    this.#note.id = noteId;
    this.#field = el("textarea", {
      id,
      rows: this.getAttribute("rows") ?? 9,
      spellcheck: "false",
      autocomplete: "off",
      "aria-describedby": noteId,
    });
    this.#choice.hidden = true;
    this.append(el("label", { for: id, text: this.getAttribute("label") }), this.#field, this.#note, this.#choice);
    this.#field.addEventListener("input", () => this.#read());
    this.#field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.dispatchEvent(new Event("go"));
    });
    this.#read();
  }

  get turns() {
    return this.#found?.dialogues?.[this.#choice.hidden ? 0 : this.#choice.selectedIndex]?.turns ?? null;
  }

  set value(text) {
    this.#field.value = text;
    this.#read();
  }

  focus() {
    this.#field.focus();
  }

  /** Says why nothing can be judged, where that is so, and returns whether something can. */
  check() {
    if (this.turns) return true;
    this.#say(this.#found?.problem ?? "Paste a conversation first.", true);
    this.#field.focus();
    return false;
  }

  #read() {
    this.#found = recognise(this.#field.value);
    const dialogues = this.#found?.dialogues ?? [];
    this.#choice.hidden = dialogues.length < 2;
    this.#choice.replaceChildren(
      ...dialogues.map((each, place) => el("option", { text: `${place + 1}: ${each.turns[0].text.slice(0, 60)}` })),
    );
    if (!this.#found) this.#say(HINT, false);
    else if (this.#found.problem) this.#say(this.#found.problem, true);
    else this.#say(told(this.#found), false);
  }

  #say(text, isProblem) {
    this.#note.textContent = text;
    this.#note.classList.toggle("problem", isProblem);
    if (isProblem) this.#field.setAttribute("aria-invalid", "true");
    else this.#field.removeAttribute("aria-invalid");
  }
}

function told({ form, dialogues }) {
  const [{ turns, skipped }] = dialogues;
  const own = turns.filter((turn) => turn.speaker === "system").length;
  const left = skipped ? `; ${counted(skipped, "part")} left out, such as prompts` : "";
  const several =
    dialogues.length > 1
      ? `${counted(dialogues.length, "conversation")}, of which the chosen one is scored. The first: `
      : "";
  return `Recognised as ${form}: ${several}${counted(turns.length, "turn")}, ${own} of the chatbot’s${left}.`;
}

const chosen = new Set();

/** The scorers that the reader wants; the service's default ones at first. Waits for the models. */
export async function chosenScorers() {
  if (!models.size) await prepareScorers();
  return [...models.keys()].filter((name) => chosen.has(name));
}

/** The scorers to ask about a dialogue: also those of user turns, where the user says something. */
export async function scorersFor(turns) {
  const own = await chosenScorers();
  return turns.some(({ speaker, text }) => speaker === "user" && text.trim()) ? [...own, ...userScorers()] : own;
}

/** Reads the models, and makes the service's default scorers the chosen ones as far as the reader chose none. */
export async function prepareScorers() {
  await loadModels();
  for (const name of [...chosen]) if (!models.has(name)) chosen.delete(name);
  if (!chosen.size) for (const [name, model] of models) if (model.is_default) chosen.add(name);
  for (const each of document.querySelectorAll("ts-scorers")) each.show();
}

/** Fires `change` when another set is chosen; at least one stays. */
export class Scorers extends HTMLElement {
  connectedCallback() {
    this.addEventListener("change", (event) => this.#choose(event.target));
    this.show();
  }

  show() {
    if (!models.size) return;
    const offered = [...models.values()].filter((model) => !ofUser(model));
    const boxesOf = offered.map(({ scorer, stand_in: isStandIn }) => {
      const box = el("input", { type: "checkbox", value: scorer, checked: chosen.has(scorer) });
      return el(
        "label",
        {},
        box,
        ` ${plain(scorer)}`,
        isStandIn ? el("span", { class: "fine", text: " stand-in" }) : null,
      );
    });
    this.replaceChildren(el("fieldset", { class: "scorers" }, el("legend", { text: "Scorers" }), ...boxesOf));
  }

  #choose(box) {
    if (box.checked) chosen.add(box.value);
    else if (chosen.size > 1) chosen.delete(box.value);
    for (const each of document.querySelectorAll("ts-scorers")) {
      for (const other of each.querySelectorAll("input")) other.checked = chosen.has(other.value);
    }
  }
}

customElements.define("ts-paste", Paste);
customElements.define("ts-scorers", Scorers);
