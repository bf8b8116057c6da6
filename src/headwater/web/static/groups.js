// A group: how far it is, and the path from the source through the log into the lake.
import { get } from "./api.js";
import { attr, h, list, shown, text } from "./dom.js";
import { Chart } from "./chart.js";
import { term } from "./glossary.js";
import { pill } from "./states.js";
import { Tables } from "./tables.js";
import { Timeline } from "./timeline.js";
import { NONE, clock, count, counted, duration, lsnDistance, rate, shortDuration, size, withHint } from "./words.js";

const FULL = 0.75; // of a limit, from where on it is worth a look

const groups = new Map();
const firstLine = (error) => (error ? withHint(error)[0] : null);

export function showGroups(overview) {
  list(document.getElementById("groups"), overview.groups, (group) => group.name, (group) => {
    const view = new GroupView(group);
    groups.set(group.name, view);
    return view;
  });
  for (const group of overview.groups) groups.get(group.name).showSource(overview.source);
}

/** Ask for the last hour, and draw it. */
export async function showHistory() {
  const history = await get("history?minutes=60");
  for (const [name, series] of Object.entries(history.groups)) groups.get(name)?.draw(history.at, series);
  return history.every;
}

/** A stage of the path: a title, a state or a value, and two lines below it, the first after a word of its own. */
class Stage {
  constructor(title, word = null) {
    this.value = h("p", { class: "value" });
    this.lines = [h("span"), h("span")];
    const [first, second] = this.lines;
    this.node = h("li", { class: "stage" }, h("h4", {}, title), this.value,
      h("p", { class: "line" }, word, word && " ", first), h("p", { class: "line" }, second));
  }

  say(value, ...lines) {
    if (value !== null) text(this.value, value);
    lines.forEach((line, n) => text(this.lines[n], line));
  }
}

/** How full something is, in words and as a bar. */
class Meter {
  constructor(label) {
    this.bar = h("span", { class: "bar-fill" });
    this.words = h("span", { class: "meter-words" });
    const bounds = { "aria-valuemin": 0, "aria-valuemax": 100 };
    this.track = h("span", { class: "bar-track", role: "meter", "aria-label": label, ...bounds }, this.bar);
    this.node = h("div", { class: "meter" }, this.words, this.track);
  }

  show(what, used, limit) {
    const share = limit ? Math.min(1, (used ?? 0) / limit) : 0;
    const full = share >= FULL ? ", nearly full" : "";
    const most = limit ? ` of ${size(limit)}${full}` : ", no limit";
    text(this.words, `${what}: ${used === null ? NONE : size(used) + most}`);
    shown(this.track, Boolean(limit));
    attr(this.track, "aria-valuenow", Math.round(share * 100));
    attr(this.track, "aria-valuetext", this.words.textContent);
    attr(this.node, "data-full", share >= FULL);
    this.bar.style.width = `${Math.max(share * 100, used ? 1 : 0)}%`;
  }
}

class GroupView {
  constructor(group) {
    const id = `group-${group.name}`;
    this.state = pill();
    this.lag = h("span", { class: "big" });
    this.lagBytes = h("span", { class: "quiet" });
    this.source = new Stage("PostgreSQL", term("wal"));
    this.capture = new Stage(term("capture"), term("lsn"));
    this.log = new Stage(term("log"));
    this.lake = new Stage(`Lake ${group.lake}`, term("lsn"));
    this.captureState = pill("small");
    this.deliveryState = pill("small");
    this.wal = new Meter("WAL that the source keeps for the slot");
    this.kept = new Meter("size of the log");
    this.tables = new Tables(group.name);
    this.timeline = new Timeline();
    this.charts = charts(group.name);
    this.source.node.append(this.wal.node);
    this.log.node.append(this.kept.node);
    this.capture.value.append(this.captureState.node);
    this.snapshot = h("span");
    this.numbered = h("span", {}, term("snapshot"), " ", this.snapshot);
    this.lake.value.append(this.numbered, this.deliveryState.node);
    const flow = [this.source, this.capture, this.log, this.lake].map((stage) => stage.node);
    this.node = h("section", { class: "group", "aria-labelledby": id },
      h("div", { class: "group-head" },
        h("h2", { id }, h("span", { class: "quiet" }, term("group", "Group"), " "), group.name),
        this.state.node,
        h("p", { class: "how-far" }, term("lag"), this.lag, this.lagBytes)),
      h("ol", { class: "flow card" }, flow),
      h("div", { class: "columns" },
        this.tables.node,
        h("div", { class: "side" },
          h("div", { class: "card" }, this.charts.lag.node, this.charts.rows.node),
          this.timeline.node)));
  }

  update(group) {
    this.group = group;
    this.state.update(group.disabled ? "DISABLED" : group.state);
    text(this.lag, group.lag_seconds === null ? "not known" : duration(group.lag_seconds));
    text(this.lagBytes, group.lag_bytes ? `${size(group.lag_bytes)} of WAL` : "");
    this.captureState.update(group.capture.state);
    this.deliveryState.update(group.delivery.state);
    const verb = group.staged_rows === 1 ? "waits" : "wait";
    const waiting = group.staged_rows ? `${counted(group.staged_rows, "change")} ${verb}` : "nothing waits";
    this.log.say(waiting, "changes stay until all tables have them");
    shown(this.numbered, group.snapshot_id !== null);
    text(this.snapshot, count(group.snapshot_id));
    const committed = group.delivered_at ? `committed ${clock(group.delivered_at)}` : "nothing delivered yet";
    this.lake.say(null, firstLine(group.delivery.error) ?? group.delivered_lsn ?? NONE, committed);
    this.kept.show("Log", group.log_bytes, group.log_max_bytes);
    this.tables.update(group);
    this.timeline.update(group.deliveries);
  }

  showSource(source) {
    const { group } = this;
    const behind = lsnDistance(group.captured_lsn, source.lsn);
    this.source.say(source.lsn ?? "not reachable", source.error ?? "ends here");
    attr(this.source.node, "data-kind", source.reachable ? null : "bad");
    const left = behind ? `${size(behind)} before the end` : "has everything";
    const captured = firstLine(group.capture.error) ?? group.captured_lsn ?? NONE;
    this.capture.say(null, captured, behind === null ? "" : left);
    this.wal.show("WAL kept", group.wal_bytes, group.wal_limit_bytes);
  }

  draw(at, series) {
    this.charts.lag.update(at, series.lag);
    this.charts.rows.update(at, series.rows_per_second);
  }
}

function charts(group) {
  const hour = (what) => `${what}, last hour`;
  const lag = { title: `Lag of group ${group}`, label: hour("Lag"), format: duration, axis: shortDuration, least: 1 };
  const changes = hour("Changes per second");
  const rows = { title: `Throughput of group ${group}`, label: changes, format: rate, axis: count, least: 10 };
  return { lag: new Chart(lag), rows: new Chart(rows) };
}

