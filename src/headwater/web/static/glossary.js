// What the words mean: one explanation each, in a popover beside the word and in the list at the foot of the page.
import { h } from "./dom.js";

export const TERMS = {
  lag: ["Lag", "How old the oldest commit is that the source has and the lake does not have yet. 0 s: the lake has everything."],
  lsn: ["LSN", "Log sequence number: a position in PostgreSQL's write-ahead log, such as 0/1A2B3C8. Later positions are larger."],
  wal: ["WAL", "PostgreSQL's write-ahead log. The source keeps it for Headwater's replication slot until the log has it; if it keeps more than its limit, the slot is lost."],
  log: ["Log", "Headwater's own durable copy of the changes, in files. PostgreSQL may forget its WAL as soon as the log has it, so a lake that is down does not fill the source's disk."],
  snapshot: ["Snapshot", "One version of the lake. In a DuckLake each snapshot shows all tables of the group as the source was at one LSN, and can be queried later by its number."],
  capture: ["Capture", "The process that reads the replication stream of the source and appends it to the log."],
  delivery: ["Delivery", "One commit into the lake: it waits for changes to collect, folds them to one change per key, locates the rows that they replace, writes the files and commits them."],
  quarantine: ["Quarantine", "Values that the lake's types cannot hold. The mirror has NULL there, and the whole value is kept in the lake's table headwater_quarantine, so nothing is lost."],
  group: ["Group", "Tables that are mirrored together through one replication slot, into one lake."],
  route: ["Route", "It carries a table's changes on to other lakes, by the value of a column: one destination for each value."],
  mirror: ["Mirror or history", "A mirror has the source's rows as they are now. A history keeps every change as a row."],
  PENDING: ["PENDING", "Waits to be copied, for the first time or again."],
  SNAPSHOT: ["SNAPSHOT", "Is being copied; the changes since are kept in the log."],
  CATCHUP: ["CATCHUP", "Copied, and catching up with the changes that were made meanwhile."],
  STREAMING: ["STREAMING", "Follows the source."],
  ERRORED: ["ERRORED", "Cannot go on; it is tried again at the time that is shown. The other tables go on."],
  PAUSED: ["PAUSED", "Paused by hand: its mirror stays as it is, and the log is kept for it until it is resumed."],
  REMOVED: ["REMOVED", "No longer mirrored; what the lake has of it stays as it is."],
  RUNNING: ["RUNNING", "Its processes run."],
  STARTING: ["STARTING", "A process is being started, or started again after a failure."],
  STOPPED: ["STOPPED", "Nothing runs it, or an error keeps it from running."],
  DISABLED: ["DISABLED", "A group that was stopped by hand, until it is enabled again."],
  healthy: ["healthy", "The destination has everything."],
  buffering: ["buffering", "Changes wait for the next poll of the route."],
  flushing: ["flushing", "Changes are being delivered to it now."],
  lagging: ["lagging", "Changes wait for longer than they should, or the destination is yet to be filled."],
  error: ["error", "The last attempt failed; it is tried again. Other destinations go on."],
  paused: ["paused", "Paused by hand: the destination stays as it is until it is resumed."],
};

export const explanation = (name) => TERMS[name]?.[1] ?? "";

const WIDTH = 288;
const GAP = 6;

/** A word that explains itself when it is pressed. */
export function term(name, label = TERMS[name][0]) {
  const button = h("button", { type: "button", class: "term", title: explanation(name) }, label);
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    explain(button, name);
  });
  return button;
}

function explain(button, name) {
  const popover = document.getElementById("explanation");
  popover.replaceChildren(h("strong", {}, TERMS[name][0]), h("p", {}, explanation(name)));
  // A modal dialog makes everything else inert: the popover must be in it, too.
  (button.closest("dialog") ?? document.body).append(popover);
  const box = button.getBoundingClientRect();
  popover.style.left = `${Math.max(GAP, Math.min(box.left, innerWidth - WIDTH - GAP))}px`;
  popover.style.top = `${box.bottom + GAP}px`;
  popover.showPopover();
  const below = popover.getBoundingClientRect();
  if (below.bottom > innerHeight) popover.style.top = `${Math.max(GAP, box.top - below.height - GAP)}px`;
}

/** The list at the foot of the page. */
export function glossary(into) {
  const words = (names) => names.flatMap((name) => [h("dt", {}, TERMS[name][0]), h("dd", {}, TERMS[name][1])]);
  const names = Object.keys(TERMS);
  const ours = names.filter((name) => name === name.toLowerCase() && names.indexOf(name) < names.indexOf("PENDING"));
  const states = names.slice(names.indexOf("PENDING"), names.indexOf("healthy"));
  const statuses = names.slice(names.indexOf("healthy"));
  for (const [title, group] of [["Words", ours], ["States", states], ["Destinations of routes", statuses]]) {
    into.append(h("div", {}, h("h3", {}, title), h("dl", {}, words(group))));
  }
  document.addEventListener("scroll", () => document.querySelector("#explanation:popover-open")?.hidePopover(), true);
}
