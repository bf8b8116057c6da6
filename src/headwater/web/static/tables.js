// The tables of a group: searched, filtered by state, sorted; those that need attention first.
import { attr, h, list, shown, text } from "./dom.js";
import { tableAddress } from "./panel.js";
import { pill, urgency } from "./states.js";
import { Chips, searchBox, sorter } from "./listing.js";
import { NONE, clock, count, duration, rate, withHint } from "./words.js";

const NO_TABLES = "No tables yet: add one with headwater table add, or in headwater.yaml.";
const STOPPED_BY_HAND = new Set(["PAUSED", "REMOVED"]);
const FIRST = 15; // shown at once; the others on request

const COLUMNS = [
  ["table", "Table", null, (t) => t.table],
  ["state", "State", null, (t) => urgency(t.state)],
  ["rows", "Rows", null, (t) => -t.rows],
  ["lag", "Lag", "lag", (t) => -(t.lag_seconds ?? -1)],
  ["changes", "Changes/s", null, (t) => -(t.changes_per_second ?? -1)],
  ["quarantined", "Quarantine", "quarantine", (t) => -t.quarantined],
];
const NUMBERS = new Set(["rows", "lag", "changes", "quarantined"]);

export class Tables {
  #group = null;
  #sort = { column: "state", reverse: false };
  #order = [];
  #all = false;

  constructor(name) {
    const id = `tables-${name}`;
    this.search = searchBox("tables", `group ${name}`);
    this.chips = new Chips(`Tables of group ${name} by state`, () => this.#draw(true));
    this.heads = sorter(COLUMNS, NUMBERS, this.#sort, () => this.#draw(true));
    this.none = h("p", { class: "none", hidden: true });
    this.more = h("button", { type: "button", class: "more", hidden: true });
    this.table = h("table", { "aria-labelledby": id }, h("thead", {}, h("tr", {}, this.heads.cells)));
    this.node = h("div", { class: "card tables" },
      h("div", { class: "card-head" }, h("h3", { id }, "Tables"), this.search),
      this.chips.node, this.table, this.none, this.more);
    this.search.addEventListener("input", () => this.#draw(true));
    this.more.addEventListener("click", () => {
      this.#all = !this.#all;
      this.#draw(true);
    });
  }

  update(group) {
    this.#group = group;
    this.chips.show(countsOf(group.tables));
    // Rows stay where they are while one of them is about to be pressed.
    this.#draw(!this.table.matches(":hover, :focus-within"));
  }

  #draw(reorder) {
    if (!this.#group) return;
    const wanted = this.search.value.trim().toLowerCase();
    const matches = this.#group.tables.filter(
      (t) => this.chips.includes(t.state) && (!wanted || `${t.table} ${t.lake_table}`.toLowerCase().includes(wanted)),
    );
    this.heads.show();
    this.table.classList.toggle("without-quarantine", !this.#group.tables.some((t) => t.quarantined));
    const ordered = reorder ? this.#sorted(matches) : kept(matches, this.#order);
    this.#order = ordered.map((t) => t.table);
    const rows = this.#all ? ordered : ordered.slice(0, FIRST);
    list(this.table, rows, (t) => t.table, (t) => rowView(this.#group.name, t));
    shown(this.none, !rows.length);
    text(this.none, this.#group.tables.length ? "No table matches." : NO_TABLES);
    shown(this.more, ordered.length > FIRST);
    text(this.more, this.#all ? "Show fewer" : `Show all ${count(ordered.length)} tables`);
  }

  #sorted(tables) {
    const key = COLUMNS.find(([name]) => name === this.#sort.column)[3];
    const sign = this.#sort.reverse ? -1 : 1;
    const compare = (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0);
    return [...tables].sort((a, b) => sign * compare(a, b) || a.table.localeCompare(b.table));
  }
}

/** In the order in which they were shown; new ones last. */
function kept(tables, order) {
  const place = new Map(order.map((name, n) => [name, n]));
  return [...tables].sort((a, b) => (place.get(a.table) ?? 1e9) - (place.get(b.table) ?? 1e9));
}

function countsOf(tables) {
  const counts = {};
  for (const { state } of tables) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

function rowView(group, { table }) {
  const state = pill();
  const link = h("a", { class: "name", href: tableAddress(group, table) }, table);
  const lake = h("span", { class: "quiet as" });
  const note = h("td", { class: "note", colspan: COLUMNS.length });
  const below = h("tr", { class: "below" }, note);
  const numbers = [...NUMBERS].map((name) => h("td", { class: `number ${name}` }));
  const [rows, lag, changes, quarantined] = numbers;
  const row = h("tr", {}, h("th", { scope: "row" }, link, lake), h("td", {}, state.node), numbers);
  const node = h("tbody", {}, row, below);
  node.addEventListener("click", (event) => {
    if (!event.target.closest("a, button") && !String(getSelection())) link.click();
  });
  const update = (t) => {
    state.update(t.state);
    text(lake, t.lake_table === t.table ? "" : `→ ${t.lake_table}`);
    text(note, noteOf(t));
    shown(below, Boolean(note.textContent));
    attr(note, "data-bad", Boolean(t.error) && !STOPPED_BY_HAND.has(t.state));
    text(rows, count(t.rows));
    text(lag, duration(t.lag_seconds));
    text(changes, rate(t.changes_per_second));
    text(quarantined, t.quarantined ? count(t.quarantined) : NONE);
  };
  return { node, update };
}

function noteOf(t) {
  const [what] = withHint(t.error ?? "");
  if (what && STOPPED_BY_HAND.has(t.state)) return what;
  if (what) return t.retry_at ? `${what}; tried again at ${clock(t.retry_at)}` : what;
  if (t.state === "SNAPSHOT") return copied(t);
  return t.resync ? `to be copied again: ${t.resync}` : "";
}

/** How far its copy is. */
export function copied(t) {
  const { copied_rows: done, copy_total: all, copy_seconds: seconds } = t;
  if (!all) return `copied ${count(done)} rows`;
  const share = Math.min(99, Math.floor((100 * done) / all));
  const left = done && seconds && all > done ? `, about ${duration(((all - done) * seconds) / done)} left` : "";
  return `copied ${count(done)} of about ${count(all)} rows (${share} %)${left}`;
}

