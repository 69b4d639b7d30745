// All tokens of a call in reading order. They are cut into chunks of some hundred, and a chunk has elements only while it
// is near the window; until then an estimate of its height holds its place. So 100,000 tokens cost what is seen of them.

import { make } from "./dom.js";

/**
 * One call. All arrays have a place for each token; where nothing is known of a token, `null`.
 * @typedef {object} Tokens
 * @property {string[]} pieces
 * @property {number[]} ids
 * @property {(number | null)[]} logprobs natural logarithm; of output tokens
 * @property {(number | null)[]} versions of the weights that sampled the token
 * @property {(0 | 1 | null)[]} trained
 * @property {(string | null)[]} masks whether a round trained on the token, or why not
 * @property {(number | null)[]} advantages
 * @property {(number | null)[]} trainer_logprobs natural logarithm, under the weights that were trained
 * @property {(number | null)[]} ratios of probabilities, the trainer's to those before
 * @property {(number | null)[]} entropies nats
 * @property {number} output_start the first token of the answer
 * @property {string} note
 */

/** @typedef {{ start: number, end: number, box: HTMLElement, spans: HTMLElement[] }} Chunk */
/** @typedef {(token: number) => string} Paint gives the class of a token's colour, or "" */

const FULL = 256; // tokens after which a chunk ends at the next line's end
const OVERFULL = 768; // tokens after which it ends in any case
const NEAR = "1200px";

export class Strip {
  /** @type {Chunk[]} */ chunks = [];
  /** @type {Map<Element, Chunk>} */ chunkOfBox = new Map();
  marked = -1;

  /**
   * @param {Tokens} tokens
   * @param {Paint} paint
   */
  constructor(tokens, paint) {
    this.tokens = tokens;
    this.paint = paint;
    this.element = make("div", { class: "strip", tabindex: 0, role: "group", "aria-label": "Tokens in reading order; arrow keys move" });
    this.sight = new IntersectionObserver((seen) => this.see(seen), { rootMargin: NEAR });
    for (const [start, end] of cut(tokens.pieces)) this.addChunk(start, end);
    this.element.append(...this.chunks.map((chunk) => chunk.box));
  }

  /** Once the element is in the page: give chunks their estimated heights and build those in sight. */
  open() {
    this.estimate();
    for (const { box } of this.chunks) this.sight.observe(box);
  }

  /** Heights by the number of lines that the text takes in the strip's width. */
  estimate() {
    const ruler = make("span", {}, "0".repeat(100));
    this.element.append(ruler);
    const { width, height } = ruler.getBoundingClientRect();
    ruler.remove();
    const columns = Math.max(Math.floor(this.element.clientWidth / (width / 100 || 8)), 8);
    const lineHeight = parseFloat(getComputedStyle(this.element).lineHeight) || height;
    for (const { start, end, box, spans } of this.chunks) {
      if (spans.length === 0) box.style.height = `${linesOf(this.tokens.pieces, start, end, columns) * lineHeight}px`;
    }
  }

  /**
   * @param {number} start
   * @param {number} end
   */
  addChunk(start, end) {
    const chunk = { start, end, box: make("div", { class: "chunk" }), spans: [] };
    this.chunks.push(chunk);
    this.chunkOfBox.set(chunk.box, chunk);
  }

  /** @param {IntersectionObserverEntry[]} seen */
  see(seen) {
    for (const { target, isIntersecting, boundingClientRect } of seen) {
      const chunk = this.chunkOfBox.get(target);
      if (!chunk) continue;
      if (isIntersecting) this.build(chunk);
      else if (chunk.spans.length > 0) this.drop(chunk, boundingClientRect.height);
    }
  }

  /** @param {Chunk} chunk */
  build(chunk) {
    if (chunk.spans.length > 0) return;
    const { pieces, ids, versions, output_start } = this.tokens;
    const content = document.createDocumentFragment();
    for (let token = chunk.start; token < chunk.end; token += 1) {
      const span = document.createElement("span");
      span.textContent = visible(pieces[token]) || `⟨${ids[token]}⟩`;
      span.className = `${token < output_start ? "prompt " : ""}${token === this.marked ? "marked " : ""}${this.paint(token)}`;
      chunk.spans.push(span);
      if (isBoundary(this.tokens, token)) content.append(make("b", { class: "boundary" }, `v${versions[token]}`));
      content.append(span);
    }
    chunk.box.replaceChildren(content);
    chunk.box.style.height = "";
  }

  /**
   * @param {Chunk} chunk
   * @param {number} height that it had, in CSS pixels
   */
  drop(chunk, height) {
    chunk.spans = [];
    chunk.box.replaceChildren();
    chunk.box.style.height = `${height}px`;
  }

  /**
   * Colour all tokens anew.
   * @param {Paint} paint
   */
  repaint(paint) {
    this.paint = paint;
    for (const chunk of this.chunks.filter(({ spans }) => spans.length > 0)) {
      chunk.spans = [];
      this.build(chunk);
    }
  }

  /**
   * The token that an element of the strip shows.
   * @param {EventTarget | null} target
   * @returns {number | null}
   */
  tokenAt(target) {
    if (!(target instanceof HTMLElement) || !target.parentElement) return null;
    const chunk = this.chunkOfBox.get(target.parentElement);
    const place = chunk ? chunk.spans.indexOf(target) : -1;
    return chunk && place >= 0 ? chunk.start + place : null;
  }

  /**
   * Mark a token, and only it.
   * @param {number} token
   * @returns {HTMLElement} its element
   */
  mark(token) {
    this.element.querySelector(".marked")?.classList.remove("marked");
    this.marked = token;
    const chunk = /** @type {Chunk} */ (this.chunks.findLast(({ start }) => start <= token));
    this.build(chunk);
    const span = chunk.spans[token - chunk.start];
    span.classList.add("marked");
    return span;
  }
}

/**
 * Where chunks begin and end: behind a line's end if one comes in time.
 * @param {string[]} pieces
 * @returns {[number, number][]}
 */
export function cut(pieces) {
  /** @type {[number, number][]} */ const chunks = [];
  let start = 0;
  for (let token = 0; token < pieces.length; token += 1) {
    const length = token + 1 - start;
    if ((length >= FULL && pieces[token].endsWith("\n")) || length >= OVERFULL || token + 1 === pieces.length) {
      chunks.push([start, token + 1]);
      start = token + 1;
    }
  }
  return chunks;
}

/**
 * How many lines the text of some tokens takes at a width in columns.
 * @param {string[]} pieces
 * @param {number} start
 * @param {number} end
 * @param {number} columns
 */
export function linesOf(pieces, start, end, columns) {
  const lines = pieces.slice(start, end).join("").replace(/\n$/, "").split("\n");
  return lines.reduce((sum, line) => sum + Math.max(Math.ceil(line.length / columns), 1), 0);
}

/**
 * Whether other weights sampled this token than the one before it.
 * @param {Tokens} tokens
 * @param {number} token
 */
function isBoundary({ versions, output_start }, token) {
  return token > output_start && versions[token] !== versions[token - 1] && versions[token] !== null;
}

/**
 * Text in which every character that one cannot see is spelled by its code, except the space. So no text can turn the
 * direction of what stands around it, or hide.
 * @param {string} text
 */
export function spelled(text) {
  return text.replace(/(?! )[\p{C}\p{Z}]/gu, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}

/**
 * A piece as the strip shows it: its line ends are seen, and break the line.
 * @param {string} piece
 */
function visible(piece) {
  return piece.split(/([\n\t])/).map((part) => ({ "\n": "⏎\n", "\t": "\t" })[part] ?? spelled(part)).join("");
}
