// What every view does: comes from a template, takes the focus, says what happens. Knows no server.

const find = (id) => document.getElementById(id);

export function take(template) {
  return find(template).content.firstElementChild.cloneNode(true);
}

// Replaces the view; the heading takes the focus, so that a screen reader begins there.
export function show(template, heading = null) {
  const view = find("view");
  view.replaceChildren(find(template).content.cloneNode(true));
  const h1 = view.querySelector("h1");
  if (heading !== null) h1.textContent = heading;
  document.title = `${h1.textContent} – ${find("study-title").textContent}`;
  alarm("");
  tell("");
  h1.focus();
  return view;
}

export function fill(place, paragraphs) {
  place.replaceChildren(...paragraphs.map((text) => Object.assign(document.createElement("p"), { textContent: text })));
}

export function showNotice(heading, paragraphs, { button = null, act = null, code = null } = {}) {
  const view = show("notice", heading);
  fill(view.querySelector(".text"), paragraphs);
  if (code !== null) {
    view.querySelector(".code").hidden = false;
    view.querySelector("strong").textContent = code;
  }
  const go = view.querySelector("button");
  if (button !== null) {
    Object.assign(go, { hidden: false, textContent: button });
    onPress(go, act);
  }
}

export function alarm(text) { find("alert").textContent = text; }
export function tell(text) { find("status").textContent = text; }

export function addTurn(log, speaker, text) {
  const turn = take("turn");
  turn.classList.add(speaker);
  turn.querySelector(".speaker").textContent = speaker === "user" ? "You:" : "Chatbot:";
  turn.querySelector(".said").textContent = text;
  log.append(turn);
  log.scrollTop = log.scrollHeight;
}

// A second press while the first is under way does nothing; the button keeps the focus meanwhile.
export async function once(button, act) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  alarm("");
  try {
    await act();
  } catch (error) {
    tell("");
    alarm(error.message);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

export function onPress(button, act) {
  button.addEventListener("click", () => once(button, act));
}

export function onSubmit(form, button, act) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    once(button, act);
  });
}
