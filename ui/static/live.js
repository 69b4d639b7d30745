// The page follows the store: when the server says that something changed, what differs is replaced by its new version.
//
// Elements with `data-live` and an id follow. One that a person is in (focus, selected text, a menu under the pointer)
// waits until the person has left it. A hidden page has no connection: browsers give all pages of a server together six.

import { fetchText } from "./dom.js";

const LOST_AFTER_MS = 5000; // of trying to reconnect, until the state says since when there is no connection
const REOPEN_AFTER_MS = 3000; // when the server refused the connection, which ends the browser's own attempts
const RETRY_HELD_MS = 500;

/** @type {HTMLElement} */ let state;
/** @type {EventSource | null} */ let source = null;
let seen = ""; // the name of the state of the store that this page shows
/** @type {Date | null} */ let lostAt = null; // since when there is no connection
/** @type {Map<string, string>} */ const sent = new Map(); // by id: each live element as the server sent it last
/** @type {Document | null} */ let newest = null; // the page as fetched last, while some element of it waits
let hasOpened = false;
let isFetching = false;
let isStale = false; // something changed since the last fetch began

/** @param {HTMLElement} stateElement where the state of the connection is said */
export function start(stateElement) {
  state = stateElement;
  seen = state.dataset.seen ?? "";
  for (const element of liveElements(document)) sent.set(element.id, element.outerHTML);
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  setInterval(() => newest && apply(newest), RETRY_HELD_MS);
  setInterval(sayLost, 1000);
  if (!document.hidden) open();
}

function open() {
  close();
  const opened = (source = new EventSource(`/live?seen=${encodeURIComponent(seen)}`));
  opened.addEventListener("open", () => {
    lostAt = null;
    say("live");
    if (hasOpened) refresh(); // what changed while there was no connection
    hasOpened = true;
  });
  opened.addEventListener("changed", (event) => {
    if (event instanceof MessageEvent && event.lastEventId) seen = event.lastEventId;
    refresh();
  });
  opened.addEventListener("error", () => {
    if (lostAt === null) say("reconnecting");
    lostAt ??= new Date();
    if (opened.readyState === EventSource.CLOSED) setTimeout(() => opened === source && open(), REOPEN_AFTER_MS);
  });
}

function close() {
  source?.close();
  source = null;
}

/** @param {string} text */
function say(text) {
  if (state.textContent !== text) state.textContent = text; // unchanged text is not read out again
  state.dataset.state = text.split(" ", 1)[0];
}

function sayLost() {
  if (lostAt === null || Date.now() - lostAt.getTime() < LOST_AFTER_MS) return;
  say(`no connection since ${lostAt.toLocaleTimeString("en-GB")}`);
}

/** Fetch the page once more, and again if something changed meanwhile: never two fetches at once. */
async function refresh() {
  isStale = true;
  if (isFetching) return;
  isFetching = true;
  try {
    while (isStale) {
      isStale = false;
      const text = await fetchText(location.href);
      apply(new DOMParser().parseFromString(text, "text/html"));
      document.dispatchEvent(new Event("weir:changed")); // for parts that fetch data of their own
    }
    if (lostAt === null) say("live");
  } catch (error) {
    if (lostAt === null) say(`not renewed: ${error instanceof Error ? error.message : error}`.slice(0, 120));
  } finally {
    isFetching = false;
  }
}

/**
 * Replace what differs from what the server sent before; `weir:replaced` is for parts that change what the page shows.
 * @param {Document} page
 */
function apply(page) {
  newest = null;
  let hasReplaced = false;
  for (const element of liveElements(document)) {
    const fresh = page.getElementById(element.id);
    const differs = fresh !== null && fresh.outerHTML !== sent.get(element.id);
    const waits = differs && isInUse(element);
    element.toggleAttribute("data-held", waits);
    if (waits) newest = page;
    else if (differs) {
      replace(element, fresh);
      hasReplaced = true;
    }
  }
  if (hasReplaced) document.dispatchEvent(new Event("weir:replaced"));
}

/**
 * @param {HTMLElement} element
 * @param {HTMLElement} fresh
 */
function replace(element, fresh) {
  sent.set(element.id, fresh.outerHTML);
  const taken = document.importNode(fresh, true); // the parsed page stays whole: other elements may still wait for it
  keepOpened(element, taken);
  const scrolled = [element, ...element.querySelectorAll("*")].filter((one) => one.scrollTop || one.scrollLeft);
  const places = scrolled.map((one) => ({ path: pathOf(one, element), top: one.scrollTop, left: one.scrollLeft }));
  element.replaceWith(taken);
  for (const { path, top, left } of places) {
    path.reduce((/** @type {Element | undefined} */ at, index) => at?.children[index], taken)?.scrollTo({ top, left, behavior: "instant" });
  }
}

/**
 * `<details>` that a person opened or closed stay so; they are known by their id, or by their summary's text.
 * @param {Element} element
 * @param {Element} fresh
 */
function keepOpened(element, fresh) {
  const open = new Map([...element.querySelectorAll("details")].map((details) => [nameOf(details), details.open]));
  for (const details of fresh.querySelectorAll("details")) details.open = open.get(nameOf(details)) ?? details.open;
}

/** @param {HTMLDetailsElement} details */
function nameOf(details) {
  return details.id || details.querySelector("summary")?.textContent || "";
}

/**
 * The way from an element down to one inside it, as places among siblings.
 * @param {Element} inner
 * @param {Element} outer
 * @returns {number[]}
 */
function pathOf(inner, outer) {
  const parent = inner.parentElement;
  return inner === outer || !parent ? [] : [...pathOf(parent, outer), [...parent.children].indexOf(inner)];
}

/** @param {Element} element */
function isInUse(element) {
  const selection = getSelection();
  const isSelected = selection !== null && !selection.isCollapsed && selection.containsNode(element, true);
  return isSelected || element.contains(document.activeElement) || element.querySelector("[role=menu]:hover") !== null;
}

/**
 * Live elements that stand in no other.
 * @param {Document} page
 */
function liveElements(page) {
  const all = [...page.querySelectorAll("[data-live][id]")].filter((one) => one instanceof HTMLElement);
  return all.filter((one) => !one.parentElement?.closest("[data-live]"));
}
