// Completion of names in a question: views, their columns, and macros, in a list under the line of the caret.
//
// The list opens while a name is typed, or by Ctrl and space. Arrow keys choose, Enter takes what is chosen, Tab takes it or
// the first, Escape closes. With the list closed, Tab and Enter do what they always do; Ctrl and Enter ask the question.

import { loadSource, make } from "./dom.js";

/** @typedef {{ views: Record<string, string[]>, macros: string[] }} Schema */
/** @typedef {{ text: string, of: string }} Name what is written, and what it belongs to */

const MOST_NAMES = 12;
const WORD = /(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)?$/; // before the caret: perhaps a view or its alias, and a name's beginning
const NAMED_VIEW = /\b(?:from|join)\s+([a-z_]\w*)(?:\s+(?:as\s+)?(?!on\b|using\b|where\b|join\b|group\b|order\b|limit\b)([a-z_]\w*))?/gi;

/** @param {HTMLTextAreaElement} field names its schema in `data-source` */
export async function start(field) {
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) field.form?.requestSubmit();
  });
  const holder = make("div", { class: "completed" });
  field.replaceWith(holder);
  holder.append(field);
  holder.dataset.source = field.dataset.source;
  const schema = /** @type {Schema | null} */ (await loadSource(holder));
  if (schema) new Completion(field, holder, schema);
}

class Completion {
  /** @type {Name[]} */ names = [];
  active = -1;

  /**
   * @param {HTMLTextAreaElement} field
   * @param {HTMLElement} holder
   * @param {Schema} schema
   */
  constructor(field, holder, schema) {
    this.field = field;
    this.schema = schema;
    this.list = make("ul", { id: "names", role: "listbox", "aria-label": "Names", hidden: true });
    holder.append(this.list);
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", "names");
    field.addEventListener("input", () => this.open(false));
    field.addEventListener("keydown", (event) => this.key(event));
    for (const leaves of ["blur", "click", "scroll"]) field.addEventListener(leaves, () => this.close());
    this.list.addEventListener("pointerdown", (event) => this.point(event));
  }

  /** @param {boolean} isAsked by a key: then all names show before one is begun */
  open(isAsked) {
    const [, owner = "", begun = ""] = this.before().match(WORD) ?? [];
    this.names = begun || owner || isAsked ? namesFor(this.schema, this.field.value, owner, begun) : [];
    this.active = -1;
    this.list.replaceChildren(...this.names.map(({ text, of }, place) =>
      make("li", { role: "option", id: `name-${place}`, "aria-selected": "false" }, make("span", {}, text), make("small", {}, of))));
    this.list.hidden = this.names.length === 0;
    this.field.removeAttribute("aria-activedescendant");
    this.put(begun.length);
  }

  close() {
    this.list.hidden = true;
    this.field.removeAttribute("aria-activedescendant");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === " " && event.ctrlKey) this.open(true);
    else if (this.list.hidden) return;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.choose(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Escape") this.close();
    else if (event.key === "Tab" && !event.shiftKey) this.take(Math.max(this.active, 0));
    else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && this.active >= 0) this.take(this.active);
    else if (/^(Arrow|Home|End|Page|Enter)/.test(event.key)) return this.close();
    else return;
    event.preventDefault();
  }

  /** @param {1 | -1} way */
  choose(way) {
    this.active = (this.active + way + this.names.length + (this.active < 0 && way < 0 ? 1 : 0)) % this.names.length;
    [...this.list.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === this.active)));
    this.list.children[this.active].scrollIntoView({ block: "nearest" });
    this.field.setAttribute("aria-activedescendant", `name-${this.active}`);
  }

  /** @param {PointerEvent} event */
  point(event) {
    event.preventDefault(); // the field keeps the focus
    const option = event.target instanceof Element ? event.target.closest("li") : null;
    if (option) this.take([...this.list.children].indexOf(option));
  }

  /** @param {number} place of the name that replaces what was begun */
  take(place) {
    const [, , begun = ""] = this.before().match(WORD) ?? [];
    const end = this.field.selectionStart;
    this.field.setSelectionRange(end - begun.length, end);
    // The only insertion that the browser's undo knows; where there is none, the text is set.
    if (!document.execCommand("insertText", false, this.names[place].text)) this.field.setRangeText(this.names[place].text, end - begun.length, end, "end");
    this.close();
  }

  before() {
    return this.field.value.slice(0, this.field.selectionStart);
  }

  /**
   * Under the caret's line, at the column where the name begins. The field does not wrap lines.
   * @param {number} numBegun characters of the name that are typed
   */
  put(numBegun) {
    const lines = this.before().split("\n");
    const style = getComputedStyle(this.field);
    const down = parseFloat(style.paddingTop) + lines.length * parseFloat(style.lineHeight) - this.field.scrollTop;
    this.list.style.top = `${this.field.offsetTop + down + 4}px`;
    this.list.style.left = `calc(${style.paddingLeft} + ${lines[lines.length - 1].length - numBegun}ch - ${this.field.scrollLeft}px)`;
  }
}

/**
 * What can be meant: behind a view or its alias its columns; else views, macros, and columns of the views in the question.
 * @param {Schema} schema
 * @param {string} question
 * @param {string} owner what stands before a dot
 * @param {string} begun
 * @returns {Name[]} first those that begin so, then those that hold it
 */
export function namesFor({ views, macros }, question, owner, begun) {
  /** @type {Map<string, string>} */ const viewOf = new Map(); // by the name that the question gives it
  for (const [, view, alias] of question.matchAll(NAMED_VIEW)) if (view in views) viewOf.set(alias ?? view, view).set(view, view);
  const named = owner ? [viewOf.get(owner) ?? owner] : [...new Set(viewOf.values())];
  const columns = named.flatMap((view) => (views[view] ?? []).map((text) => ({ text, of: view })));
  const wholes = owner ? [] : [...Object.keys(views).map((text) => ({ text, of: "view" })), ...macros.map((text) => ({ text, of: "macro" }))];
  const wanted = begun.toLowerCase();
  const fitting = [...columns, ...wholes].filter(({ text }) => text.toLowerCase().includes(wanted) && text !== begun);
  const starts = fitting.filter(({ text }) => text.toLowerCase().startsWith(wanted));
  return [...new Set([...starts, ...fitting])].slice(0, MOST_NAMES);
}
