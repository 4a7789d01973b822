// How keys, values and headers of records are written. Pure: no imports.

const SHOWN = 120;

// A key or a value on one line.
export function shown(value, most = SHOWN) {
  if (value === null) return "null";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

// A value on lines: JSON is indented, anything else stays as it is. Long numbers keep their digits.
export function pretty(value) {
  if (typeof value !== "string") return shown(value, Infinity);
  try {
    const parsed = JSON.parse(value);
    const text = JSON.stringify(parsed, null, 2);
    return typeof parsed === "object" && sameDigits(value, text) ? text : value;
  } catch {
    return value;
  }
}

// Whether JavaScript's numbers lost nothing: 64-bit integers and 1.0 are not written back as they were.
function sameDigits(before, after) {
  const digits = (text) => text.replace(/"(?:[^"\\]|\\.)*"/g, '""').replace(/\s/g, "");
  return digits(before) === digits(after);
}

// Lines of `name: value` as pairs. Throws an Error that names a line without a name.
export function readHeaders(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`a header is written as name: value, not ${line.trim()}`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}

// A time without a zone is the browser's, as the times that the page shows; the control plane takes it for UTC.
export function withZone(text) {
  const [day, time] = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?$/.exec(text)?.slice(1) ?? [];
  const moment = day && new Date(`${day}${time ?? "T00:00"}`);
  return moment && !Number.isNaN(moment.getTime()) ? moment.toISOString() : text;
}
