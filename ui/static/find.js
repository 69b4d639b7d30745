// Find in a session: calls that do not hold the text are hidden. The text is in the address; calls that arrive are looked
// through too.

import { chosen, keep } from "./address.js";

/** @param {HTMLInputElement} field */
export function start(field) {
  field.value = chosen("find", "");
  field.addEventListener("input", () => {
    keep({ find: field.value });
    show(field.value);
  });
  document.addEventListener("weir:replaced", () => show(field.value));
  show(field.value);
}

/** @param {string} text */
function show(text) {
  const wanted = text.trim().toLowerCase();
  const calls = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#calls > article")]);
  for (const call of calls) call.hidden = !(call.textContent ?? "").toLowerCase().includes(wanted);
  const found = document.getElementById("found");
  const count = calls.filter((call) => !call.hidden).length;
  if (found) found.textContent = wanted ? `${count} of ${calls.length} calls` : "";
}
