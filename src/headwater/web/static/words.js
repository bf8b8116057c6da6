// Numbers, lengths of time, sizes and moments as people read them.

const SPACE = "\u202f"; // narrow, and does not break
export const NONE = "–";

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/** `12 345` */
export function count(number) {
  return known(number) ? String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, SPACE) : NONE;
}

/** What an error says, and its next move if it has one. */
export function withHint(error) {
  const [what, hint = null] = error.split("\nhint: ");
  return [what, hint];
}

/** `1 table`, `12 345 tables` */
export function counted(number, noun, plural = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : plural}`;
}

/** `340 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h` */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 0.0995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  if (hours < 1) return `${minutes} min ${whole % 60} s`;
  return hours < 24 ? `${hours} h ${minutes % 60} min` : `${count(Math.floor(hours / 24))} d ${hours % 24} h`;
}

/** `12 s`, `3 min 20 s`: without parts of a second */
export const wholeDuration = (seconds) => (seconds < 60 ? `${Math.floor(seconds)} s` : duration(seconds));

/** `1.2 s`, `3 min`, `2 h`: for an axis */
export function shortDuration(seconds) {
  if (seconds < 1 && seconds > 0) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${+seconds.toFixed(1)} s`;
  return seconds < 3600 ? `${+(seconds / 60).toFixed(1)} min` : `${+(seconds / 3600).toFixed(1)} h`;
}

/** `3.4 MB`, in units of 1024, as PostgreSQL counts */
export function size(bytes) {
  if (!known(bytes)) return NONE;
  let left = bytes;
  let unit = "B";
  for (const next of ["kB", "MB", "GB", "TB"]) {
    if (left < 1024) break;
    left /= 1024;
    unit = next;
  }
  return unit === "B" || left >= 100 ? `${count(left)} ${unit}` : `${left.toFixed(1)} ${unit}`;
}

/** `1 234/s`, `0.4/s` */
export function rate(perSecond) {
  if (!known(perSecond)) return NONE;
  return `${perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : count(perSecond)}/s`;
}

/** A Date of seconds since 1970, or of what JSON has for a time. */
export function moment(value) {
  if (!known(value)) return null;
  return new Date(typeof value === "number" ? value * 1000 : value);
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const SHORT = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

/** `20:15:03`, with the day unless it is today; local time */
export function clock(value) {
  const at = moment(value);
  if (!at) return NONE;
  const today = at.toDateString() === new Date().toDateString();
  return today ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at)}`;
}

/** `20:15` */
export const shortClock = (value) => SHORT.format(moment(value));

/** The whole of it, for a tooltip. */
export const wholeTime = (value) => (moment(value) ? WHOLE.format(moment(value)) : "");

/** The WAL between two LSNs in bytes; null: one of them is not known. */
export function lsnDistance(from, to) {
  if (!from || !to) return null;
  const value = (lsn) => lsn.split("/").reduce((sum, part) => sum * 2 ** 32 + parseInt(part, 16), 0);
  return Math.max(0, value(to) - value(from));
}
