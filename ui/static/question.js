// The picture of a question's answer: a line, bars, dots or a histogram of columns that are chosen in the address.

import { chosen, chosenAll, keep } from "./address.js";
import { labelled, loadSource, make, select } from "./dom.js";
import { draw } from "./plot.js";
import { histogram, ordered } from "./series.js";

/** @typedef {{ columns: string[], types: string[], rows: unknown[][], truncated: boolean }} Answer */
/** @typedef {import("./plot.js").Trace} Trace */
/** @typedef {import("./plot.js").Manner} Manner */

const KINDS = { line: "line", bar: "bars", scatter: "dots", histogram: "histogram" };
const MOST_BARS = 200;

/** @param {HTMLElement} section names its data in `data-source` */
export async function start(section) {
  const answer = /** @type {Answer | null} */ (await loadSource(section));
  if (!answer) return;
  const numeric = answer.columns.filter((_, column) => isNumber(answer.types[column]));
  if (answer.rows.length > 0 && numeric.length > 0) new AnswerPicture(section, answer, numeric);
  else section.append(make("p", { class: "soft" }, "No picture: the answer has no column of numbers."));
}

class AnswerPicture {
  /** @type {{ destroy(): void } | null} */ plot = null;

  /**
   * @param {HTMLElement} section
   * @param {Answer} answer
   * @param {string[]} numeric names of columns
   */
  constructor(section, answer, numeric) {
    this.answer = answer;
    const [first, second] = answer.columns;
    const kind = chosen("kind", isNumber(answer.types[0]) || isTime(answer.types[0]) ? "line" : "bar");
    const asked = chosenAll("y").filter((name) => numeric.includes(name));
    const y = asked.length ? asked : [numeric.includes(second) ? second : numeric[0]];
    this.tools = make("form", { class: "tools", "aria-label": "View of the answer" },
      labelled("picture", select("kind", KINDS, kind)),
      labelled("x", select("x", named(answer.columns), chosen("x", first))),
      make("fieldset", {}, make("legend", {}, "y"), ...numeric.map((name) =>
        make("label", {}, make("input", { type: "checkbox", name: "y", value: name, checked: y.includes(name) }), make("span", {}, name)))));
    this.place = make("div", { class: "plot", role: "img", "aria-label": "picture of the answer" }); // until it is drawn
    this.said = make("p", { class: "soft" });
    section.append(this.tools, this.place, this.said);
    this.tools.addEventListener("submit", (event) => event.preventDefault());
    this.tools.addEventListener("input", () => this.choose());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    let width = 0;
    new ResizeObserver(() => {
      if (width !== this.place.clientWidth) this.draw();
      width = this.place.clientWidth;
    }).observe(this.place);
  }

  choose() {
    const { kind, x, y } = this.view();
    keep({ kind, x, y });
    this.draw();
  }

  view() {
    const said = new FormData(this.tools);
    return { kind: String(said.get("kind")), x: String(said.get("x")), y: said.getAll("y").map(String) };
  }

  draw() {
    const { kind, x, y } = this.view();
    const { traces, manner, note } = kind === "histogram" ? histograms(this.answer, y) : pairs(this.answer, kind, x, y);
    const what = kind === "histogram" ? `histogram of ${y.join(", ")}` : `${y.join(", ")} by ${x}`;
    const parts = [`${what}; ${this.answer.rows.length} rows`, this.answer.truncated ? "the answer is cut off at its limit" : "", note];
    this.plot?.destroy();
    this.plot = y.length ? draw(this.place, traces, manner) : null;
    this.said.textContent = y.length ? parts.filter(Boolean).join("; ") : "Choose a column for y.";
    this.place.setAttribute("aria-label", this.said.textContent);
  }
}

/**
 * @param {Answer} answer
 * @param {string} kind
 * @param {string} x
 * @param {string[]} y
 * @returns {{ traces: Trace[], manner: Manner, note: string }}
 */
function pairs(answer, kind, x, y) {
  const column = answer.columns.indexOf(x);
  const type = answer.types[column] ?? "";
  const isNamed = kind === "bar" || !(isNumber(type) || isTime(type)); // each row has a place of its own
  const rows = kind === "bar" ? answer.rows.slice(0, MOST_BARS) : answer.rows;
  const places = rows.map((row, place) => (isNamed ? place : numberOf(row[column], type)));
  const traces = y.map((name, colour) => {
    const of = answer.columns.indexOf(name);
    return { name, colour, ...ordered(places, rows.map((row) => numberOf(row[of], answer.types[of]))) };
  });
  const names = isNamed ? rows.map((row) => String(row[column] ?? "null").slice(0, 24)) : undefined;
  const note = rows.length < answer.rows.length ? `the first ${rows.length} are drawn` : "";
  return { traces, manner: { kind: /** @type {Manner["kind"]} */ (kind), names, isTime: !isNamed && isTime(type) }, note };
}

/**
 * @param {Answer} answer
 * @param {string[]} y
 * @returns {{ traces: Trace[], manner: Manner, note: string }}
 */
function histograms(answer, y) {
  let step = 0; // the widest bins, if columns differ
  const traces = y.map((name, colour) => {
    const of = answer.columns.indexOf(name);
    const values = answer.rows.map((row) => numberOf(row[of], answer.types[of])).filter((value) => value !== null);
    const { from, width, counts } = histogram(values);
    step = Math.max(step, width);
    return { name, colour, x: from.map((low) => low + width / 2), y: counts };
  });
  return { traces, manner: { kind: "bar", step }, note: "" };
}

/** @param {string[]} names */
function named(names) {
  return Object.fromEntries(names.map((name) => [name, name]));
}

/** @param {string} type of DuckDB */
function isNumber(type) {
  return /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|REAL|DOUBLE|DECIMAL)/i.test(type);
}

/** @param {string} type of DuckDB */
function isTime(type) {
  return /^(TIMESTAMP|DATE)/i.test(type);
}

/**
 * A value as a number; of a time, which is UTC, Unix seconds.
 * @param {unknown} value
 * @param {string} type
 * @returns {number | null}
 */
function numberOf(value, type) {
  if (value === null || value === undefined) return null;
  const text = String(value);
  const number = isTime(type) ? Date.parse(inUtc(text)) / 1000 : Number(text);
  return Number.isFinite(number) ? number : null;
}

/**
 * A day or a time as JavaScript reads it; without a zone it is UTC.
 * @param {string} text as DuckDB and Python write it: 2026-11-23 09:08:30.125, perhaps with +00:00
 */
function inUtc(text) {
  const [day, time = "00:00"] = text.split(/[ T]/);
  return `${day}T${time}${/Z|[+-]/.test(time) ? "" : "Z"}`;
}
