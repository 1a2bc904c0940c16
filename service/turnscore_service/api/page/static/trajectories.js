// <ts-trajectories>: each scorer's way over the conversation, 0 to 100, as small multiples with one place marked in all.
import { el, svg } from "./dom.js";
import { SCORERS, plain, whole } from "./words.js";

const HEIGHT = 84;
const LEFT = 28; // for the numbers of the scale
const EDGE = 8;
const MOST_MARKS = 80; // beyond it only low turns are marked

/**
 * `show(charts, places)`: a chart is `{name, threshold, paths: [{title, points: [{index, percentile, label}]}]}`, and
 * `places` are the turns' indices. Fires `turnselect` {index}.
 */
export class Trajectories extends HTMLElement {
  #charts = [];
  #places = [];
  #drawn = [];
  #selected = null;
  #list = el("div", { class: "charts" });
  #slider = el("input", { type: "range", min: "0", step: "1", value: "0", "aria-label": "Turn of the chatbot" });
  #where = el("output", { class: "where" });
  #watch = new ResizeObserver(() => this.#draw());
  #width = 0;

  connectedCallback() {
    if (this.#list.isConnected) return;
    this.append(this.#list, el("div", { class: "scrub" }, this.#slider, this.#where));
    this.#slider.addEventListener("input", () => this.#choose(Number(this.#slider.value)));
    this.#list.addEventListener("click", (event) => this.#point(event));
    this.#watch.observe(this.#list);
  }

  disconnectedCallback() {
    this.#watch.disconnect();
  }

  show(charts, places) {
    this.#charts = charts;
    this.#places = places;
    this.#slider.max = String(Math.max(0, places.length - 1));
    this.#slider.closest(".scrub").hidden = places.length < 2;
    this.#drawn = charts.map(makeChart);
    this.#list.replaceChildren(...this.#drawn.map(({ figure }) => figure));
    this.#width = 0;
    this.#draw();
    this.select(places.includes(this.#selected) ? this.#selected : (places[0] ?? null));
  }

  /** Marks a turn in every chart; one of the user's marks the chatbot's turn before it. */
  select(index) {
    this.#selected = index;
    const place = this.#placeOf(index);
    this.#slider.value = String(Math.max(0, place));
    const told = this.#charts.map(
      (chart) =>
        `${plain(chart.name)} ${chart.paths.map((path) => whole(path.points[place]?.percentile)).join(" and ")}`,
    );
    const where = place < 0 ? "" : `${this.getAttribute("noun") ?? "Turn"} ${this.#places[place] + 1}`;
    this.#where.textContent = where;
    this.#slider.setAttribute("aria-valuetext", place < 0 ? "none" : `${where}: ${told.join(", ")}`);
    for (const { cursor, values, chart } of this.#drawn) {
      const x = place < 0 ? -10 : this.#x(place);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      values.textContent =
        place < 0 ? "" : chart.paths.map((path) => whole(path.points[place]?.percentile)).join(" · ");
    }
  }

  #placeOf(index) {
    if (index === null) return -1;
    let found = -1;
    for (let place = 0; place < this.#places.length && this.#places[place] <= index; place += 1) found = place;
    return Math.max(0, found);
  }

  #x(place) {
    const steps = Math.max(1, this.#places.length - 1);
    return this.#places.length === 1
      ? (LEFT + this.#width - EDGE) / 2
      : LEFT + (place / steps) * (this.#width - LEFT - EDGE);
  }

  #draw() {
    const width = Math.round(this.#drawn[0]?.plot.clientWidth ?? 0);
    if (!width || width === this.#width) return;
    this.#width = width;
    for (const each of this.#drawn) drawChart(each, width, (place) => this.#x(place));
    this.select(this.#selected);
  }

  #point(event) {
    const plot = event.target.closest("svg");
    if (!plot || !this.#places.length) return;
    const share = (event.clientX - plot.getBoundingClientRect().left - LEFT) / Math.max(1, this.#width - LEFT - EDGE);
    const last = this.#places.length - 1;
    this.#choose(Math.max(0, Math.min(last, Math.round(share * last))));
  }

  #choose(place) {
    const index = this.#places[place];
    this.select(index);
    this.dispatchEvent(new CustomEvent("turnselect", { detail: { index } }));
  }
}

function makeChart(chart) {
  const values = el("span", { class: "number", "aria-hidden": "true" });
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT });
  const ways = svg("g");
  const told = chart.paths.map(({ title, points }) => tell(title, points)).join("; ");
  const plot = svg(
    "svg",
    { role: "img", height: HEIGHT, "aria-label": `${plain(chart.name)} from 0 to 100. ${told}` },
    ways,
    cursor,
  );
  const name = el(
    "figcaption",
    {},
    el("span", { class: "name", text: plain(chart.name), title: SCORERS[chart.name] ?? "" }),
    values,
  );
  return { chart, values, cursor, ways, plot, figure: el("figure", {}, name, plot) };
}

/** What the chart shows, in words. */
function tell(title, points) {
  const known = points.filter((point) => point.percentile !== null);
  if (!known.length) return `${title}: no percentiles`;
  const mean = known.reduce((sum, point) => sum + point.percentile, 0) / known.length;
  const lowest = known.reduce((low, point) => (point.percentile < low.percentile ? point : low));
  return `${title}: mean ${whole(mean)}, lowest ${whole(lowest.percentile)} at turn ${lowest.index + 1}`;
}

function y(percentile) {
  return EDGE + (1 - percentile / 100) * (HEIGHT - 2 * EDGE);
}

function drawChart({ chart, ways, plot }, width, x) {
  plot.setAttribute("width", width);
  const lines = [0, 50, 100].flatMap((level) => [
    svg("line", { class: "level", x1: LEFT, x2: width - EDGE, y1: y(level), y2: y(level) }),
    svg("text", { class: "scale", x: LEFT - 6, y: y(level) + 3.5, "text-anchor": "end", text: level }),
  ]);
  if (chart.threshold !== null) {
    lines.push(
      svg("line", { class: "threshold", x1: LEFT, x2: width - EDGE, y1: y(chart.threshold), y2: y(chart.threshold) }),
    );
  }
  const drawn = chart.paths.flatMap(({ points }, number) => [
    svg("path", { class: `way way${number}`, d: pathOf(points, x) }),
    ...points.flatMap((point, place) => (isMarked(point, points.length) ? [mark(point, x(place), number)] : [])),
  ]);
  ways.replaceChildren(...lines, ...drawn);
}

function isMarked(point, all) {
  return point.percentile !== null && (all <= MOST_MARKS || point.label === "low");
}

/** Low turns are triangles; the first way's others are discs, the second's squares. */
function mark({ percentile, label }, x, number) {
  const at = y(percentile);
  if (label === "low") return svg("path", { class: "mark low", d: `M${x - 5} ${at - 4}h10l-5 9z` });
  if (number) return svg("rect", { class: "mark way1", x: x - 3, y: at - 3, width: 6, height: 6 });
  return svg("circle", { class: "mark way0", cx: x, cy: at, r: 3.2 });
}

function pathOf(points, x) {
  let isDown = false;
  return points
    .map((point, place) => {
      const step =
        point.percentile === null
          ? ""
          : `${isDown ? "L" : "M"}${x(place).toFixed(1)} ${y(point.percentile).toFixed(1)}`;
      isDown = point.percentile !== null;
      return step;
    })
    .join("");
}

customElements.define("ts-trajectories", Trajectories);
