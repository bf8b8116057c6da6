// States of tables, processes and destinations: a sign, a word and a colour for each.
import { attr, h } from "./dom.js";
import { explanation } from "./glossary.js";
import { icon } from "./icons.js";

const KINDS = {
  good: ["check", "RUNNING STREAMING healthy equal"],
  busy: ["busy", "STARTING PENDING SNAPSHOT CATCHUP buffering flushing"],
  warn: ["warning", "lagging"],
  off: ["pause", "PAUSED REMOVED DISABLED paused"],
  bad: ["cross", "STOPPED ERRORED error differs"],
};

const KIND_OF = new Map(
  Object.entries(KINDS).flatMap(([kind, [, words]]) => words.split(" ").map((word) => [word, kind])),
);
const WORST_FIRST = ["bad", "warn", "busy", "off", "good"];

export const kindOf = (state) => KIND_OF.get(state) ?? "busy";

/** Small for what needs attention first. */
export const urgency = (state) => WORST_FIRST.indexOf(kindOf(state));

/** A state as a small label that can be updated. */
export function pill(className = "") {
  const word = h("span");
  const node = h("span", { class: `pill ${className}` }, word);
  let last = null;
  const update = (state) => {
    if (state === last) return;
    last = state;
    node.replaceChildren(icon(KINDS[kindOf(state)][0]), word);
    word.textContent = state;
    attr(node, "data-kind", kindOf(state));
    attr(node, "title", explanation(state) || null);
  };
  return { node, update };
}

/** The same, once. */
export function pillOf(state) {
  const made = pill();
  made.update(state);
  return made.node;
}
