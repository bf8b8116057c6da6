// Elements from plain values. What comes from the server goes in as text nodes, so none of it is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else attr(node, name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element: h("p", { class: "note" }, "text", otherNode). */
export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

/** The same for SVG. */
export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

/** Set an attribute if it differs; null and false remove it. */
export function attr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const wanted = value === true ? "" : String(value);
  if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
}

/** Set an element's text if it differs: what is selected stays selected, and readers hear no repetition. */
export function text(node, value) {
  const wanted = value === null || value === undefined ? "" : String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Show or hide an element. */
export function shown(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

const views = new WeakMap();

/** Let `parent` have one child for each item, in order, after those of its own; children that stay are kept. */
export function list(parent, items, keyOf, make) {
  const before = views.get(parent) ?? new Map();
  const after = new Map();
  let cursor = before.values().next().value?.node ?? null;
  for (const item of items) {
    const key = keyOf(item);
    const view = before.get(key) ?? make(item);
    after.set(key, view);
    view.update(item);
    if (view.node === cursor) cursor = cursor.nextElementSibling;
    else parent.insertBefore(view.node, cursor);
  }
  for (const [key, view] of before) if (!after.has(key)) view.node.remove();
  views.set(parent, after);
}

/** Text in which `backticks` mark what one types. */
export function withCode(sentence) {
  return sentence.split("`").map((part, n) => (n % 2 ? h("code", {}, part) : part));
}

/** Render once for each different value: `once(node, value, () => [children])`. */
const rendered = new WeakMap();
export function once(node, value, children) {
  const key = JSON.stringify(value);
  if (rendered.get(node) === key) return;
  rendered.set(node, key);
  node.replaceChildren(...children().flat().filter(Boolean));
}
