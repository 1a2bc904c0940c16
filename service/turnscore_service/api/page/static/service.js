// The service: the one client of the page, its models, and what the page does while the service is away or wants a key.
import { announce } from "./dom.js";
import { TurnScoreClient } from "./turnscore/turnscore.js";
import { explain } from "./words.js";

const FIRST = ["quality", "engagement", "sentiment_stop"]; // the order of scorers; others follow by name
const FIRST_PAUSE_MS = 500; // before asking whether the service is back, doubled each time
const LONGEST_PAUSE_MS = 4000;
const TIMEOUT_MS = 120_000; // a thousand turns on a small machine

export const client = new TurnScoreClient(new URL(".", document.baseURI), { timeoutMs: TIMEOUT_MS, maxRetries: 1 });
/** The loaded models by scorer, once they are known. */
export const models = new Map();
export let limits = null;
/** Names of the loaded scorers of user turns, which are asked without being chosen. */
export const userScorers = () => [...models.values()].filter(ofUser).map(({ scorer }) => scorer);
export const ofUser = ({ speaker }) => speaker === "user";

const alarm = document.getElementById("alert");
const keyDialog = document.getElementById("key");
let giveUp = null;
let waiting = null; // the one wait, or the one question for a key, that every call shares
let asking = null;

/** The reader does not want to wait any longer, or gave no key. */
export class GivenUp extends Error {}

/** Reads the models; the page asks for what they can do. */
export async function loadModels() {
  const reply = await asked(() => client.models());
  models.clear();
  const place = ({ scorer }) => (FIRST.includes(scorer) ? FIRST.indexOf(scorer) : FIRST.length);
  for (const model of reply.models.sort((a, b) => place(a) - place(b)))
    if (model.scorer !== "encoder") models.set(model.scorer, model);
  limits = reply.limits;
}

/**
 * What the call returns. Waits for a service that is away, asks for a key where one is needed, and shows every other
 * error. Throws GivenUp for whatever the reader has been shown already.
 */
export async function asked(call) {
  for (;;) {
    try {
      const reply = await call();
      hideAlarm();
      return reply;
    } catch (error) {
      if (error.code === "unauthenticated")
        await (asking ??= askForKey(
          client.hasApiKey ? "This key is not known to the service." : "This service wants an API key.",
        ).finally(() => (asking = null)));
      else if (error.code === "connection_failed" || error.code === "not_ready")
        await (waiting ??= untilReady(error).finally(() => (waiting = null)));
      else throw shown(error);
    }
  }
}

/** Shows an error that needs another request, not the same again. */
export function shown(error) {
  if (error instanceof GivenUp) return error;
  showAlarm(error.code ? explain(error) : `Something in this page broke: ${error.message}`);
  return new GivenUp(error.message, { cause: error });
}

export function showAlarm(text, action = null) {
  const stop = alarm.querySelector("button");
  alarm.querySelector("p").textContent = text;
  stop.hidden = action === null;
  if (action) stop.textContent = action;
  alarm.hidden = false;
}

export function hideAlarm() {
  alarm.hidden = true;
  alarm.querySelector("p").textContent = "";
}

async function untilReady(error) {
  const away =
    error.code === "not_ready"
      ? "The service is not ready: its models are loading, or it is stopping."
      : "The service does not answer.";
  showAlarm(`${away} The page goes on when it does; what you wrote stays here.`, "Do not wait");
  const waited = new AbortController();
  giveUp = () => waited.abort(new GivenUp("given up"));
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (
      waited.signal.aborted ||
      (await client.isReady({ signal: waited.signal, timeoutMs: LONGEST_PAUSE_MS }).catch(() => false))
    )
      break;
  }
  giveUp = null;
  if (waited.signal.aborted) {
    hideAlarm();
    throw waited.signal.reason;
  }
  announce("The service answers again.", { isSeen: true });
}

/** Asks the reader for a key, which stays in memory. Throws GivenUp if there is none. */
export function askForKey(why) {
  keyDialog.querySelector(".why").textContent = why;
  const field = keyDialog.querySelector("input");
  field.value = "";
  keyDialog.returnValue = "";
  keyDialog.showModal();
  return new Promise((resolve, reject) => {
    const finish = () => {
      const given = field.value.trim();
      field.value = "";
      if (keyDialog.returnValue === "forget") client.useApiKey(null);
      if (keyDialog.returnValue !== "use" || !given) return reject(new GivenUp("no key"));
      try {
        client.useApiKey(given);
      } catch (error) {
        return reject(shown(error));
      }
      return resolve();
    };
    keyDialog.addEventListener("close", finish, { once: true });
  });
}

export function listenToAlarm() {
  alarm.querySelector("button").addEventListener("click", () => giveUp?.());
  keyDialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault(); // a form that is sent is refused by the page's policy, as `dialog` ones are not everywhere
    keyDialog.close(event.submitter?.value ?? "use");
  });
}
