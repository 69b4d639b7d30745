// Curves of runs: a picture for each series with all runs over each other, and a table beside it. What is chosen (axis,
// smoothing, names, zoom, runs) is in the address. When the store changes, data are fetched again and the view stays.

import { chosen, chosenAll, keep } from "./address.js";
import { fetchText, figure, labelled, make, select, showProblem, table, utc } from "./dom.js";
import { NUM_COLOURS, draw } from "./plot.js";
import { ordered, positive, smoothed } from "./series.js";

/** @typedef {import("./series.js").Values} Values */
/** @typedef {import("./plot.js").Range} Range */
/** @typedef {{ name: string, round: Values, time: Values, series: Record<string, Values> }} Run */
/** @typedef {{ x: string, smooth: number, isLog: boolean, names: string, zoom: Range | null, hidden: string[], more: boolean }} View */
/** @typedef {{ name: string, figure: HTMLElement, plot: { destroy(): void } | null, isNear: boolean }} Picture */

const FIRST = [ // what people look at first, in this order; other series are below, folded
  /^reward(_mean)?$/, /^correct$/, /^correct_at_k\./, /^fast_p\./, /^kl/, /^entropy$/, /^clip_(low|high)$/, /^loss$/, /^grad_norm$/,
  /^output_tokens_per_sample$/, /^staleness_mean$/, /^tokens_per_s$/, /^idle_share$/, /^seconds\.(judge|train|publish)$/,
];
const AXES = { round: "round", time: "time" };
const MOST_SMOOTHING = 0.99;
const MOST_ROWS = 500; // of a table: the newest ones
const HINT = "Drag to zoom, double click for all. In a picture: + − zoom, ← → move, 0 shows all.";

/** @param {HTMLElement} section names its data in `data-source` */
export function start(section) {
  new Curves(section).renew();
}

class Curves {
  /** @type {Run[]} */ runs = [];
  /** @type {Map<string, Picture>} */ pictures = new Map();
  /** @type {View} */ view = viewOfAddress();
  received = "";
  width = 0;

  /** @param {HTMLElement} section */
  constructor(section) {
    this.section = section;
    this.tools = make("form", { class: "tools", "aria-label": "View of the curves" });
    this.place = make("div", { class: "pictures" });
    this.others = make("div", { class: "pictures" });
    this.more = make("details", { class: "more", hidden: true, open: this.view.more }, make("summary"), this.others);
    section.append(this.tools, this.place, this.more);
    this.sight = new IntersectionObserver((seen) => this.see(seen), { rootMargin: "300px" });
    this.makeTools();
    this.more.addEventListener("toggle", () => this.keepMore());
    document.addEventListener("weir:changed", () => this.renew());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  /** Pictures are as wide as their place. */
  fit() {
    if (this.place.clientWidth === this.width) return;
    this.width = this.place.clientWidth;
    this.draw();
  }

  /** Fetch the data, and show them if they are others than before. */
  async renew() {
    try {
      const text = await fetchText(this.section.dataset.source ?? "");
      const { runs, unread } = JSON.parse(text);
      const lost = Object.entries(unread ?? {}).map(([name, why]) => `${name}: ${why}`);
      showProblem(this.section, lost.length > 0 ? `Not read: ${lost.join("; ")}` : null);
      if (text === this.received) return;
      this.received = text;
      this.runs = runs;
      this.makeRunChoice();
      this.arrange();
    } catch (error) {
      showProblem(this.section, error);
    }
  }

  makeTools() {
    const { view } = this;
    const smooth = make("input", { type: "range", name: "smooth", min: 0, max: MOST_SMOOTHING, step: 0.01, value: view.smooth });
    this.tools.append(
      labelled("x axis", select("x", AXES, view.x)),
      labelled("smoothing", smooth, make("output", { class: "smooth" }, String(view.smooth))),
      labelled("log axis", make("input", { type: "checkbox", name: "log", checked: view.isLog })),
      labelled("names", make("input", { type: "search", name: "names", value: view.names, placeholder: "reward kl", size: 16 })),
      make("button", { type: "button", name: "all", disabled: view.zoom === null }, "show all"),
      make("fieldset", { class: "runs", hidden: true }, make("legend", {}, "runs")),
      make("p", { class: "soft" }, HINT),
    );
    this.tools.addEventListener("submit", (event) => event.preventDefault());
    this.tools.addEventListener("input", () => this.choose());
    this.tools.querySelector("button")?.addEventListener("click", () => this.zoom(null));
  }

  makeRunChoice() {
    const choices = this.tools.querySelector("fieldset");
    choices?.querySelectorAll("label").forEach((label) => label.remove());
    this.runs.forEach(({ name }, number) => {
      const box = make("input", { type: "checkbox", name: "run", value: name, checked: !this.view.hidden.includes(name) });
      choices?.append(make("label", {}, box, swatch(number), make("span", {}, name)));
    });
    choices?.toggleAttribute("hidden", this.runs.length < 2);
  }

  /** Take over what the tools say. */
  choose() {
    const said = new FormData(this.tools);
    const x = String(said.get("x"));
    const shown = said.getAll("run");
    this.view = {
      x,
      smooth: Number(said.get("smooth")),
      isLog: said.has("log"),
      names: String(said.get("names")).trim(),
      zoom: x === this.view.x ? this.view.zoom : null,
      hidden: this.runs.map((run) => run.name).filter((name) => !shown.includes(name)),
      more: this.view.more,
    };
    this.keepView();
  }

  /** @param {Range | null} range of the x axis; `null` shows all */
  zoom(range) {
    this.view.zoom = range;
    this.keepView();
  }

  keepView() {
    const { x, smooth, isLog, names, zoom, hidden } = this.view;
    keep({ x: x === "round" ? "" : x, smooth: smooth ? String(smooth) : "", log: isLog ? "1" : "", names,
      zoom: zoom ? zoom.map((end) => String(Number(end.toPrecision(12)))).join("..") : "", hidden });
    const output = this.tools.querySelector("output");
    if (output) output.textContent = String(smooth);
    this.tools.querySelector("button")?.toggleAttribute("disabled", zoom === null);
    this.arrange();
  }

  /** Whether the folded series are shown, in the address. */
  keepMore() {
    if (this.view.names === "") this.view.more = this.more.open;
    keep({ more: this.view.more ? "1" : "" });
  }

  /** A figure for each series that is asked for: first what people look at first; those that are there stay. */
  arrange() {
    const words = this.view.names.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...new Set(this.runs.flatMap((run) => Object.keys(run.series)))];
    const asked = all.filter((name) => words.length === 0 || words.some((word) => name.toLowerCase().includes(word)));
    const isFlat = words.length > 0 || !asked.some((name) => rankOf(name) < FIRST.length); // then nothing is folded
    const first = asked.filter((name) => isFlat || rankOf(name) < FIRST.length).sort((one, other) => rankOf(one) - rankOf(other) || one.localeCompare(other, "en", { numeric: true }));
    const folded = asked.filter((name) => !first.includes(name));
    for (const [name, { figure }] of this.pictures) figure.hidden = !asked.includes(name);
    this.fill(this.place, first);
    this.fill(this.others, folded);
    this.more.hidden = folded.length === 0;
    /** @type {HTMLElement} */ (this.more.firstElementChild).textContent = `${folded.length} more series`;
    this.place.dataset.empty = all.length === 0 ? "No round has been trained yet." : asked.length === 0 ? "No series has such a name." : "";
    this.draw();
  }

  /**
   * Put the figures of series into a place, in this order; one that is where it belongs is not moved, so it keeps the focus.
   * @param {HTMLElement} place
   * @param {string[]} names
   */
  fill(place, names) {
    names.forEach((name, at) => {
      const { figure } = this.pictures.get(name) ?? this.add(name);
      if (place.children[at] !== figure) place.insertBefore(figure, place.children[at] ?? null);
    });
  }

  /**
   * @param {string} name
   * @returns {Picture}
   */
  add(name) {
    const plot = make("div", { class: "plot", role: "img", tabindex: 0, "aria-label": name }); // until it is drawn
    const details = make("details", {}, make("summary", {}, "table"));
    const caption = make("figcaption", {}, make("h3", {}, name), make("output", { "aria-live": "off" }));
    const whole = make("figure", { "data-series": name }, caption, plot, details);
    details.addEventListener("toggle", () => this.fillTable(name, details));
    plot.addEventListener("keydown", (event) => this.zoomByKey(event));
    const picture = { name, figure: whole, plot: null, isNear: false };
    this.pictures.set(name, picture);
    this.sight.observe(whole);
    return picture;
  }

  /** @param {IntersectionObserverEntry[]} seen */
  see(seen) {
    for (const { target, isIntersecting } of seen) {
      const picture = this.pictures.get(target.getAttribute("data-series") ?? "");
      if (!picture) continue;
      picture.isNear = isIntersecting;
      if (isIntersecting && !picture.plot) this.drawOne(picture);
    }
  }

  /** Draw what is near the window anew; other pictures are drawn when they come near. */
  draw() {
    for (const picture of this.pictures.values()) {
      picture.plot?.destroy();
      picture.plot = null;
      if (picture.isNear && !picture.figure.hidden) this.drawOne(picture);
      const details = picture.figure.querySelector("details");
      if (details?.open) this.fillTable(picture.name, details);
    }
  }

  /** @param {Picture} picture */
  drawOne(picture) {
    const { x, isLog, zoom } = this.view;
    const place = /** @type {HTMLElement} */ (picture.figure.querySelector(".plot"));
    const output = /** @type {HTMLElement} */ (picture.figure.querySelector("output"));
    const curves = this.curvesOf(picture.name);
    const front = curves.map(({ run, number, points }) => ({ name: run.name, x: points.x, y: smoothed(points.y, this.view.smooth), colour: number }));
    const behind = curves.map(({ run, number, points }) => ({ name: run.name, x: points.x, y: points.y, colour: number, isFaint: true }));
    const traces = this.view.smooth > 0 ? [...behind, ...front] : front;
    const dropped = curves.reduce((sum, { numDropped }) => sum + numDropped, 0);
    const latest = front.map(({ y }) => y.findLast((value) => value !== null) ?? null);
    const atRest = () => (dropped ? [`${dropped} values ≤ 0 are not on a log axis`] : figures(front, latest));
    place.setAttribute("aria-label", `${picture.name} by ${x}, latest: ${latest.map(figure).join(", ")}; the table below has all values`);
    output.replaceChildren(...atRest());
    picture.plot = draw(place, traces, {
      kind: "line",
      isTime: x === "time",
      isLog,
      zoom,
      onZoom: (range) => queueMicrotask(() => this.zoom(range)), // after the picture's own handling of the pointer
      onPoint: (values, at) =>
        output.replaceChildren(...(at === null ? atRest() : [`${x} ${this.placeOf(at)}: `, ...figures(front, values.slice(-front.length))])),
    });
  }

  /**
   * The points of a series in every run that has it and is shown.
   * @param {string} name
   */
  curvesOf(name) {
    const numbered = this.runs.map((run, number) => ({ run, number }));
    return numbered.filter(({ run }) => run.series[name] && !this.view.hidden.includes(run.name)).map(({ run, number }) => {
      const points = ordered(this.view.x === "time" ? run.time : run.round, run.series[name]);
      const y = this.view.isLog ? positive(points.y) : points.y;
      const numDropped = y.filter((value, at) => value === null && points.y[at] !== null).length;
      return { run, number, points: { x: points.x, y }, numDropped };
    });
  }

  /**
   * @param {string} name
   * @param {HTMLDetailsElement} details
   */
  fillTable(name, details) {
    details.querySelector(".wide")?.remove();
    if (!details.open) return;
    const curves = this.curvesOf(name);
    const places = [...new Set(curves.flatMap(({ points }) => points.x))].sort((one, other) => other - one);
    const columns = curves.map(({ run, points }) => ({ run, at: new Map(points.x.map((x, place) => [x, points.y[place]])) }));
    const rows = places.slice(0, MOST_ROWS).map((x) => [this.placeOf(x), ...columns.map(({ at }) => figure(at.get(x)))]);
    const caption = places.length > MOST_ROWS ? `${name}: the newest ${MOST_ROWS} of ${places.length}` : name;
    details.append(table(caption, [this.view.x, ...columns.map(({ run }) => run.name)], rows));
  }

  /** @param {number} x */
  placeOf(x) {
    return this.view.x === "time" ? utc(x) : String(x);
  }

  /** @param {KeyboardEvent} event */
  zoomByKey(event) {
    const places = this.runs.flatMap((run) => (this.view.x === "time" ? run.time : run.round)).filter((x) => x !== null);
    const [low, high] = this.view.zoom ?? [Math.min(...places), Math.max(...places)];
    const step = (high - low) / 4;
    /** @type {Record<string, Range | null>} */
    const ranges = { "+": [low + step, high - step], "-": [low - step, high + step], ArrowLeft: [low - step, high - step],
      ArrowRight: [low + step, high + step], 0: null };
    if (event.ctrlKey || event.metaKey || !(event.key in ranges)) return;
    event.preventDefault();
    this.zoom(ranges[event.key]);
  }
}

/** @returns {View} */
function viewOfAddress() {
  const ends = chosen("zoom", "").split("..").map(Number);
  const smooth = Math.min(Math.max(Number(chosen("smooth", "0")) || 0, 0), MOST_SMOOTHING);
  return {
    x: chosen("x", "round") === "time" ? "time" : "round",
    smooth,
    isLog: chosen("log", "") === "1",
    names: chosen("names", ""),
    zoom: ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1] ? [ends[0], ends[1]] : null,
    hidden: chosenAll("hidden"),
    more: chosen("more", "") === "1",
  };
}

/** @param {string} name of a series */
function rankOf(name) {
  const rank = FIRST.findIndex((pattern) => pattern.test(name));
  return rank < 0 ? FIRST.length : rank;
}

/**
 * A value of each run, by its colour if there are several.
 * @param {import("./plot.js").Trace[]} traces
 * @param {Values} values
 */
function figures(traces, values) {
  return traces.flatMap(({ colour }, at) => [...(traces.length > 1 ? [swatch(colour)] : []), `${figure(values[at]) || "–"} `]);
}

/** @param {number} number of the run */
function swatch(number) {
  return make("i", { class: `swatch series-${number % NUM_COLOURS}${number >= NUM_COLOURS ? " dashed" : ""}`, "aria-hidden": "true" });
}
