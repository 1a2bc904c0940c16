// The study's page: asks the server where the worker stands, and shows it. The link's secret stays behind # and in a header.
import { addTurn, alarm, fill, onPress, onSubmit, once, show, showNotice, tell } from "./views.js";
import { Sliders } from "./sliders.js";

const BUSY_TRIES = 120;
const BUSY_PAUSE_MS = 1000;
let link = "";

class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

async function ask(path, body) {
  const headers = { Authorization: `Bearer ${link}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(`/api/${path}`, { method: body === undefined ? "GET" : "POST", headers, body: JSON.stringify(body), credentials: "omit", cache: "no-store" });
    answer = await response.json();
  } catch {
    throw new Refused("offline", "The server cannot be reached. Please try again; what you sent before is stored.");
  }
  if (!response.ok) throw new Refused(answer.error?.code ?? "unknown", answer.error?.message ?? "Something went wrong.");
  return answer;
}

async function start() {
  link = location.hash.slice(1);
  document.getElementById("leave").hidden = true;
  if (!/^[\w.-]+$/.test(link)) return showNotice("A link is needed", ["Please open the link that you were sent, whole."]);
  try {
    showStanding(await ask("standing"));
  } catch (error) {
    if (error.code === "left") showLeft(error.message);
    else showNotice("The study cannot be shown", [error.message], { button: "Try again", act: start });
  }
}

function showStanding(standing) {
  const { study } = standing;
  document.getElementById("study-title").textContent = study.title;
  document.getElementById("contact").textContent = study.contact ? `Questions: ${study.contact}` : "";
  document.getElementById("leave").hidden = !standing.agreed;
  if (!standing.agreed) showConsent(study);
  else if (standing.finished) showNotice("You have finished", standing.thanks, { code: standing.code });
  else if (standing.dialogue) new Dialogue(study, standing);
  else showReady(study, standing);
}

function showConsent(study) {
  const view = show("consent");
  fill(view.querySelector(".text"), study.consent);
  onSubmit(view.querySelector("form"), view.querySelector("button"), async () => {
    showStanding(await ask("agreement", { consent_hash: study.consent_hash }));
  });
}

function showReady(study, standing) {
  const heading = `Next: conversation ${standing.done + 1} of ${standing.total}`;
  const button = study.kind === "chat" ? "Start the conversation" : "Read the conversation";
  showNotice(heading, study.instructions, { button, act: async () => showStanding(await ask("begin", {})) });
}

function showLeaving() {
  const view = show("leaving");
  onPress(view.querySelector(".back"), start);
  onPress(view.querySelector(".go"), async () => {
    await ask("leaving", {});
    showLeft("What you said and rated is deleted.");
  });
}

function showLeft(text) {
  document.getElementById("leave").hidden = true;
  showNotice("You have left the study", [text]);
}

class Dialogue {
  constructor(study, standing) {
    this.study = study;
    this.id = standing.dialogue.id;
    this.turns = standing.dialogue.turns;
    this.view = show("dialogue", `Conversation ${standing.done + 1} of ${standing.total}`).querySelector(".dialogue");
    this.log = this.part(".log");
    this.turns.forEach((turn) => addTurn(this.log, turn.speaker, turn.text));
    this.showTopic(standing.dialogue.topic);
    this.sliders = new Sliders(this.part(".questions"), study.criteria, this.id);
    onSubmit(this.part(".sliders"), this.part(".submit"), () => this.rate());
    if (study.kind === "chat") this.prepareTalk(standing.dialogue);
    else this.prepareReading();
  }

  part(selector) { return this.view.querySelector(selector); }
  get inputs() { return this.turns.filter((turn) => turn.speaker === "user").length; }
  get replies() { return this.turns.length - this.inputs; }
  get isAnswered() { return this.turns.length % 2 === 0; }

  showTopic(topic) {
    if (!topic) return;
    this.part(".topic").hidden = false;
    this.part(".topic").textContent = `Topic: ${topic}`;
  }

  prepareReading() {
    for (const selector of [".talk", ".talk-on", ".count"]) this.part(selector).hidden = true;
    this.part(".rating").hidden = false;
  }

  prepareTalk(dialogue) {
    const text = this.part("#text");
    text.maxLength = this.study.input_characters;
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.part(".talk").requestSubmit();
    });
    onSubmit(this.part(".talk"), this.part(".send"), () => this.say());
    onPress(this.part(".again"), () => this.awaitReply());
    onPress(this.part(".give-up"), async () => showStanding(await ask("giving-up", { dialogue: this.id })));
    onPress(this.part(".to-rating"), () => this.setRating(true));
    onPress(this.part(".talk-on"), () => this.setRating(false));
    this.part(".give-up").hidden = !dialogue.may_give_up;
    this.update();
    if (!this.isAnswered) once(this.part(".again"), () => this.awaitReply());
  }

  async say() {
    const field = this.part("#text");
    const text = field.value.trim();
    if (!text || !this.isAnswered) return;
    this.add("user", text);
    field.value = "";
    await this.awaitReply();
    if (!this.part(".talk").hidden) field.focus();
  }

  // Asks for the reply to the last message; a message that is sent twice is stored once.
  async awaitReply() {
    this.part(".retry").hidden = true;
    tell("The chatbot is answering …");
    try {
      this.add("system", await this.askReply());
      this.part(".give-up").hidden = true;
    } catch (error) {
      if (["out_of_turn", "not_open", "no_such_dialogue", "invalid"].includes(error.code)) return await this.takeUp(error);
      this.part(".retry").hidden = false;
      if (error.code === "no_reply") this.part(".give-up").hidden = !(await ask("standing")).dialogue?.may_give_up;
      throw error;
    } finally {
      tell("");
      this.update();
    }
  }

  async askReply() {
    const message = { dialogue: this.id, number: this.inputs - 1, text: this.turns.at(-1).text };
    for (let attempt = 1; ; attempt += 1) {
      try {
        return (await ask("message", message)).reply;
      } catch (error) {
        if (error.code !== "busy" || attempt === BUSY_TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, BUSY_PAUSE_MS));
      }
    }
  }

  // The conversation went on in another tab: shows it as it stands.
  async takeUp(error) {
    showStanding(await ask("standing"));
    alarm(error.message);
  }

  add(speaker, text) {
    this.turns.push({ speaker, text });
    addTurn(this.log, speaker, text);
    this.update();
  }

  update() {
    const { inputs_at_least: least, inputs_at_most: most } = this.study;
    const [isEnough, isEnd] = [this.replies >= least, this.inputs >= most && this.isAnswered];
    const isRating = !this.part(".rating").hidden;
    this.part(".count").textContent = isEnough
      ? `You have written ${this.inputs} messages, which is enough; you may go on up to ${most}.`
      : `You have written ${this.inputs} of at least ${least} messages.`;
    this.part(".to-rating").hidden = !isEnough || isRating;
    this.part(".talk").hidden = isEnd || isRating;
    this.part(".talk-on").hidden = isEnd;
  }

  setRating(isRating) {
    this.part(".rating").hidden = !isRating;
    this.update();
    (isRating ? this.part("#rating-heading") : this.part("#text")).focus();
  }

  async rate() {
    const unset = this.sliders.findUnset();
    if (unset) {
      alarm(`Please set every slider: “${unset.labels[0].textContent}” is not set yet.`);
      unset.focus();
      return;
    }
    tell("Your ratings are being sent …");
    try {
      const standing = await ask("rating", { dialogue: this.id, ratings: Object.fromEntries(this.sliders.readSet()) });
      this.sliders.forgetDraft();
      showStanding(standing);
    } catch (error) {
      if (!["already_rated", "not_open", "no_such_dialogue"].includes(error.code)) throw error;
      await this.takeUp(error);
    }
  }
}

onPress(document.getElementById("leave"), showLeaving);
window.addEventListener("hashchange", start);
start();
