// Routes and their destinations. The service searches, sorts and pages: a route may have thousands of them.
import { get, pathOf } from "./api.js";
import { act, guard } from "./actions.js";
import { attr, h, list, shown, text } from "./dom.js";
import { term } from "./glossary.js";
import { Chips, sorter } from "./listing.js";
import { pill } from "./states.js";
import { NONE, clock, count, counted, duration, withHint } from "./words.js";

const PAGE = 25;
const TYPING = 150; // milliseconds
const EVERY = 5000;
const NEAR = "400px"; // of what is seen: only then are its destinations asked for

const COLUMNS = [
  ["value", "Destination", null, true],
  ["status", "Status", null, true],
  ["rows", "Rows", null, true],
  ["lag", "Lag", "lag", true],
  ["delivered", "Delivered", null, false],
];
const ALIGNED = new Set(["rows", "lag", "delivered"]);
const DESCENDING = new Set(["lag", "rows"]); // what is largest is what one looks for

const routes = new Map();

export function showRoutes(overview) {
  list(document.getElementById("routes"), overview.routes, (route) => route.name, (route) => {
    const view = new RouteView(route);
    routes.set(route.name, view);
    return view;
  });
}

/** Bring a route into view, with only the destinations of one status. */
export function destinationsOf(name, status) {
  const view = routes.get(name);
  if (!view) return;
  view.node.scrollIntoView({ block: "start" });
  view.chips.press(status);
}

class RouteView {
  #sort = { column: "status", reverse: false };
  #offset = 0;
  #asking = null;
  #visible = false;

  constructor(route) {
    this.name = route.name;
    const id = `route-${route.name}`;
    this.lag = h("span", { class: "big" });
    this.search = h("input", { type: "search", placeholder: "Search destinations", "aria-label": `Search destinations of route ${route.name}`, autocomplete: "off", spellcheck: "false" });
    this.chips = new Chips(`Destinations of route ${route.name} by status`, () => this.#again());
    this.heads = sorter(COLUMNS, ALIGNED, this.#sort, () => this.#again());
    this.body = h("tbody");
    this.failed = h("p", { class: "failed", role: "alert" });
    this.matching = h("p", { class: "quiet", role: "status" });
    this.before = h("button", { type: "button", hidden: true }, "Previous");
    this.after = h("button", { type: "button", hidden: true }, "Next");
    this.pager = h("div", { class: "pager" }, this.matching, this.before, this.after);
    const table = h("table", { "aria-labelledby": id }, h("thead", {}, h("tr", {}, this.heads.cells)), this.body);
    this.node = h("section", { class: "route", "aria-labelledby": id },
      h("div", { class: "group-head" },
        h("h2", { id }, h("span", { class: "quiet" }, term("route", "Route"), " "), route.name),
        h("p", { class: "quiet" }, `from ${route.source}`),
        h("p", { class: "how-far" }, term("lag"), this.lag)),
      h("div", { class: "card tables" }, h("div", { class: "card-head" }, h("h3", {}, "Destinations"), this.search),
        this.chips.node, this.failed, table, this.pager));
    this.#listen();
  }

  #listen() {
    let typing = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.#again(), TYPING);
    });
    this.before.addEventListener("click", () => this.#turn(-PAGE));
    this.after.addEventListener("click", () => this.#turn(PAGE));
    const near = ([entry]) => {
      this.#visible = entry.isIntersecting;
      if (this.#visible) this.load();
    };
    new IntersectionObserver(near, { rootMargin: NEAR }).observe(this.node);
    setInterval(() => {
      if (this.#visible && !document.hidden && !this.#asking) this.load();
    }, EVERY);
  }

  update(route) {
    this.chips.show(route.counts);
    text(this.lag, route.lag_seconds === null ? "not known" : duration(route.lag_seconds));
  }

  #again() {
    this.heads.show();
    this.#offset = 0;
    this.load();
  }

  #turn(by) {
    this.#offset = Math.max(0, this.#offset + by);
    this.load();
  }

  async load() {
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    try {
      const found = await get(`routes/${pathOf(this.name)}/destinations?${this.#query()}`, asking.signal);
      this.#show(found);
      text(this.failed, "");
    } catch (error) {
      if (error.name === "AbortError") return;
      text(this.failed, `The destinations cannot be shown: ${error.message}`);
    }
    if (this.#asking === asking) this.#asking = null;
  }

  #query() {
    const { column, reverse } = this.#sort;
    const order = DESCENDING.has(column) === reverse ? "asc" : "desc";
    const asked = new URLSearchParams({ sort: column, order, offset: this.#offset, limit: PAGE });
    if (this.search.value.trim()) asked.set("search", this.search.value.trim());
    if (this.chips.pressed) asked.set("status", this.chips.pressed);
    return asked;
  }

  #show(found) {
    const first = found.destinations.length ? this.#offset + 1 : 0;
    const last = this.#offset + found.destinations.length;
    list(this.body, found.destinations, (each) => each.name, () => destinationView(this.name, () => this.load()));
    const range = found.matching > found.destinations.length ? `${count(first)}–${count(last)} of ` : "";
    const of = found.matching < found.total ? `, of ${count(found.total)} in all` : "";
    text(this.matching, found.matching ? `${range}${counted(found.matching, "destination")}${of}` : "No destination matches.");
    this.before.disabled = this.#offset === 0;
    this.after.disabled = last >= found.matching;
    shown(this.before, found.matching > PAGE);
    shown(this.after, found.matching > PAGE);
  }
}

function destinationView(route, changed) {
  const status = pill();
  const open = h("button", { type: "button", class: "name", "aria-expanded": "false" });
  const note = h("p", { class: "note" });
  const more = h("div", { class: "more-of", hidden: true });
  const [rows, lag, delivered] = ["rows", "lag", "delivered"].map((name) => h("td", { class: `number ${name}` }));
  const node = h("tr", {}, h("th", { scope: "row" }, open, note, more), h("td", {}, status.node), rows, lag, delivered);
  let now = null;
  const details = () => {
    attr(open, "aria-expanded", String(!more.hidden));
    if (!more.hidden) more.replaceChildren(...detailsOf(route, now, changed));
  };
  open.addEventListener("click", () => {
    shown(more, more.hidden);
    details();
  });
  const update = (each) => {
    const same = now && now.status === each.status && now.error === each.error;
    now = each;
    status.update(each.status);
    text(open, each.name);
    text(note, withHint(each.error ?? "")[0] || (each.seed ? `to be filled: ${each.seed}` : ""));
    shown(note, Boolean(note.textContent));
    attr(note, "data-bad", Boolean(each.error));
    text(rows, count(each.rows));
    text(lag, duration(each.lag_seconds));
    text(delivered, clock(each.delivered_at));
    if (!same) details();
  };
  return { node, update };
}

function detailsOf(route, each, changed) {
  const { name } = each;
  const facts = [
    ["Lake", `${each.lake}, table ${each.table}`],
    ["Complete up to", each.position ?? NONE],
    ["Waiting", each.waiting_rows ? counted(each.waiting_rows, "row") : "nothing"],
    ["Next attempt", each.retry_at ? clock(each.retry_at) : NONE],
  ];
  const button = (verb, label, why) => {
    const made = h("button", { type: "button" }, label);
    const path = `routes/${pathOf(route, "destinations", name)}/${verb}`;
    made.addEventListener("click", async () => (await act({ title: `${label} ${name}?`, why, label, path })) && changed());
    return guard(made);
  };
  const paused = each.status === "paused";
  return [
    h("dl", { class: "facts" }, facts.flatMap(([word, value]) => [h("dt", {}, word), h("dd", {}, value)])),
    h("div", { class: "buttons" },
      paused || each.status === "error"
        ? button("resume", "Resume", "It goes on from where it is, and is tried at once.")
        : null,
      paused ? null : button("pause", "Pause", "The destination stays as it is until it is resumed. Others go on."),
      button("seed", "Seed again", "Its table is filled again from the whole source. Readers see the old rows until the new ones are there.")),
  ];
}
