// The verdict in words, and what is wrong, with the next move.
import { attr, h, list, once, shown, text, withCode } from "./dom.js";
import { icon } from "./icons.js";
import { destinationsOf } from "./routes.js";
import { tableAddress } from "./panel.js";
import { clock, counted } from "./words.js";

const SIGNS = { healthy: "check", behind: "warning", trouble: "cross", starting: "busy", unknown: "question" };
const WORDS = {
  healthy: "All is well",
  behind: "Behind",
  trouble: "Needs attention",
  starting: "Starting",
  unknown: "Not known",
};

const element = (id) => document.getElementById(id);
let announced = null;

export function showVerdict(overview) {
  const { verdict, problems } = overview;
  attr(element("verdict"), "data-verdict", verdict);
  once(element("sign"), verdict, () => [icon(SIGNS[verdict] ?? "question"), h("span", {}, WORDS[verdict] ?? verdict)]);
  text(element("sentence"), overview.sentence);
  text(element("facts"), facts(overview));
  document.title = `${verdict === "healthy" ? "" : `${WORDS[verdict] ?? verdict}: `}Headwater`;
  showProblems(problems);
  announce(verdict, problems);
}

function facts(overview) {
  const tables = overview.groups.reduce((sum, group) => sum + group.tables.length, 0);
  const source = overview.source.reachable ? `the source is at ${overview.source.lsn}` : "the source cannot be reached";
  const routes = overview.routes.length ? [counted(overview.routes.length, "route")] : [];
  const parts = [counted(overview.groups.length, "group"), counted(tables, "table"), ...routes, source];
  return [...parts, `seen at ${clock(overview.at)}`].join(" · ");
}

// Read out only when the verdict itself changes, not with every number in it.
function announce(verdict, problems) {
  const now = `${WORDS[verdict] ?? verdict}; ${problems.length ? counted(problems.length, "problem") : "no problems"}`;
  if (now === announced) return;
  announced = now;
  text(element("announcement"), now);
}

function showProblems(problems) {
  const ordered = [...problems].sort((a, b) => (a.severity === "error" ? 0 : 1) - (b.severity === "error" ? 0 : 1));
  shown(element("problems"), ordered.length > 0);
  const first = ordered.find((problem) => problem.hint);
  once(element("next"), first?.hint ?? "", () => (first ? [h("strong", {}, "What to do: "), withCode(first.hint)] : []));
  shown(element("next"), Boolean(first));
  list(element("problem-list"), ordered, (each) => [each.what, each.group, each.table, each.route].join("\n"), problemView);
}

function problemView() {
  const node = h("li", { class: "problem card" });
  const update = (problem) => {
    attr(node, "data-severity", problem.severity);
    once(node, problem, () => [
      h("span", { class: "severity" }, icon(problem.severity === "error" ? "cross" : "warning"), problem.severity),
      h("div", { class: "what" }, h("p", {}, problem.what), problem.hint && nextMove(problem.hint)),
      link(problem),
    ]);
  };
  return { node, update };
}

const nextMove = (hint) => h("p", { class: "move" }, h("strong", {}, "Next: "), withCode(hint));

function link(problem) {
  if (problem.table && problem.group) {
    return h("a", { href: tableAddress(problem.group, problem.table), class: "button" }, `Show ${problem.table}`);
  }
  if (!problem.route) return null;
  const button = h("button", { type: "button" }, `Show ${problem.route}`);
  button.addEventListener("click", () => destinationsOf(problem.route, "error"));
  return button;
}
