// Series of numbers over time, and rows that repeat. Pure: no imports.

const SLACK_S = 1; // a sample that comes a little late is no gap

// The spans between samples during which nothing was measured. A sample covers the `span` seconds before its `at`.
export function gapsOf(samples) {
  const gaps = [];
  for (let at = 1; at < samples.length; at++) {
    const [from, to] = [samples[at - 1].at, samples[at].at - samples[at].span];
    if (to - from > SLACK_S) gaps.push([from, to]);
  }
  return gaps;
}

// Columns for a chart: times, then the values of each series. Null values in a gap interrupt the line there.
export function columnsOf(samples, valuesOf) {
  const gaps = new Map(gapsOf(samples).map(([from, to]) => [to, from]));
  const rows = [];
  for (const one of samples) {
    const values = valuesOf(one);
    const begin = one.at - one.span;
    if (gaps.has(begin)) rows.push([(gaps.get(begin) + begin) / 2, ...values.map(() => null)], [begin, ...values]);
    rows.push([one.at, ...values]);
  }
  return (rows[0] ?? []).map((_, column) => rows.map((row) => row[column]));
}

// The samples of the last `seconds` before `end`.
export function lastOf(samples, end, seconds) {
  return samples.filter((one) => one.at <= end && one.at > end - seconds);
}

// Two lists of numbered events as one, each event once: those that came meanwhile may be newer than those asked for.
export function merged(events, more) {
  const last = events.length ? events[events.length - 1].number : 0;
  if (more.every((one) => one.number > last)) return [...events, ...more];
  const known = new Set(events.map((one) => one.number));
  return [...events, ...more.filter((one) => !known.has(one.number))].sort((a, b) => a.number - b.number);
}

// When a resize was planned, fenced and published, and when its last partition was removed, by the events of its topic.
// An earlier topic of the same name may have had this generation, too.
export function stepTimes(events, generation) {
  const time = (kind, since = -Infinity) => events.findLast((one) => one.kind === kind && one.at >= since && (one.generation ?? generation) === generation)?.at;
  const planned = time("resize planned");
  const [fenced, published] = ["resize fenced", "resize published"].map((kind) => time(kind, planned));
  return [planned, fenced, published, published === undefined ? undefined : time("partition removed", published)];
}

const FOLD_S = 60;
const SAME = {
  "slow request": (one) => `${one.api} ${one.node}`,
  fault: (one) => `${one.rule} ${one.api} ${one.node}`,
};

// Lists of events, newest first, in which repeated ones share a list: slow requests of an API, hits of a rule. Each is at
// most a minute older than the one before it in its list.
export function fold(events) {
  const rows = [];
  const open = new Map();
  for (const event of events) {
    const key = SAME[event.kind] && `${event.kind} ${SAME[event.kind](event)}`;
    const row = key && open.get(key);
    if (row && row[row.length - 1].at - event.at <= FOLD_S) row.push(event);
    else {
      const made = [event];
      rows.push(made);
      if (key) open.set(key, made);
    }
  }
  return rows;
}
