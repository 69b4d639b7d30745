// Keys: rows by j and k, Enter opens (the row's link has the focus), / searches, g and a letter goes to a page, ? helps.

const PAGES = new Map([["r", "/"], ["s", "/sessions"], ["q", "/sql"]]);
const SECOND_KEY_WITHIN_MS = 1500;

let goAt = -Infinity; // when g was pressed

/** @param {HTMLDialogElement} help the dialog that lists the keys */
export function start(help) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape") return leave();
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (act(event, help)) event.preventDefault();
  });
}

/**
 * @param {KeyboardEvent} event
 * @param {HTMLDialogElement} help
 * @returns {boolean} whether the key meant something
 */
function act(event, help) {
  const page = event.timeStamp - goAt < SECOND_KEY_WITHIN_MS ? PAGES.get(event.key) : undefined;
  goAt = event.key === "g" ? event.timeStamp : -Infinity;
  if (page) location.assign(page);
  else if (event.key === "j" || event.key === "k") return move(event.key === "j" ? 1 : -1);
  else if (event.key === "/") return search();
  else if (event.key === "?") help.showModal();
  else return event.key === "g";
  return true;
}

/**
 * Focus the link of the next row, or of the first one in sight.
 * @param {1 | -1} way
 */
function move(way) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.getClientRects().length > 0);
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const inSight = Math.max(rows.findIndex((row) => row.getBoundingClientRect().top >= 0), 0);
  const row = rows[at < 0 ? inSight : Math.min(Math.max(at + way, 0), rows.length - 1)];
  row?.querySelector("a")?.focus({ preventScroll: true });
  row?.scrollIntoView({ block: "nearest" });
  return row !== undefined;
}

function search() {
  const field = document.querySelector("[data-search]");
  if (!(field instanceof HTMLElement)) return false;
  field.focus();
  if (field instanceof HTMLInputElement) field.select();
  return true;
}

/** Escape leaves a field or a row, so that keys work again and live rows go on; dialogs close by themselves. */
function leave() {
  if (document.activeElement instanceof HTMLElement && !document.querySelector("dialog[open]")) document.activeElement.blur();
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}
