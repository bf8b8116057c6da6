// Requests to the service. Paths are relative, so the page also works behind a proxy's prefix.

export class Refused extends Error {
  constructor(status, what, hint) {
    super(what);
    this.status = status; // 0: the service did not answer
    this.hint = hint;
  }
}

let csrf = null;

/** What a change must bring along; null: changes are not allowed. */
export function useCsrf(value) {
  csrf = value;
}

async function asked(path, options) {
  let response;
  try {
    response = await fetch(`api/v1/${path}`, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the service does not answer", "is `headwater run` running?");
  }
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  throw new Refused(response.status, body?.error ?? `the service answered ${response.status}`, body?.hint ?? null);
}

export const get = (path, signal) => asked(path, { signal });

export function change(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  if (csrf) headers["X-Headwater-CSRF"] = csrf;
  return asked(path, { method, headers, body: JSON.stringify(body ?? {}) });
}

/** A path of parts that may have any characters. */
export const pathOf = (...parts) => parts.map(encodeURIComponent).join("/");
