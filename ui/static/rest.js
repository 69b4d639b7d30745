// The rest of a long text: a link behind the shown beginning brings it. Without this it leads to the rest as plain text.

import { fetchText, showProblem } from "./dom.js";

/** @type {Map<string, string>} */ const brought = new Map(); // by address: what people asked for on this page

export function start() {
  document.addEventListener("click", async (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-rest]") : null;
    if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    try {
      brought.set(link.href, await fetchText(link.href));
      show(link)?.focus({ preventScroll: true }); // where the link was; what has the focus is not replaced
    } catch (error) {
      if (link.parentElement) showProblem(link.parentElement, error);
    }
  });
  document.addEventListener("weir:replaced", () => {
    for (const link of document.querySelectorAll("a[data-rest]")) if (link instanceof HTMLAnchorElement) show(link);
  });
}

/**
 * Put the rest behind the beginning, if it was brought, and take the link away.
 * @param {HTMLAnchorElement} link
 * @returns {HTMLElement | null} what shows the text
 */
function show(link) {
  const text = brought.get(link.href);
  const place = link.parentElement?.previousElementSibling;
  if (text === undefined || !(place instanceof HTMLElement)) return null;
  place.append(text);
  place.tabIndex = 0;
  link.parentElement?.remove();
  return place;
}
