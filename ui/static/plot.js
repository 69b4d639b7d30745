// One picture: lines, bars or dots over a common x axis, drawn by uPlot in the page's colours.

import { utc } from "./dom.js";
import uPlot from "./vendor/uplot-1.6.32/uPlot.esm.js";

/** @typedef {import("./series.js").Values} Values */
/** @typedef {[number, number]} Range */

/**
 * Points that belong together. Colours are numbers of the page's series colours; the ninth one is the first, dashed.
 * @typedef {object} Trace
 * @property {string} name
 * @property {number[]} x ascending
 * @property {Values} y as many as x
 * @property {number} colour
 * @property {boolean} [isFaint] drawn behind the others, without dots
 */

/**
 * @typedef {object} Manner
 * @property {"line" | "bar" | "scatter"} kind
 * @property {boolean} [isTime] x is Unix seconds, shown in UTC
 * @property {boolean} [isLog] the y axis is logarithmic
 * @property {string[]} [names] what the x axis shows for 0, 1, 2 and so on, in place of numbers
 * @property {number} [step] the width of bars that touch each other, as a histogram's do
 * @property {Range | null} [zoom] the part of the x axis that is shown; all of it without
 * @property {(range: Range | null) => void} [onZoom] dragging chose a range, a double click chose all
 * @property {(values: (number | null)[], x: number | null) => void} [onPoint] under the pointer: of each trace, or none
 */

export const NUM_COLOURS = 8;
const HEIGHT = 190; // CSS pixels
const WHOLE_STEPS = Array.from({ length: 48 }, (_, at) => [1, 2, 2.5, 5][at % 4] * 10 ** Math.floor(at / 4)).filter(Number.isInteger);
const FONT = "11px system-ui, sans-serif";
const CHARACTER = 6.5; // about its width in that font, CSS pixels

/**
 * Draw traces into an element that is empty; its width is the picture's.
 * @param {HTMLElement} place
 * @param {Trace[]} traces
 * @param {Manner} manner
 * @returns {uPlot} `destroy()` takes the picture away
 */
export function draw(place, traces, manner) {
  const plot = new uPlot(
    {
      width: Math.max(place.clientWidth, 120),
      height: HEIGHT,
      padding: [null, manner.isTime ? 32 : null, null, null],
      legend: { show: false },
      cursor: { y: false, drag: { x: manner.onZoom !== undefined, y: false, setScale: false }, bind: { dblclick: () => () => showAll(manner) } },
      scales: { x: { time: manner.isTime ?? false, range: (_, low, high) => xRange(low, high, manner) }, y: yScale(manner) },
      axes: [{ ...axis(), ...labels(manner, traces) }, { ...axis(), size: labelWidth, values: (_, ticks) => ticks.map(heightText) }],
      series: [{}, ...traces.map((trace) => look(trace, manner, traces.length > 1))],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      hooks: {
        setSelect: [(drawn) => selected(drawn, manner)],
        setCursor: [(drawn) => manner.onPoint?.(...underPointer(drawn))],
      },
    },
    joined(traces, manner),
    place,
  );
  return plot;
}

/** @param {Manner} manner */
function showAll(manner) {
  manner.onZoom?.(null);
  return null;
}

/**
 * Dots may share an x, lines and bars do not.
 * @param {Trace[]} traces
 * @param {Manner} manner
 * @returns {uPlot.AlignedData}
 */
function joined(traces, manner) {
  if (manner.kind === "scatter" && traces.length === 1) return [traces[0].x, traces[0].y];
  return traces.length === 0 ? [[]] : uPlot.join(traces.map((trace) => [trace.x, trace.y]));
}

/**
 * @param {number | null} low
 * @param {number | null} high
 * @param {Manner} manner
 * @returns {Range}
 */
function xRange(low, high, manner) {
  if (manner.zoom) return manner.zoom;
  if (low === null || high === null) return [0, 1];
  const margin = manner.kind === "bar" || low === high ? 0.6 * (manner.step ?? 1) : manner.kind === "scatter" ? (high - low) / 40 : 0;
  return [low - margin, high + margin];
}

/**
 * Bars stand on zero.
 * @param {Manner} manner
 * @returns {uPlot.Scale}
 */
function yScale(manner) {
  if (manner.kind !== "bar") return { distr: manner.isLog ? 3 : 1 };
  return { range: (_, low, high) => uPlot.rangeNum(Math.min(low ?? 0, 0), Math.max(high ?? 1, 0), 0.05, true) };
}

/**
 * @param {Trace} trace
 * @param {Manner} manner
 * @param {boolean} isCovered whether others may stand behind
 * @returns {uPlot.Series}
 */
function look(trace, manner, isCovered) {
  const stroke = () => colour(`--series-${trace.colour % NUM_COLOURS}`) + (trace.isFaint ? "55" : "");
  const dash = trace.colour >= NUM_COLOURS ? [6, 4] : undefined;
  const fill = () => stroke() + (isCovered ? "88" : "");
  if (manner.kind === "bar") return { stroke, fill, paths: uPlot.paths.bars?.({ size: manner.step ? [1, Infinity] : [0.85, 80] }), points: { show: false } };
  if (manner.kind === "scatter") return { stroke, paths: () => null, points: { show: true, size: 5, fill: stroke } };
  return { stroke, width: trace.isFaint ? 1 : 1.75, dash, points: { size: 4, fill: stroke, ...(trace.isFaint && { show: false }) } };
}

/** @returns {uPlot.Axis} */
function axis() {
  const lines = { stroke: () => colour("--faint"), width: 1 };
  return { stroke: () => colour("--soft"), font: FONT, grid: lines, ticks: { ...lines, size: 4 } };
}

/**
 * What stands under the x axis: numbers (no parts of them where all x are whole, as rounds are), names, or times of the
 * day with their day in a second line.
 * @param {Manner} manner
 * @param {Trace[]} traces
 * @returns {uPlot.Axis}
 */
function labels({ names, isTime }, traces) {
  if (isTime) return { values: (_, ticks) => times(ticks), size: 44, space: 70 };
  if (names) return { values: (_, ticks) => ticks.map((tick) => names[tick] ?? ""), size: 30, space: 60, incrs: [1, 2, 5, 10, 20, 50] };
  const isWhole = traces.every(({ x }) => x.every((value) => value === null || Number.isInteger(value)));
  return isWhole ? { size: 30, incrs: WHOLE_STEPS } : { size: 30 };
}

/**
 * A number of the y axis: small ones too have digits of their own, where uPlot rounds to three decimals.
 * @param {number | null} value
 */
export function heightText(value) {
  if (value === null) return "";
  const short = Number(value.toPrecision(6));
  return short !== 0 && Math.abs(short) < 0.001 ? short.toExponential() : short.toLocaleString("en-US", { maximumFractionDigits: 8 });
}

/** @param {number[]} ticks Unix seconds */
function times(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  const parts = ticks.map((tick) => utc(tick).split(" "));
  return parts.map(([day, time], at) => {
    if (step >= 86400) return day;
    return (step < 60 ? time : time.slice(0, 5)) + (day === parts[at - 1]?.[0] ? "" : `\n${day}`);
  });
}

/**
 * @param {uPlot} _
 * @param {string[] | null} texts
 */
function labelWidth(_, texts) {
  return 16 + CHARACTER * Math.max(3, ...(texts ?? []).map((text) => text?.length ?? 0));
}

/**
 * @param {uPlot} plot
 * @param {Manner} manner
 */
function selected(plot, manner) {
  const { left, width } = plot.select;
  if (width > 2) manner.onZoom?.([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
}

/**
 * @param {uPlot} plot
 * @returns {[(number | null)[], number | null]}
 */
function underPointer(plot) {
  const at = plot.cursor.idx;
  if (at === null || at === undefined) return [[], null];
  return [plot.data.slice(1).map((values) => values[at] ?? null), plot.data[0][at]];
}

/**
 * A colour of the style sheet, as it is now: the canvas knows no variables.
 * @param {string} name
 */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
