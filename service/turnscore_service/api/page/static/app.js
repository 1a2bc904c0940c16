// The page: its views by the address's end, the theme, the key, and the models that the service has loaded.
import "./conversation.js";
import "./trajectories.js";
import { CompareView } from "./compare-view.js";
import { announce } from "./dom.js";
import { prepareScorers } from "./paste.js";
import { ReadView, quietly } from "./read-view.js";
import { askForKey, client, listenToAlarm, models } from "./service.js";
import { TalkView } from "./talk-view.js";

const THEMES = ["auto", "dark", "light"];
const sections = [...document.querySelectorAll("main > section")];

function showView({ isFirst = false } = {}) {
  const wanted = sections.find((section) => `#${section.id}` === location.hash) ?? sections[0];
  for (const section of sections) section.hidden = section !== wanted;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${wanted.id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${wanted.dataset.title} · turnscore`;
  if (isFirst) return;
  announce("");
  [...wanted.querySelectorAll("h1")].find((heading) => heading.checkVisibility())?.focus();
}

function changeTheme(event) {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
  root.dataset.theme = next;
  event.currentTarget.textContent = `Theme: ${next}`;
}

async function begin() {
  await prepareScorers();
  const told = [...models.values()].map(
    ({ model, stand_in: isStandIn }) => `${model}${isStandIn ? " (stand-in)" : ""}`,
  );
  document.getElementById("models").textContent = `Models: ${told.join(", ")}.`;
}

const beginning = begin();
listenToAlarm();
const read = new ReadView(document.getElementById("read"));
new CompareView(document.getElementById("compare"));
new TalkView(document.getElementById("talk"), (turns) => {
  location.hash = "read";
  read.judge([...turns]).catch(quietly);
});
document.getElementById("theme").addEventListener("click", changeTheme);
document.getElementById("key-button").addEventListener("click", async () => {
  const why = client.hasApiKey
    ? "A key is in use. It is kept in memory until this page is closed."
    : "Kept in memory until this page is closed; nowhere else.";
  await askForKey(why).then(begin).catch(quietly);
});
addEventListener("hashchange", () => showView());
showView({ isFirst: true });
await beginning.catch(quietly);
