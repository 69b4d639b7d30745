// The tokens of one call: a strip coloured by a value, and beside it everything that is known of the token under the
// pointer, or of the one that keys have chosen. The chosen token and the colour are in the address.

import { chosen, keep } from "./address.js";
import { figure, labelled, loadSource, make, select } from "./dom.js";
import { Strip, spelled } from "./strip.js";

/** @typedef {import("./strip.js").Tokens} Tokens */

const COLOURS = { logprob: "logprob", version: "weight version", trained: "trained", mask: "mask", advantage: "advantage", ratio: "ratio", entropy: "entropy" };
const OF_ROUND = /** @type {const} */ (["masks", "advantages", "trainer_logprobs", "ratios", "entropies"]);
const ADVANTAGES = [2, 1, 0.5, 0]; // sizes above which an advantage is of class 0, 1 and so on
const RATIOS = [0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1]; // distances of the logarithm from 0, by class
const ENTROPIES = [0.05, 0.2, 0.5, 1, 1.5, 2, 3]; // nats, by class
const LOGPROBS = [-0.01, -0.1, -0.5, -1, -2, -4, -8]; // lower ends of the classes p0, p1 and so on; below the last is p7
const NUM_VERSION_COLOURS = 8;
const DRAWN = "weir:tokens drawn"; // a measure of the browser: from data to elements

/** @param {HTMLElement} section names its data in `data-source` */
export async function start(section) {
  const tokens = /** @type {Tokens | null} */ (await loadSource(section));
  if (tokens) for (const name of OF_ROUND) tokens[name] ??= new Array(tokens.pieces.length).fill(null);
  if (tokens && tokens.pieces.length > 0) new Call(section, tokens);
  else if (tokens) section.append(make("p", { class: "soft" }, tokens.note || "This call has no recorded tokens."));
}

class Call {
  /**
   * @param {HTMLElement} section
   * @param {Tokens} tokens
   */
  constructor(section, tokens) {
    const began = performance.now();
    this.tokens = tokens;
    this.versions = [...new Set(tokens.versions.filter((version) => version !== null))];
    this.masks = [...new Set(tokens.masks.filter((mask) => mask !== null))];
    this.colour = chosen("colour", "logprob") in COLOURS ? chosen("colour", "logprob") : "logprob";
    this.last = tokens.pieces.length - 1;
    this.strip = new Strip(tokens, this.paint());
    this.panel = document.getElementById("token") ?? make("aside", { id: "token", "aria-live": "polite" });
    this.legend = make("p", { class: "legend" });
    this.place = make("input", { type: "range", name: "place", min: 0, max: this.last, value: tokens.output_start });
    const tools = make("form", { class: "tools" }, labelled("colour", select("colour", COLOURS, this.colour)), labelled("token", this.place), this.legend);
    const note = tokens.note ? [make("p", { class: "note" }, tokens.note)] : [];
    section.append(...note, tools, this.strip.element);
    if (!this.panel.isConnected) section.append(this.panel);
    this.strip.open();
    this.showLegend();
    this.listen(tools);
    this.restore();
    performance.measure(DRAWN, { start: began });
  }

  /** @param {HTMLFormElement} tools */
  listen(tools) {
    const { element } = this.strip;
    tools.addEventListener("submit", (event) => event.preventDefault());
    tools.querySelector("select")?.addEventListener("change", (event) => this.choose(/** @type {HTMLSelectElement} */ (event.target).value));
    this.place.addEventListener("input", () => this.go(Number(this.place.value)));
    element.addEventListener("pointerover", (event) => this.show(this.strip.tokenAt(event.target)));
    element.addEventListener("pointerleave", () => this.show(this.strip.marked));
    element.addEventListener("click", (event) => this.go(this.strip.tokenAt(event.target)));
    element.addEventListener("keydown", (event) => this.move(event));
    let width = element.clientWidth;
    new ResizeObserver(() => {
      if (width !== element.clientWidth) this.strip.estimate();
      width = element.clientWidth;
    }).observe(element);
  }

  /** The token that the address names. */
  restore() {
    const token = Number(chosen("token", "-1"));
    if (Number.isInteger(token) && token >= 0 && token <= this.last) this.go(token);
  }

  /** @param {string} colour one of COLOURS */
  choose(colour) {
    this.colour = colour;
    keep({ colour: colour === "logprob" ? "" : colour });
    this.strip.repaint(this.paint());
    this.showLegend();
  }

  /** @returns {import("./strip.js").Paint} */
  paint() {
    const { logprobs, versions, trained, masks, advantages, ratios, entropies } = this.tokens;
    if (this.colour === "mask") return (token) => this.maskClass(masks[token]);
    if (this.colour === "advantage") return (token) => advantageClass(advantages[token]);
    if (this.colour === "ratio") return (token) => sizeClass(distance(ratios[token]), RATIOS);
    if (this.colour === "entropy") return (token) => sizeClass(entropies[token], ENTROPIES);
    if (this.colour === "version") return (token) => (versions[token] === null ? "" : this.versionClass(versions[token]));
    if (this.colour === "trained") return (token) => (trained[token] === null ? "" : `t${trained[token]}`);
    return (token) => logprobClass(logprobs[token]);
  }

  /** @param {number} version */
  versionClass(version) {
    return `v${this.versions.indexOf(version) % NUM_VERSION_COLOURS}`;
  }

  /** @param {string | null} mask */
  maskClass(mask) {
    return mask === null ? "" : mask === "trained" ? "t1" : mask === "prompt" ? "" : `v${(this.masks.indexOf(mask) + 1) % NUM_VERSION_COLOURS}`;
  }

  showLegend() {
    const meanings = {
      logprob: [...LOGPROBS.map((low, level) => [`p${level}`, `≥ ${low}`]), [`p${LOGPROBS.length}`, "below"]],
      version: this.versions.map((version) => [this.versionClass(version), `v${version}`]),
      trained: [["t1", "trained on"], ["t0", "left out"]],
      mask: this.masks.filter((mask) => mask !== "prompt").map((mask) => [this.maskClass(mask), mask]),
      advantage: [...ADVANTAGES.map((size, level) => [`up${level}`, `> ${size}`]), ...ADVANTAGES.map((size, level) => [`down${level}`, `< −${size}`])],
      ratio: ["|ln ratio|", ...RATIOS].map((size, level) => [`p${level}`, level === 0 ? `${size} < ${RATIOS[0]}` : `≥ ${size}`]),
      entropy: ["", ...ENTROPIES].map((size, level) => [`p${level}`, level === 0 ? `< ${ENTROPIES[0]}` : `≥ ${size}`]),
    }[this.colour];
    const marks = (meanings ?? []).map(([name, text]) => make("span", { class: name }, text));
    this.legend.replaceChildren(make("span", { class: "prompt" }, "prompt"), " ", ...marks.flatMap((mark) => [mark, " "]));
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.strip.marked;
    const targets = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: this.lineFrom(at, 1), ArrowUp: this.lineFrom(at, -1), Home: 0, End: this.last };
    if (!(event.key in targets)) return;
    event.preventDefault();
    this.go(Math.min(Math.max(targets[/** @type {keyof typeof targets} */ (event.key)], 0), this.last));
  }

  /**
   * The token above or below another one, as lines are broken now.
   * @param {number} token
   * @param {1 | -1} way
   */
  lineFrom(token, way) {
    if (token < 0) return 0;
    const { left, top, bottom, height } = this.strip.mark(token).getClientRects()[0];
    const found = this.strip.tokenAt(document.elementFromPoint(left + 1, way > 0 ? bottom + height / 2 : top - height / 2));
    return found ?? token + way;
  }

  /** @param {number | null} token to mark, show and keep in the address */
  go(token) {
    if (token === null) return;
    this.strip.mark(token).scrollIntoView({ block: "nearest" });
    this.place.value = String(token);
    this.show(token);
    keep({ token: String(token) });
  }

  /** @param {number | null} token */
  show(token) {
    if (token === null || token < 0) return;
    const { pieces, ids, logprobs, versions, trained, masks, advantages, trainer_logprobs, ratios, entropies, output_start } = this.tokens;
    const logprob = logprobs[token];
    const known = {
      piece: spelled(JSON.stringify(pieces[token])),
      id: String(ids[token]),
      position: token < output_start ? `${token} (prompt)` : `${token} (output ${token - output_start})`,
      logprob: figure(logprob) || "not recorded",
      probability: logprob === null ? "not recorded" : `${figure(100 * Math.exp(logprob))} %`,
      version: versions[token] === null ? "not recorded" : `v${versions[token]}`,
      trained: { 1: "yes", 0: "no, left out", none: "not recorded" }[trained[token] ?? "none"],
      mask: masks[token] ?? "no round took it",
      advantage: figure(advantages[token]) || "not recorded",
      "trainer's logprob": figure(trainer_logprobs[token]) || "not recorded",
      ratio: figure(ratios[token]) || "not recorded",
      entropy: figure(entropies[token]) || "not recorded",
    };
    const facts = Object.entries(known).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
    this.panel.replaceChildren(make("dl", { class: "facts" }, ...facts));
  }
}

/** @param {number | null} logprob */
function logprobClass(logprob) {
  if (logprob === null) return "";
  const level = LOGPROBS.findIndex((low) => logprob >= low);
  return `p${level < 0 ? LOGPROBS.length : level}`;
}

/**
 * A class by sign and size; none for 0.
 * @param {number | null} advantage
 */
function advantageClass(advantage) {
  if (!advantage) return "";
  const level = ADVANTAGES.findIndex((size) => Math.abs(advantage) > size);
  return `${advantage > 0 ? "up" : "down"}${level}`;
}

/**
 * The class of the greatest limit that a size reaches: p0 below the first, p7 from the last on.
 * @param {number | null} size
 * @param {number[]} limits ascending
 */
function sizeClass(size, limits) {
  return size === null ? "" : `p${limits.filter((limit) => size >= limit).length}`;
}

/** @param {number | null} ratio of probabilities */
function distance(ratio) {
  return ratio === null ? null : Math.abs(Math.log(ratio));
}
