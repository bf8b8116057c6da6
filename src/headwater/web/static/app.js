// The page: what the service says goes to the parts that show it.
import { prepareVerify } from "./actions.js";
import { attr, text } from "./dom.js";
import { glossary } from "./glossary.js";
import { showGroups, showHistory } from "./groups.js";
import { icon } from "./icons.js";
import { Live } from "./live.js";
import { preparePanel, showPanel } from "./panel.js";
import { showRoutes } from "./routes.js";
import { begin, refresh, session, whenSessionChanges } from "./session.js";
import { showVerdict } from "./verdict.js";
import { wholeDuration } from "./words.js";

const element = (id) => document.getElementById(id);
const HISTORY = 10; // seconds, at least, between two readings of the last hour
const OLD = 5; // seconds from which on the age of what is shown is said

const STATES = {
  connecting: "connecting …",
  live: "live",
  gone: "the service does not answer; trying again",
  locked: "the token is needed",
};

let connection = "connecting";
let shownOnce = false;
let received = null; // when the newest overview came, by this machine's clock

function show(overview) {
  received = Date.now();
  showVerdict(overview);
  const nothingKnown = overview.verdict === "unknown";
  document.body.classList.toggle("stale", nothingKnown);
  if (!nothingKnown || !shownOnce) showParts(overview);
  text(element("version"), `Headwater ${overview.version}`);
}

// What was known last stays, greyed, as long as nothing newer is known.
function showParts(overview) {
  shownOnce = true;
  showGroups(overview);
  showRoutes(overview);
  showPanel(overview);
}

function connectionIs(state) {
  connection = state;
  attr(element("connection"), "data-state", state);
  text(element("connection-state"), STATES[state]);
  if (state !== "live") document.body.classList.add("stale");
  if (state === "locked") lock();
  age();
}

function lock() {
  text(element("sentence"), "Enter the token to see the mirror.");
  refresh().catch(() => {});
}

function age() {
  const seconds = received ? (Date.now() - received) / 1000 : 0;
  const old = connection === "gone" && seconds >= OLD;
  text(element("connection-age"), old ? `what you see is ${wholeDuration(seconds)} old` : "");
}

async function drawHistory() {
  let every = HISTORY;
  if (!document.hidden && connection === "live") every = (await showHistory().catch(() => null)) ?? HISTORY;
  setTimeout(drawHistory, Math.max(every, HISTORY) * 1000);
}

async function start() {
  element("theme").append(icon("sun"));
  element("token").prepend(icon("key"));
  glossary(element("words"));
  prepareVerify();
  preparePanel();
  const live = new Live("api/v1/events", {
    event: (name, data) => name === "overview" && show(data),
    state: connectionIs,
  });
  await begin().catch(() => {});
  let could = session.mayChange;
  whenSessionChanges(() => {
    if (session.mayChange && !could) live.connect();
    could = session.mayChange;
  });
  live.connect();
  setInterval(age, 1000);
  setTimeout(drawHistory, 300);
}

start();
