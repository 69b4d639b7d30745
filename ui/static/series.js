// Values of curves before they are drawn: in order, smoothed, positive for a logarithmic axis, counted for a histogram.

/** @typedef {(number | null)[]} Values */

/**
 * Points in ascending order of x; a point without x has no place and is left out.
 * @param {Values} x
 * @param {Values} y
 * @returns {{ x: number[], y: Values }}
 */
export function ordered(x, y) {
  const places = [...y.keys()].filter((place) => x[place] !== null && x[place] !== undefined);
  places.sort((one, other) => Number(x[one]) - Number(x[other]));
  return { x: places.map((place) => Number(x[place])), y: places.map((place) => y[place]) };
}

/**
 * Exponential moving average, debiased: divided by 1 - weight^n after n values, because it starts at zero. Gaps stay, and
 * a constant series is returned as it is. Source: TensorBoard, webapp/widgets/line_chart_v2/data_transformer.ts,
 * classicSmoothing.
 * @param {Values} values
 * @param {number} weight 0 (the values themselves) to below 1
 * @returns {Values}
 */
export function smoothed(values, weight) {
  if (weight === 0 || values.every((value) => value === values[0])) return values;
  let average = 0;
  let bias = 1; // weight^n
  return values.map((value) => {
    if (value === null) return null;
    average = average * weight + value * (1 - weight);
    bias *= weight;
    return average / (1 - bias);
  });
}

/**
 * What a logarithmic axis can show.
 * @param {Values} values
 * @returns {Values}
 */
export function positive(values) {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}

const MOST_BINS = 60;

/**
 * Counts of values in bins of equal width: about the square root of their number, 60 at most.
 * @param {number[]} values
 * @returns {{ from: number[], width: number, counts: number[] }} lower edges, width, and how many values each bin has
 */
export function histogram(values) {
  const low = values.reduce((least, value) => Math.min(least, value), Infinity);
  const high = values.reduce((most, value) => Math.max(most, value), -Infinity);
  if (values.length === 0) return { from: [], width: 1, counts: [] };
  const bins = high === low ? 1 : Math.min(Math.ceil(Math.sqrt(values.length)), MOST_BINS);
  const width = high === low ? 1 : (high - low) / bins;
  const counts = new Array(bins).fill(0);
  for (const value of values) counts[Math.min(Math.floor((value - low) / width), bins - 1)] += 1;
  return { from: counts.map((_, bin) => low + bin * width), width, counts };
}
