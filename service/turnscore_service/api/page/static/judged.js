// A judged dialogue: its turns, the service's reply, and how both changed since the reader last saw them. Pure.

/** A score's percentile, or null. */
export function percentileOf(score) {
  return score?.percentile ?? null;
}

export class Judged {
  /** @param {any} request @param {any} reply @param {Map<string, any>} models @param {Judged | null} [before] */
  constructor(request, reply, models, before = null) {
    this.request = request;
    this.reply = reply;
    this.models = models;
    this.turns = request.turns;
    this.scorers = request.scorers.filter((name) => models.get(name)?.speaker !== "user");
    this.main = this.scorers[0]; // whose percentile is *the* number: quality's, where it is asked
    this.timing = reply.timing_ms;
    this.byIndex = new Map(reply.turns.map((turn) => [turn.index, turn]));
    this.changes = before && before.turns.length === this.turns.length ? this.#changesSince(before) : new Map();
  }

  /** The places of the chatbot's turns that were scored, in order. */
  get judgedPlaces() {
    return [...this.byIndex.keys()].filter((index) => this.turns[index].speaker === "system");
  }

  scoreOf(index, name = this.main) {
    return this.byIndex.get(index)?.scores[name];
  }

  thresholdOf(name = this.main) {
    return this.models.get(name)?.threshold_percentile ?? null;
  }

  /** The turns that are called low. */
  get lowPlaces() {
    return this.judgedPlaces.filter((index) => this.scoreOf(index)?.label === "low");
  }

  /** The place of the lowest turn; null where none has a percentile. */
  get lowestPlace() {
    const scored = this.judgedPlaces.filter((index) => percentileOf(this.scoreOf(index)) !== null);
    return scored.length
      ? scored.reduce((low, index) => (this.scoreOf(index).percentile < this.scoreOf(low).percentile ? index : low))
      : null;
  }

  /** One scorer's way over the dialogue. */
  pathOf(name) {
    return this.judgedPlaces.map((index) => ({
      index,
      percentile: percentileOf(this.scoreOf(index, name)),
      label: this.scoreOf(index, name)?.label ?? null,
    }));
  }

  #changesSince(before) {
    const changes = new Map();
    for (const index of this.judgedPlaces) {
      const [old, now] = [percentileOf(before.scoreOf(index, this.main)), percentileOf(this.scoreOf(index))];
      if (old !== null && now !== null && Math.round(old) !== Math.round(now))
        changes.set(index, Math.round(now) - Math.round(old));
    }
    return changes;
  }
}
