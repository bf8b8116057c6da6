// One table, in a panel with an address of its own: #/table/GROUP/TABLE.
import { get, pathOf } from "./api.js";
import { act, guard } from "./actions.js";
import { attr, h, once, shown, text, withCode } from "./dom.js";
import { explanation, term } from "./glossary.js";
import { icon } from "./icons.js";
import { pill } from "./states.js";
import { copied } from "./tables.js";
import { NONE, clock, count, counted, duration, rate, wholeTime, withHint } from "./words.js";

const EVERY = 5000;

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
let overview = null;

/** Keep up with the address: open the panel, change it, or close it. */
function follow(cameFromPage) {
  const wanted = tableOf(location.hash);
  if (!wanted) {
    if (dialog.open) dialog.close();
    return;
  }
  if (!open) fromPage = cameFromPage;
  clearInterval(open?.timer);
  open = new Panel(wanted);
  dialog.replaceChildren(open.node);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  open.load();
  if (overview) open.showStatus(overview);
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
  open?.showStatus(now);
}

const section = (title, ...children) => h("section", {}, h("h3", {}, title), children);

class Panel {
  constructor({ group, table }) {
    [this.group, this.table] = [group, table];
    this.state = pill();
    this.means = h("p", { class: "quiet" });
    this.trouble = h("div", { class: "trouble", hidden: true });
    this.facts = h("dl", { class: "facts" });
    this.failed = h("p", { class: "failed", role: "alert" });
    this.parts = Object.fromEntries(["query", "columns", "events", "deliveries", "quarantine"].map((name) => [name, h("div")]));
    const close = h("button", { type: "button", class: "square", "aria-label": "Close", title: "Close (Escape)" }, icon("cross"));
    close.addEventListener("click", () => dialog.close());
    this.node = h("div", { class: "inside" },
      h("header", {},
        h("div", {}, h("p", { class: "quiet" }, `Group ${group}`), h("h2", { id: "panel-title", tabindex: -1, autofocus: true }, table)), this.state.node, close),
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
    this.pause = button("Pause", "Its mirror stays as it is until it is resumed, and the log is kept for it. Other tables go on.", `${base}/pause`);
    this.resume = button("Resume", "It goes on from where it was. A table that waits after a failure is tried at once.", `${base}/resume`);
    this.resync = button("Resync", "The whole table is copied again, in place of its mirror. Readers see the old rows until the new ones are there.", `${base}/resync`);
    this.verify = button("Verify now", "Source and lake are compared by content at one LSN, while writes go on. It reads every row of both, once.", "verify", { tables: [this.table] });
    return h("div", { class: "buttons" }, this.pause, this.resume, this.resync, this.verify);
  }

  showStatus(now) {
    const group = now.groups.find((each) => each.name === this.group);
    const status = group?.tables.find((each) => each.table === this.table);
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
      const { query, columns, events, deliveries, quarantine } = this.parts;
      once(query, found.query, () => queryLines(found.query));
      once(columns, found.columns, () => [columnTable(found.columns)]);
      once(events, found.events, () => [eventList(found.events)]);
      once(deliveries, found.deliveries, () => [deliveryTable(found.deliveries)]);
      once(quarantine, found.quarantine, () => quarantined(found.quarantine));
    } catch (error) {
      text(this.failed, error.hint ? `${error.message}: ${error.hint}` : error.message);
    }
  }
}

function queryLines(lines) {
  const whole = lines.join("\n");
  const line = (each) => h("div", { class: "typed" }, h("code", {}, each), copyButton(each, "Copy this line"));
  return [...lines.map(line), copyButton(whole, "Copy all lines", true)];
}

function copyButton(what, label, wide = false) {
  const words = h("span", { class: wide ? "" : "only-heard", role: "status" }, label);
  const button = h("button", { type: "button", class: wide ? "wide" : "square", title: label }, icon("copy"), words);
  button.addEventListener("click", async () => {
    const done = await copy(what);
    text(words, done ? "Copied" : "Select it and copy by hand");
    button.classList.toggle("done", done);
    setTimeout(() => {
      text(words, label);
      button.classList.remove("done");
    }, 1500);
  });
  return button;
}

async function copy(what) {
  try {
    await navigator.clipboard.writeText(what);
    return true;
  } catch {
    return copiedBySelection(what); // without TLS, browsers give the clipboard only to loopback addresses
  }
}

function copiedBySelection(what) {
  const area = h("textarea", { class: "only-heard" });
  area.value = what;
  dialog.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

function tableOfCells(heads, rows, none) {
  if (!rows.length) return h("p", { class: "none" }, none);
  const head = h("tr", {}, heads.map((each) => h("th", { scope: "col" }, each)));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": heads.join(", ") },
    h("table", {}, h("thead", {}, head), h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))))));
}

const columnTable = (columns) =>
  tableOfCells(["Column", "Type in the source", "Type in the lake"],
    columns.map((each) => [h("span", {}, each.name, each.key ? h("span", { class: "tag", title: "part of the key" }, "key") : ""), each.source_type, each.lake_type]),
    "The columns are not known yet.");

function eventList(events) {
  if (!events.length) return h("p", { class: "none" }, "Nothing has happened to it yet.");
  return h("ol", { class: "events" }, events.map((each) =>
    h("li", {}, h("time", { datetime: new Date(typeof each.at === "number" ? each.at * 1000 : each.at).toISOString(), title: wholeTime(each.at) }, clock(each.at)), h("span", {}, each.what))));
}

const deliveryTable = (deliveries) =>
  tableOfCells(["Committed", "Changes", "Took", "LSN → snapshot"],
    deliveries.map((each) => [
      clock(each.at),
      count(each.changes),
      duration(Object.values(each.phases).reduce((sum, seconds) => sum + seconds, 0)),
      `${each.position} → ${each.snapshot_id ?? NONE}`,
    ]),
    "No delivery of the last two hours had changes for it.");

function quarantined(quarantine) {
  const shownOf = quarantine.total > quarantine.rows.length ? `, the newest ${count(quarantine.rows.length)}` : "";
  const said = quarantine.total ? `${counted(quarantine.total, "value")}${shownOf}. ${explanation("quarantine")}` : "";
  const rows = quarantine.rows.map((each) => [each.key, each.column, each.value, each.lsn ?? NONE]);
  return [said && h("p", { class: "quiet" }, said), tableOfCells(["Key", "Column", "Value", "LSN"], rows, "No value of this table is in quarantine.")];
}
