// The view that the page's address keeps: what people chose, so that a link shows another person the same.

/**
 * A parameter of the address.
 * @param {string} name
 * @param {string} otherwise
 */
export function chosen(name, otherwise) {
  return new URLSearchParams(location.search).get(name) ?? otherwise;
}

/**
 * Every value of a parameter that may be repeated.
 * @param {string} name
 */
export function chosenAll(name) {
  return new URLSearchParams(location.search).getAll(name);
}

/**
 * Write parameters into the address, in place; an empty text or list takes one away, and others stay.
 * @param {Record<string, string | string[]>} values
 */
export function keep(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    query.delete(name);
    for (const one of typeof value === "string" ? [value] : value) if (one !== "") query.append(name, one);
  }
  const text = query.toString();
  history.replaceState(history.state, "", location.pathname + (text && `?${text}`) + location.hash);
}
