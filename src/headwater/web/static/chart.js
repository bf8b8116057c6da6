// A line over the last hour, with a reading of its values by pointer, finger and keyboard.
import { attr, h, svg, text } from "./dom.js";
import { NONE, clock, shortClock } from "./words.js";

const HOUR = 3600;
const QUARTER = 900;
const HEIGHT = 148;
const LEFT = 54;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;

const present = (value) => value !== null && value !== undefined;

/** The smallest of 1, 2, 2.5, 5 × 10ⁿ that is not below. */
export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

/** At most one point for each pixel, the highest: a peak must not vanish because the screen is narrow. */
function thinned(points, x) {
  const found = new Map();
  for (const point of points) {
    const pixel = Math.round(x(point.at));
    const before = found.get(pixel);
    if (!before || !present(before.value) || (present(point.value) && point.value > before.value)) {
      found.set(pixel, point);
    }
  }
  return [...found.values()];
}

/** Pieces between the gaps in which nothing is known. */
function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (present(point.value)) found.at(-1).push(point);
    else if (found.at(-1).length) found.push([]);
  }
  return found.filter((piece) => piece.length);
}

export class Chart {
  #format;
  #axis;
  #least;
  #points = [];
  #shown = null; // the point that is read; null: the newest
  #place = null; // how times and values become pixels
  #parts = {};

  /** `format` is for a value, `axis` for a label of the axis, `least` what the axis shows at least. */
  constructor({ title, label, format, axis = format, least }) {
    [this.#format, this.#axis, this.#least] = [format, axis, least];
    const id = `chart-${Math.random().toString(36).slice(2)}`;
    const parts = this.#parts;
    parts.title = svg("title", { id: `${id}-title` }, title);
    parts.desc = svg("desc", { id: `${id}-desc` });
    parts.grid = svg("g", { class: "grid" });
    parts.area = svg("path", { class: "area" });
    parts.line = svg("path", { class: "line" });
    parts.mark = svg("g", { class: "mark", visibility: "hidden" }, svg("line"), svg("circle", { r: 3.5 }));
    const names = { role: "img", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-desc` };
    parts.svg = svg("svg", names, parts.title, parts.desc, parts.grid, parts.area, parts.line, parts.mark);
    parts.reading = h("span", { class: "reading" }, NONE);
    parts.range = h("input", { type: "range", min: 0, step: 1, "aria-label": `${title}: value at a time` });
    parts.plot = h("div", { class: "plot" }, parts.svg, parts.range);
    this.node = h("figure", { class: "chart" }, h("figcaption", {}, h("h4", {}, label), parts.reading), parts.plot);
    this.#listen();
  }

  #listen() {
    const { plot, range } = this.#parts;
    plot.addEventListener("pointermove", (event) => this.#readAt(event.clientX - plot.getBoundingClientRect().left));
    plot.addEventListener("pointerleave", () => this.#read(null));
    range.addEventListener("input", () => this.#read(Number(range.value)));
    range.addEventListener("blur", () => this.#read(null));
    new ResizeObserver(() => this.#draw()).observe(plot);
  }

  update(at, values) {
    this.#points = at.map((time, n) => ({ at: time, value: values[n] }));
    this.#draw();
  }

  #draw() {
    const { svg: drawing, plot, area, line, range } = this.#parts;
    const width = plot.clientWidth;
    if (!width) return;
    const values = this.#points.map((point) => point.value).filter(present);
    const top = nice(values.reduce((most, value) => Math.max(most, value), this.#least));
    const end = this.#points.at(-1)?.at ?? Date.now() / 1000;
    const x = (time) => LEFT + ((time - (end - HOUR)) / HOUR) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    this.#place = { x, y, end };
    attr(drawing, "viewBox", `0 0 ${width} ${HEIGHT}`);
    attr(drawing, "height", HEIGHT);
    this.#drawGrid(width, top);
    const visible = this.#points.filter((point) => point.at >= end - HOUR);
    const drawn = pieces(thinned(visible, x));
    const path = (piece) => piece.map((p, n) => `${n ? "L" : "M"}${x(p.at).toFixed(1)} ${y(p.value).toFixed(1)}`).join("") + (piece.length > 1 ? "" : "h0");
    const closed = (piece) => `${path(piece)}V${y(0)}H${x(piece[0].at).toFixed(1)}Z`;
    attr(line, "d", drawn.map(path).join(""));
    attr(area, "d", drawn.map(closed).join(""));
    attr(range, "max", Math.max(0, this.#points.length - 1));
    if (this.#shown === null) range.value = this.#points.length - 1;
    this.#describe(values);
    this.#read(this.#shown);
  }

  #drawGrid(width, top) {
    const { x, y, end } = this.#place;
    const nodes = [0, top / 2, top].flatMap((value) => [
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, this.#axis(value)),
    ]);
    for (let time = Math.ceil((end - HOUR) / QUARTER) * QUARTER; time <= end; time += QUARTER) {
      const anchor = x(time) > width - 30 ? "end" : "middle";
      nodes.push(svg("text", { x: x(time), y: HEIGHT - 5, "text-anchor": anchor }, shortClock(time)));
    }
    this.#parts.grid.replaceChildren(...nodes);
  }

  #describe(values) {
    const latest = this.#format(this.#points.at(-1)?.value);
    const highest = values.length ? this.#format(values.reduce((a, b) => Math.max(a, b))) : NONE;
    text(this.#parts.desc, `The last hour: now ${latest}, at most ${highest}.`);
    this.summary = `now ${latest} · most ${highest}`;
  }

  #readAt(pixel) {
    if (!this.#points.length || !this.#place) return;
    const distance = (point) => Math.abs(this.#place.x(point.at) - pixel);
    let best = 0;
    this.#points.forEach((point, n) => {
      if (distance(point) < distance(this.#points[best])) best = n;
    });
    this.#read(best);
  }

  #read(index) {
    const { mark, range, reading } = this.#parts;
    const point = index === null ? null : this.#points[index];
    this.#shown = point ? index : null;
    attr(mark, "visibility", point && present(point.value) ? "visible" : "hidden");
    text(reading, point ? `${clock(point.at)} · ${this.#format(point.value)}` : this.summary);
    attr(range, "aria-valuetext", point ? `${clock(point.at)}: ${this.#format(point.value)}` : this.summary);
    if (!point) return;
    range.value = index;
    if (!present(point.value)) return;
    const [line, circle] = mark.children;
    const { x, y } = this.#place;
    for (const [name, value] of [["x1", x(point.at)], ["x2", x(point.at)], ["y1", TOP], ["y2", y(0)]]) attr(line, name, value);
    attr(circle, "cx", x(point.at));
    attr(circle, "cy", y(point.value));
  }
}
