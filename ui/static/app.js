// Starts what the page has elements for. Every page is complete without it; this adds what moves.

/** @type {[string, () => Promise<{ start(element: any): void }>][]} */
const PARTS = [
  ["#live-state", () => import("./live.js")], // first: it remembers the page as the server sent it
  ["#keys", () => import("./keys.js")],
  ["#curves", () => import("./curves.js")],
  ["#tokens", () => import("./tokens.js")],
  ["#query", () => import("./completion.js")],
  ["#calls, #pairs, [data-rest]", () => import("./rest.js")],
  ["#find", () => import("./find.js")],
  ["#picture", () => import("./question.js")],
];

const found = PARTS.map(([selector, load]) => ({ element: document.querySelector(selector), load })).filter((part) => part.element);
const modules = await Promise.all(found.map(({ load }) => load()));
found.forEach(({ element }, index) => modules[index].start(element));

export {}; // a module, because it awaits
