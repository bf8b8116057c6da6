// The last deliveries: how long each phase took, and which LSN became which snapshot.
import { attr, h, list, shown, text } from "./dom.js";
import { term } from "./glossary.js";
import { clock, count, counted, duration, size, wholeTime } from "./words.js";

const FIRST = 6;
const PHASES = {
  wait: "waits for changes to collect",
  fold: "folds them to one change for each key",
  locate: "locates the rows that they replace",
  write: "writes the files",
  commit: "commits them with the position",
};
const NAMES = Object.keys(PHASES);

const total = (delivery) => NAMES.reduce((sum, name) => sum + (delivery.phases[name] ?? 0), 0);
const inWords = (delivery) => NAMES.map((name) => `${name} ${duration(delivery.phases[name] ?? 0)}`).join(", ");

export class Timeline {
  #deliveries = [];
  #chosen = null; // the one whose phases the legend shows; null: the newest
  #all = false;

  constructor() {
    const swatch = (name) => h("span", { class: `swatch ${name}`, "aria-hidden": "true" });
    const entry = (name) => h("div", { title: PHASES[name] }, h("dt", {}, swatch(name), name), h("dd"));
    this.legend = h("dl", { class: "legend" }, NAMES.map(entry));
    this.rows = h("ol", { class: "deliveries" });
    this.none = h("p", { class: "none" }, "Nothing has been delivered in the last two hours.");
    this.more = h("button", { type: "button", class: "more" });
    this.node = h("div", { class: "card timeline" },
      h("div", { class: "card-head" }, h("h3", {}, "Last deliveries ", term("delivery", "?"))),
      this.legend, this.rows, this.none, this.more);
    this.node.querySelector(".term").setAttribute("aria-label", "What is a delivery?");
    this.more.addEventListener("click", () => {
      this.#all = !this.#all;
      this.#draw();
    });
  }

  update(deliveries) {
    this.#deliveries = deliveries;
    this.#draw();
  }

  #draw() {
    const drawn = this.#deliveries.slice(0, this.#all ? undefined : FIRST);
    const longest = Math.max(0.001, ...drawn.map(total));
    list(this.rows, drawn, (each) => each.id, () => this.#row());
    for (const row of this.rows.children) {
      row.querySelector(".phases").style.width = `${(100 * row.seconds) / longest}%`;
    }
    shown(this.none, !drawn.length);
    shown(this.legend, drawn.length > 0);
    shown(this.more, this.#deliveries.length > FIRST);
    text(this.more, this.#all ? "Show fewer" : `Show all ${count(this.#deliveries.length)}`);
    this.#showLegend();
  }

  #row() {
    const parts = NAMES.map((name) => h("span", { class: name }));
    const phases = h("span", { class: "phases", role: "img" }, parts);
    const when = h("button", { type: "button", class: "when" });
    const [took, what] = [h("span", { class: "took" }), h("p", { class: "what" })];
    const node = h("li", {}, when, h("span", { class: "track" }, phases), took, what);
    const update = (delivery) => {
      node.seconds = total(delivery);
      node.delivery = delivery;
      text(when, clock(delivery.at));
      attr(when, "title", wholeTime(delivery.at));
      text(took, duration(node.seconds));
      text(what, said(delivery));
      attr(phases, "aria-label", inWords(delivery));
      parts.forEach((part, n) => {
        part.style.flexGrow = delivery.phases[NAMES[n]] ?? 0;
      });
    };
    const choose = (chosen) => () => {
      this.#chosen = chosen ? node.delivery : null;
      this.#showLegend();
    };
    for (const event of ["pointerenter", "focusin"]) node.addEventListener(event, choose(true));
    for (const event of ["pointerleave", "focusout"]) node.addEventListener(event, choose(false));
    return { node, update };
  }

  #showLegend() {
    const delivery = this.#chosen ?? this.#deliveries[0];
    if (!delivery) return;
    NAMES.forEach((name, n) => text(this.legend.children[n].lastElementChild, duration(delivery.phases[name] ?? 0)));
    for (const row of this.rows.children) attr(row, "data-chosen", row.delivery.id === delivery.id);
  }
}

/** What it brought, and which LSN became which snapshot. */
function said(delivery) {
  const to = delivery.snapshot_id === null ? "" : ` → snapshot ${count(delivery.snapshot_id)}`;
  const bytes = delivery.bytes ? `, ${size(delivery.bytes)}` : "";
  const brought = `${counted(delivery.changes, "change")} in ${counted(delivery.tables, "table")}${bytes}`;
  return `${brought} · ${delivery.position}${to}`;
}
