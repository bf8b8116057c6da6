// What changes something: asked first, then done, then watched until it is known what became of it.
import { change, get } from "./api.js";
import { attr, h, text } from "./dom.js";
import { icon } from "./icons.js";
import { refresh, session, whenSessionChanges, whyNot } from "./session.js";
import { pillOf } from "./states.js";
import { count, counted, withHint } from "./words.js";

const EVERY = 700; // milliseconds
const PATIENCE = 900; // polls

const element = (id) => document.getElementById(id);
const after = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const guarded = new Set();

/** Switch a button off, with the reason, as long as this session may not change anything. */
export function guard(button) {
  guarded.add(new WeakRef(button));
  check(button);
  return button;
}

function check(button) {
  const reason = whyNot();
  button.disabled = Boolean(reason);
  attr(button, "title", reason || null);
}

whenSessionChanges(() => {
  for (const each of guarded) {
    const button = each.deref();
    if (button) check(button);
    else guarded.delete(each);
  }
});

/** Ask whether to do it; true: yes. */
function confirmed({ title, why, label }) {
  const dialog = element("confirmation");
  text(element("confirmation-title"), title);
  text(element("confirmation-text"), why);
  text(element("confirmation-yes"), label);
  dialog.returnValue = "no";
  dialog.showModal();
  element("confirmation-no").focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Ask, request, and show what becomes of it; true: it was done. */
export async function act({ title, why, label, path, body }) {
  if (!(await confirmed({ title, why, label }))) return false;
  const note = new Note(title.replace(/\?$/, ""));
  try {
    const answer = await change("POST", path, body);
    if (answer?.verification !== undefined) return await verification(note, answer.verification);
    if (answer?.request) return await request(note, answer.request);
    note.end("good", answer?.changed === 0 ? "nothing had to be changed" : "done");
    return true;
  } catch (error) {
    note.end("bad", error.message, error.hint);
    if (error.status === 401) await refresh();
    return false;
  }
}

async function request(note, id) {
  note.say("asked; the service acts on it in a moment");
  for (let n = 0; n < PATIENCE; n += 1) {
    const now = await get(`requests/${id}`);
    if (now.state !== "waiting") {
      note.end(now.state === "done" ? "good" : "bad", now.outcome ?? now.state, now.hint);
      return now.state === "done";
    }
    await after(EVERY);
  }
  note.end("busy", "no service has acted on it yet; `headwater table list` shows requests that wait");
  return false;
}

async function verification(note, id) {
  note.say("comparing source and lake at one LSN …");
  for (let n = 0; n < PATIENCE; n += 1) {
    const now = await get(`verifications/${id}`);
    if (now.state !== "running") {
      showVerified(note, now);
      return true;
    }
    await after(EVERY);
  }
  note.end("busy", "the comparison is still under way");
  return false;
}

function showVerified(note, answer) {
  const results = answer.verdicts;
  const bad = results.filter((each) => !each.ok);
  if (answer.error) note.end("bad", ...withHint(answer.error));
  else if (bad.length) note.end("bad", `${count(bad.length)} of ${counted(results.length, "comparison")} found no equality`);
  else note.end("good", `the lake equals the source: ${counted(results.length, "comparison")}`);
  const row = (each) => h("li", {}, pillOf(each.verdict), ` ${nameOf(each)}`, each.reason ? `: ${each.reason}` : "");
  if (results.length) note.add(h("ul", {}, [...bad, ...results.filter((each) => each.ok)].slice(0, 50).map(row)));
}

const nameOf = (each) => (each.route ? `${each.route}: ${each.destination}` : each.table);

/** One line of the list of what was asked for. */
class Note {
  constructor(title) {
    this.sign = h("span", { class: "sign" }, icon("busy"));
    this.said = h("p", { role: "status" });
    this.close = h("button", { type: "button", class: "square", "aria-label": `Dismiss: ${title}` }, icon("cross"));
    this.text = h("div", { class: "said" }, h("strong", {}, title), this.said);
    this.node = h("div", { class: "activity-note", "data-kind": "busy" }, this.sign, this.text, this.close);
    this.close.addEventListener("click", () => this.node.remove());
    // Behind a modal dialog it could be neither seen nor pressed.
    const open = document.querySelector("dialog.panel[open] .requests");
    (open ?? element("activity")).prepend(this.node);
  }

  say(words) {
    text(this.said, words);
  }

  add(node) {
    this.text.append(node);
  }

  end(kind, words, hint) {
    attr(this.node, "data-kind", kind);
    this.sign.replaceChildren(icon({ good: "check", bad: "cross" }[kind] ?? "busy"));
    this.say(hint ? `${words}. Next: ${hint}` : words);
  }
}

export function prepareVerify() {
  const button = guard(element("verify"));
  button.prepend(icon("shield"));
  button.addEventListener("click", () =>
    act({
      title: "Verify all tables?",
      why: "Source and lake are compared by content at one LSN, while writes go on. It reads every row of both, once.",
      label: "Verify",
      path: "verify",
    }));
  whenSessionChanges(() => {
    const notice = element("read-only");
    notice.hidden = !session.known || session.mayChange || session.needsToken;
    text(notice, notice.hidden ? "" : `You can look at everything here. ${whyNot()}`);
  });
}
