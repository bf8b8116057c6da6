// Who is looking: whether the service wants a token, and whether this browser may change things.
import { change, get, useCsrf } from "./api.js";
import { shown, text } from "./dom.js";

export const session = { known: false, needsToken: false, mayChange: false };

const listeners = [];

/** Whether nothing can be seen before the token is entered. */
const locked = () => session.needsToken && !session.mayChange;

/** Call it now and whenever the session changes. */
export function whenSessionChanges(listener) {
  listeners.push(listener);
  listener();
}

function take(answer) {
  session.known = true;
  session.needsToken = answer.needs_token ?? session.needsToken;
  session.mayChange = Boolean(answer.may_change);
  useCsrf(answer.csrf ?? null);
  for (const listener of listeners) listener();
}

/** Why a button is off; empty: it is on. */
export function whyNot() {
  if (session.mayChange) return "";
  return session.needsToken
    ? "Enter the token to make changes."
    : "Changes are off, because the service has no token: set server.token in headwater.yaml.";
}

const element = (id) => document.getElementById(id);

/** Ask for the token in a dialog. */
export function askForToken() {
  const dialog = element("token-dialog");
  if (dialog.open) return;
  text(element("token-error"), "");
  dialog.showModal();
  element("token-input").focus();
}

async function enter(token) {
  take(await change("POST", "session", { token }));
}

/** The token of a fragment, as it was given or with %-escapes; null: it has none. A `+` is a plus: this is no form. */
export function tokenOf(hash) {
  const [, given = null] = /^#token=(.+)$/.exec(hash) ?? [];
  try {
    return given && decodeURIComponent(given);
  } catch {
    return given; // a % of its own
  }
}

/** Find out what this session may do. A token in the address' fragment is taken from there, and removed. */
export async function begin() {
  const given = tokenOf(location.hash);
  if (given) {
    history.replaceState(null, "", location.pathname + location.search);
    await enter(given).catch(() => {});
  }
  if (!session.mayChange) await refresh();
}

/** Ask the service what this session may do now, and for the token if it needs one. */
export async function refresh() {
  take(await get("session"));
  if (locked()) askForToken();
}

element("token").addEventListener("click", askForToken);
element("token-cancel").addEventListener("click", () => element("token-dialog").close());
element("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await enter(element("token-input").value);
    element("token-input").value = "";
    element("token-dialog").close();
  } catch (error) {
    text(element("token-error"), error.hint ? `${error.message}: ${error.hint}` : error.message);
    element("token-input").select();
  }
});
whenSessionChanges(() => shown(element("token"), locked()));
