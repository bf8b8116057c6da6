// Signs: with a word beside them or as the picture of a named button, never alone.
import { svg } from "./dom.js";

const PATHS = {
  check: "M4 10.5l4 4 8-9",
  cross: "M5 5l10 10M15 5L5 15",
  warning: "M10 3.2L18 17H2zM10 8v4.2M10 14.4v.2",
  busy: "M10 2.8a7.2 7.2 0 1 1-7.2 7.2M10 5.8V10l2.8 1.8",
  pause: "M7 4.5v11M13 4.5v11",
  question: "M7.2 7.6a2.8 2.8 0 1 1 4.1 2.5c-.9.5-1.3 1-1.3 2M10 15v.2",
  copy: "M7 7h9v10H7zM4 13V3h9",
  sun: "M10 6.4a3.6 3.6 0 1 1 0 7.2 3.6 3.6 0 0 1 0-7.2M10 1.8v1.6M10 16.6v1.6M1.8 10h1.6M16.6 10h1.6M4.2 4.2l1.1 1.1M14.7 14.7l1.1 1.1M15.8 4.2l-1.1 1.1M5.3 14.7l-1.1 1.1",
  key: "M12.5 3.2a4.2 4.2 0 1 1-3.3 6.8L3 16.2V18h3v-2h2v-2h1.6M13.6 6.6v.2",
  right: "M7.5 4.5L13 10l-5.5 5.5",
  shield: "M10 2.4l6.4 2.4v5c0 3.8-2.6 6.5-6.4 7.9-3.8-1.4-6.4-4.1-6.4-7.9v-5zM7 10l2.2 2.2L13.2 8",
};

export function icon(name) {
  const path = svg("path", { d: PATHS[name] });
  return svg("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true", focusable: "false" }, path);
}
