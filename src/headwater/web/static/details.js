// The parts of a table's panel: what it is read with, its columns, history, deliveries and quarantine.
import { h, text } from "./dom.js";
import { explanation } from "./glossary.js";
import { icon } from "./icons.js";
import { NONE, clock, count, counted, duration, moment, wholeTime, withHint } from "./words.js";

/** Lines to type, each with a button that copies it. */
export function queryLines(lines) {
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
  document.getElementById("panel").append(area); // what is beside an open dialog takes no focus
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

function tableOfCells(label, heads, rows, none) {
  if (!rows.length) return h("p", { class: "none" }, none);
  const row = (tag, cells, attributes) => h("tr", {}, cells.map((cell) => h(tag, attributes, cell)));
  const head = h("thead", {}, row("th", heads, { scope: "col" }));
  const table = h("table", { "aria-label": label }, head, h("tbody", {}, rows.map((cells) => row("td", cells, {}))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, table);
}

/** Columns, with their types on both sides. */
export function columnTable(columns) {
  const key = () => h("span", { class: "tag", title: "part of the key" }, "key");
  const rows = columns.map((each) => [
    h("span", {}, each.name, each.key ? key() : ""),
    each.source_type,
    each.lake_type,
  ]);
  const heads = ["Column", "Type in the source", "Type in the lake"];
  return tableOfCells("Columns", heads, rows, "The columns are not known yet.");
}

/** What happened to it, the newest first. */
export function eventList(events) {
  if (!events.length) return h("p", { class: "none" }, "Nothing has happened to it since this service was started.");
  const when = (at) => h("time", { datetime: moment(at).toISOString(), title: wholeTime(at) }, clock(at));
  return h("ol", { class: "events" }, events.map((each) => h("li", {}, when(each.at), h("span", {}, each.what))));
}

/** The newest deliveries that had changes for it; without `snapshots` in the lake, an LSN alone. */
export function deliveryTable(deliveries, snapshots) {
  const rows = deliveries.map((each) => [
    clock(each.at),
    count(each.changes),
    duration(Object.values(each.phases).reduce((sum, seconds) => sum + seconds, 0)),
    snapshots ? `${each.position} → ${count(each.snapshot_id)}` : each.position,
  ]);
  const none = "No delivery of the last two hours had changes for it.";
  return tableOfCells("Deliveries", ["Committed", "Changes", "Took", snapshots ? "LSN → snapshot" : "LSN"], rows, none);
}

/** Its values in quarantine, as far as they are sent. */
export function quarantined(quarantine) {
  const { total, rows, error } = quarantine;
  if (!total) return [h("p", { class: "none" }, "No value of this table is in quarantine.")];
  const newest = total > rows.length ? `, the newest ${count(rows.length)}` : "";
  const said = h("p", { class: "quiet" }, `${counted(total, "value")}${newest}. ${explanation("quarantine")}`);
  const cells = rows.map((each) => [each.key, each.column, each.value, each.lsn ?? NONE]);
  const heads = ["Key", "Column", "Value", "LSN"];
  const failed = error && h("p", { class: "failed" }, `They cannot be shown now: ${withHint(error)[0]}`);
  return [said, failed, cells.length ? tableOfCells("Values in quarantine", heads, cells, "") : null];
}
