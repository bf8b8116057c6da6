// The stream of events. It is read by fetch and not by EventSource, which hides the comments that show that the
// connection is alive, and the status with which the service refuses it.

const SILENT = 40_000; // milliseconds; a comment comes every 15 seconds
const HIDDEN = 60_000; // a hidden page lets the connection go
const WAITS = [500, 1000, 2000, 5000];

/** One event of the stream: its name, and what it says. */
export function parsed(block) {
  const event = { name: "message", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event.name = line.slice(6).trim();
    else if (line.startsWith("data:")) event.data += line.slice(5).trim();
  }
  return event.data ? { name: event.name, data: JSON.parse(event.data) } : null;
}

export class Live {
  #path;
  #on;
  #failures = 0;
  #stop = null;
  #timer = 0;

  /** `on.event(name, data)`, `on.state("connecting" | "live" | "gone" | "locked")`. */
  constructor(path, on) {
    this.#path = path;
    this.#on = on;
    let hidden = 0;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(hidden);
      if (document.hidden) hidden = setTimeout(() => this.#stop?.abort("hidden"), HIDDEN);
      else if (this.#stop === null) this.connect();
    });
    addEventListener("online", () => this.connect());
  }

  /** Connect now, whatever the waiting time. */
  async connect() {
    clearTimeout(this.#timer);
    this.#stop?.abort("again");
    const stop = new AbortController();
    this.#stop = stop;
    let state = "gone";
    try {
      state = await this.#read(stop);
    } catch {
      // The connection broke, or was never made: the state says so.
    }
    if (stop.signal.reason === "again") return;
    this.#stop = null;
    this.#on.state(state);
    if (state === "locked" || stop.signal.reason === "hidden") return;
    this.#timer = setTimeout(() => this.connect(), WAITS[Math.min(this.#failures++, WAITS.length - 1)]);
  }

  async #read(stop) {
    let watchdog = setTimeout(() => stop.abort("silent"), SILENT);
    try {
      const headers = { Accept: "text/event-stream" };
      const response = await fetch(this.#path, { headers, cache: "no-store", signal: stop.signal });
      if (response.status === 401 || response.status === 403) return "locked";
      if (!response.ok) return "gone";
      this.#on.state("live");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let pending = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return "gone";
        clearTimeout(watchdog);
        watchdog = setTimeout(() => stop.abort("silent"), SILENT);
        this.#failures = 0;
        const blocks = (pending + value.replaceAll("\r\n", "\n")).split("\n\n");
        pending = blocks.pop();
        for (const event of blocks.map(parsed)) if (event) this.#on.event(event.name, event.data);
      }
    } finally {
      clearTimeout(watchdog);
    }
  }
}
