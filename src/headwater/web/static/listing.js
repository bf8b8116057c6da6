// What lists have in common: chips that filter by state, and heads of columns that sort.
import { attr, h, list, text } from "./dom.js";
import { term } from "./glossary.js";
import { kindOf, urgency } from "./states.js";
import { count } from "./words.js";

/** One chip for each state that occurs, with its number; at most one is pressed, and then only its state is shown. */
export class Chips {
  #pressed = null;
  #changed;

  constructor(label, changed) {
    this.#changed = changed;
    this.node = h("div", { class: "chips", role: "group", "aria-label": label });
  }

  get pressed() {
    return this.#pressed;
  }

  includes(state) {
    return this.#pressed === null || this.#pressed === state;
  }

  press(state) {
    this.#pressed = state;
    for (const chip of this.node.children) attr(chip, "aria-pressed", String(chip.dataset.state === state));
    this.#changed();
  }

  show(counts) {
    const states = Object.keys(counts).filter((state) => counts[state] || state === this.#pressed);
    states.sort((a, b) => urgency(a) - urgency(b) || a.localeCompare(b));
    list(this.node, states, (state) => state, (state) => this.#chip(state, counts));
    for (const chip of this.node.children) text(chip.lastElementChild, count(counts[chip.dataset.state] ?? 0));
  }

  #chip(state) {
    const node = h("button", { type: "button", class: "chip", "data-state": state, "data-kind": kindOf(state), "aria-pressed": "false" },
      h("span", { class: "dot", "aria-hidden": "true" }), h("span", {}, state), h("span", { class: "many" }));
    node.addEventListener("click", () => this.press(this.#pressed === state ? null : state));
    const update = () => attr(node, "aria-pressed", String(this.#pressed === state));
    return { node, update };
  }
}

/** Heads of columns: [name, label, term that explains it or null]. `sort` is changed when one is pressed. */
export function sorter(columns, aligned, sort, changed) {
  const cells = columns.map(([name, label, word, sortable]) => {
    const button = h("button", { type: "button", class: "sort" }, label, h("span", { class: "arrow", "aria-hidden": "true" }));
    const shown = sortable ? button : h("span", {}, label);
    button.addEventListener("click", () => {
      sort.reverse = sort.column === name ? !sort.reverse : false;
      sort.column = name;
      changed();
    });
    const help = word ? term(word, "?") : null;
    if (help) attr(help, "aria-label", `What is ${label.toLowerCase()}?`);
    return h("th", { scope: "col", class: `${name} ${aligned.has(name) ? "number" : ""}`, "data-column": name }, shown, help);
  });
  const show = () => {
    for (const cell of cells) {
      const sorted = cell.dataset.column === sort.column;
      attr(cell, "aria-sort", sorted ? (sort.reverse ? "descending" : "ascending") : null);
      const arrow = cell.querySelector(".arrow");
      if (arrow) text(arrow, sorted ? (sort.reverse ? "▴" : "▾") : "");
    }
  };
  show();
  return { cells, show };
}
