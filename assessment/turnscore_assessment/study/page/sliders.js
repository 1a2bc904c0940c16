// The sliders of a rating: one a criterion, not set until the worker sets it, kept over a closed tab until it is sent.
import { take } from "./views.js";

export class Sliders {
  constructor(place, criteria, dialogue) {
    this.key = `draft-${dialogue}`;
    this.inputs = new Map();
    const draft = readDraft(this.key);
    criteria.forEach((criterion, index) => {
      const [slider, input] = build(criterion, index);
      for (const kind of ["input", "pointerup", "keydown"]) input.addEventListener(kind, (event) => this.note(event, criterion));
      this.inputs.set(criterion.name, input);
      if (typeof draft[criterion.name] === "number") {
        input.value = draft[criterion.name];
        mark(input, criterion);
      }
      place.append(slider);
    });
  }

  // Any press of a key that moves or confirms sets the slider, so that the middle can be chosen, too.
  note(event, criterion) {
    const confirms = ["Enter", " ", "Home", "End", "PageUp", "PageDown", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
    if (event.type === "keydown" && !confirms.includes(event.key)) return;
    if (event.type === "keydown" && [" ", "Enter"].includes(event.key)) event.preventDefault();
    mark(event.target, criterion);
    const values = Object.fromEntries(this.readSet());
    try { localStorage.setItem(this.key, JSON.stringify(values)); } catch { /* a browser that keeps nothing */ }
  }

  readSet() {
    return [...this.inputs].filter(([, input]) => !input.classList.contains("unset")).map(([name, input]) => [name, Number(input.value)]);
  }

  // The first slider that is not set; null where all are.
  findUnset() {
    return [...this.inputs.values()].find((input) => input.classList.contains("unset")) ?? null;
  }

  forgetDraft() {
    try { localStorage.removeItem(this.key); } catch { /* nothing was kept */ }
  }
}

function build(criterion, index) {
  const slider = take("slider");
  const [label, input] = [slider.querySelector("label"), slider.querySelector("input")];
  label.textContent = criterion.statement;
  label.htmlFor = input.id = `slider-${index}`;
  const span = criterion.high - criterion.low;
  Object.assign(input, { min: criterion.low, max: criterion.high, step: span >= 10 ? 1 : span / 100, name: criterion.name });
  input.value = criterion.low + span / 2;
  slider.querySelector(".low").textContent = criterion.low_end;
  slider.querySelector(".high").textContent = criterion.high_end;
  const ends = slider.querySelector(".ends");
  ends.id = `ends-${index}`;
  input.setAttribute("aria-describedby", ends.id);
  input.setAttribute("aria-valuetext", `not set yet; from ${criterion.low_end} to ${criterion.high_end}`);
  return [slider, input];
}

function mark(input, criterion) {
  input.classList.remove("unset");
  input.setAttribute("aria-valuetext", `${input.value}, from ${criterion.low} (${criterion.low_end}) to ${criterion.high} (${criterion.high_end})`);
  const state = input.parentElement.querySelector(".state");
  state.textContent = "Set";
  state.classList.add("done");
}

function readDraft(key) {
  try { return JSON.parse(localStorage.getItem(key)) ?? {}; } catch { return {}; }
}
