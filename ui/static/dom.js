// Elements and data: all that pages are built from. Text only ever becomes a text node, never markup.

/**
 * Make an element. An attribute that is `true` is set empty, one that is `false` is left out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number | boolean>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/**
 * A labelled control of a toolbar.
 * @param {string} text
 * @param {...Node} controls
 */
export function labelled(text, ...controls) {
  return make("label", {}, make("span", {}, text), ...controls);
}

/**
 * A select with its options; `options` maps values to what is shown.
 * @param {string} name
 * @param {Record<string, string>} options
 * @param {string} chosen
 */
export function select(name, options, chosen) {
  const all = Object.entries(options).map(([value, text]) => make("option", { value, selected: value === chosen }, text));
  return make("select", { name }, ...all);
}

/**
 * A table of text, in a box that scrolls sideways.
 * @param {string} caption
 * @param {string[]} columns
 * @param {string[][]} rows
 */
export function table(caption, columns, rows) {
  const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  const whole = make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption }, whole);
}

/**
 * The text of an answer; an error says the status and what the server said about it.
 * @param {string} url
 * @returns {Promise<string>}
 */
export async function fetchText(url) {
  const answer = await fetch(url, { credentials: "same-origin", cache: "no-cache" });
  const text = await answer.text();
  if (answer.ok) return text;
  throw new Error(`${new URL(url, location.href).pathname} answered ${answer.status}: ${text.slice(0, 500)}`);
}

/**
 * What `data-source` names, parsed. A failure is shown in the element and gives `null`.
 * @param {HTMLElement} element
 * @returns {Promise<any>}
 */
export async function loadSource(element) {
  try {
    return JSON.parse(await fetchText(element.dataset.source ?? ""));
  } catch (error) {
    showProblem(element, error);
    return null;
  }
}

/**
 * Say at the top of an element what went wrong, in place of what was said before; `null` takes it away.
 * @param {HTMLElement} element
 * @param {unknown} problem
 */
export function showProblem(element, problem) {
  element.querySelector(":scope > .problem")?.remove();
  if (problem === null) return;
  element.prepend(make("p", { class: "problem", role: "alert" }, problem instanceof Error ? problem.message : String(problem)));
}

const FIGURE = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

/**
 * A figure for people: four significant digits; very large and very small ones by their power of ten.
 * @param {number | null | undefined} value
 */
export function figure(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e9) ? value.toExponential(3) : FIGURE.format(value);
}

/**
 * Unix seconds as a time of day in UTC.
 * @param {number} seconds
 */
export function utc(seconds) {
  return new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
}
