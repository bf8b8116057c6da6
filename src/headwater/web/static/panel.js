// One table, in a panel with an address of its own: #/table/GROUP/TABLE.
import { get, pathOf } from "./api.js";
import { act, guard } from "./actions.js";
import { columnTable, deliveryTable, eventList, quarantined, queryLines } from "./details.js";
import { attr, h, once, shown, text, withCode } from "./dom.js";
import { explanation, term } from "./glossary.js";
import { icon } from "./icons.js";
import { pill } from "./states.js";
import { copied } from "./tables.js";
import { clock, count, duration, rate, withHint } from "./words.js";

const EVERY = 5000;
const PARTS = ["query", "columns", "events", "deliveries", "quarantine"];
const WHY = {
  pause: "Its mirror stays as it is until it is resumed, and the log is kept for it. Other tables go on.",
  resume: "It goes on from where it was. A table that waits after a failure is tried at once.",
  resync: "It is copied again, in place of its mirror. Readers see the old rows until the new ones are there.",
  verify: "Source and lake are compared by content at one LSN, while writes go on. Every row of both is read once.",
};

export const tableAddress = (group, table) => `#/table/${pathOf(group, table)}`;

/** The group and the table of an address; null: it is another one. */
export function tableOf(hash) {
  const found = /^#\/table\/([^/]+)\/([^/]+)$/.exec(hash);
  if (!found) return null;
  try {
    return { group: decodeURIComponent(found[1]), table: decodeURIComponent(found[2]) };
  } catch {
    return null;
  }
}

const dialog = document.getElementById("panel");
let open = null; // the panel that is shown
let fromPage = false; // the page before it in the history is ours
let opener = null; // what had the focus before
let overview = null;

/** Keep up with the address: open the panel, change it, or close it. */
function follow(cameFromPage) {
  const wanted = tableOf(location.hash);
  if (!wanted) {
    if (dialog.open) dialog.close();
    opener?.focus({ preventScroll: true }); // going back to an earlier fragment has moved it
    opener = null;
    return;
  }
  if (!open) [fromPage, opener] = [cameFromPage, document.activeElement];
  clearInterval(open?.timer);
  open = new Panel(wanted);
  dialog.replaceChildren(open.node);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  open.load();
  open.showStatus();
}

function closed() {
  clearInterval(open?.timer);
  open = null;
  if (!tableOf(location.hash)) return;
  if (fromPage) history.back();
  else history.replaceState(null, "", location.pathname + location.search);
}

export function preparePanel() {
  addEventListener("hashchange", () => follow(true));
  dialog.addEventListener("close", closed);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside the panel
  });
  follow(false);
}

export function showPanel(now) {
  overview = now;
  open?.showStatus();
}

/** A part of the panel, under a title by which screen readers know it. */
function section(title, part) {
  const id = `panel-${part.dataset.part}`;
  return h("section", { "aria-labelledby": id }, h("h3", { id }, title), part);
}

class Panel {
  constructor({ group, table }) {
    [this.group, this.table] = [group, table];
    this.state = pill();
    this.means = h("p", { class: "quiet" });
    this.trouble = h("div", { class: "trouble", hidden: true });
    this.facts = h("dl", { class: "facts" });
    this.failed = h("p", { class: "failed", role: "alert" });
    this.parts = Object.fromEntries(PARTS.map((name) => [name, h("div", { "data-part": name })]));
    const named = { "aria-label": "Close", title: "Close (Escape)" };
    const close = h("button", { type: "button", class: "square", ...named }, icon("cross"));
    const title = h("h2", { id: "panel-title", tabindex: -1, autofocus: true }, table);
    close.addEventListener("click", () => dialog.close());
    this.node = h("div", { class: "inside", "aria-busy": "true" },
      h("header", {},
        h("div", {}, h("p", { class: "quiet" }, `Group ${group}`), title), this.state.node, close),
      this.means, this.trouble, this.failed, this.#buttons(), h("div", { class: "requests" }), this.facts,
      section("Query it with DuckDB", this.parts.query),
      section("History", this.parts.events),
      section("Columns", this.parts.columns),
      section("Deliveries", this.parts.deliveries),
      section(term("quarantine"), this.parts.quarantine));
    this.timer = setInterval(() => document.hidden || this.load(), EVERY);
  }

  #buttons() {
    const base = `groups/${pathOf(this.group, "tables", this.table)}`;
    const button = (label, why, path, body) => {
      const made = h("button", { type: "button" }, label);
      made.addEventListener("click", () => act({ title: `${label} ${this.table}?`, why, label, path, body }));
      return guard(made);
    };
    this.pause = button("Pause", WHY.pause, `${base}/pause`);
    this.resume = button("Resume", WHY.resume, `${base}/resume`);
    this.resync = button("Resync", WHY.resync, `${base}/resync`);
    this.verify = button("Verify now", WHY.verify, "verify", { tables: [this.table] });
    return h("div", { class: "buttons" }, this.pause, this.resume, this.resync, this.verify);
  }

  /** Its group, as of the newest overview. */
  #group() {
    return overview?.groups.find((each) => each.name === this.group);
  }

  showStatus() {
    const status = this.#group()?.tables.find((each) => each.table === this.table);
    if (status) this.#status(status);
  }

  #status(t) {
    this.state.update(t.state);
    text(this.means, explanation(t.state));
    shown(this.trouble, Boolean(t.error || t.resync));
    attr(this.trouble, "data-kind", t.state === "ERRORED" ? "bad" : "busy");
    const [what, hint] = withHint(t.error ?? "");
    const again = t.retry_at ? ` It is tried again at ${clock(t.retry_at)}; Resume tries it at once.` : "";
    const said = what ? `${what}.${again}` : `To be copied again: ${t.resync}.`;
    once(this.trouble, [said, hint], () => [
      icon(t.state === "ERRORED" ? "cross" : "busy"),
      h("div", {}, h("p", {}, withCode(said)), hint && h("p", {}, h("strong", {}, "Next: "), withCode(hint))),
    ]);
    shown(this.pause, !["PAUSED", "REMOVED"].includes(t.state));
    shown(this.resume, ["PAUSED", "ERRORED"].includes(t.state));
    const facts = [
      ["Rows", count(t.rows)],
      ["Lag", duration(t.lag_seconds)],
      ["Changes", rate(t.changes_per_second)],
      ["Table in the lake", t.lake_table],
      ["Mode", t.mode],
      ["Quarantined values", count(t.quarantined)],
      ...(t.state === "SNAPSHOT" ? [["Copy", copied(t)]] : []),
    ];
    once(this.facts, facts, () => facts.map(([word, value]) => h("div", {}, h("dt", {}, word), h("dd", {}, value))));
  }

  async load() {
    try {
      const found = await get(`groups/${pathOf(this.group, "tables", this.table)}`);
      if (open !== this) return;
      text(this.failed, "");
      attr(this.node, "aria-busy", null);
      const { query, columns, events, deliveries, quarantine } = this.parts;
      once(query, found.query, () => queryLines(found.query));
      once(columns, found.columns, () => [columnTable(found.columns)]);
      once(events, found.events, () => [eventList(found.events)]);
      const snapshots = this.#group()?.snapshot_id !== null;
      once(deliveries, [found.deliveries, snapshots], () => [deliveryTable(found.deliveries, snapshots)]);
      once(quarantine, found.quarantine, () => quarantined(found.quarantine));
    } catch (error) {
      text(this.failed, error.hint ? `${error.message}: ${error.hint}` : error.message);
    }
  }
}
