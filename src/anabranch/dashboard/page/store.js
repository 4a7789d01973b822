// What the page knows of the cluster: rows by key, kept up to date by /v1/watch; or, scrubbed back, as they were.
//
// Views read `store.of(kind)` and `store.row(key)`, and are drawn anew once a frame when something has changed. Whether
// the page is live, scrubbed back or cut off is in `store.mode` and `store.link`.

import { merged } from "./series.js";

const EVENTS_KEPT = 5000;
const TRAFFIC_KEPT = 600;

class Rows {
  constructor(rows) {
    this.kinds = new Map();
    for (const key in rows) this.put(key, rows[key]);
  }

  put(key, row) {
    const [kind, rest] = split(key);
    let found = this.kinds.get(kind);
    if (!found) this.kinds.set(kind, (found = new Map()));
    found.set(rest, row);
  }

  drop(key) {
    const [kind, rest] = split(key);
    this.kinds.get(kind)?.delete(rest);
  }
}

function split(key) {
  const slash = key.indexOf("/");
  return [key.slice(0, slash), key.slice(slash + 1)];
}

const NONE = new Map();

const lists = new Map();

function upTo(count) {
  let found = lists.get(count);
  if (!found) {
    if (lists.size > 500) lists.clear();
    lists.set(count, (found = Array.from({ length: count }, (_, at) => at)));
  }
  return found;
}

export const store = {
  link: "connecting", // connecting, live, lost, locked
  at: null, // the moment that is shown, if it is not now
  now: 0, // the cluster's clock, as last told
  heard: 0, // when that was, by the browser's clock
  pace: 1,
  begin: null, // the first moment that can be gone back to
  run: null, // which start of the control plane counts the events: each counts from 1
  day: null, // what has to be added to the cluster's clock for the time of day
  version: 0,
  events: [],
  traffic: [],
  refused: new Map(), // "POST /v1/clock": why this kind of cluster cannot do it
  live: new Rows({}),
  then: null,

  get rows() {
    return this.then || this.live;
  },
  of(kind) {
    return this.rows.kinds.get(kind) || NONE;
  },
  row(key) {
    const [kind, rest] = split(key);
    return this.rows.kinds.get(kind)?.get(rest);
  },
  // The numbers of a topic's partitions. Those that drain are removed one by one, each when it is empty.
  indicesOf(name) {
    const topic = this.row(`topic/${name}`);
    if (!topic) return [];
    const counts = topic.history.map(([, count]) => count);
    if (!counts.length || topic.partitions <= counts[counts.length - 1]) return upTo(topic.partitions);
    return upTo(Math.max(topic.partitions, ...counts)).filter((at) => this.row(`partition/${name}/${at}`));
  },
  clock() {
    if (this.at !== null) return this.at;
    const gone = this.link === "live" ? ((performance.now() - this.heard) / 1000) * this.pace : 0;
    return this.now + gone;
  },
  sample() {
    // The requests that were counted at the moment that is shown; undefined if no page was open then.
    if (this.at === null) return this.traffic[this.traffic.length - 1];
    return this.traffic.find((one) => one.at >= this.at && one.at - one.span <= this.at);
  },
  past() {
    // The events until the moment that is shown.
    if (this.at === null) return this.events;
    let end = this.events.length;
    while (end && this.events[end - 1].at > this.at) end--;
    return this.events.slice(0, end);
  },
};

const DRAWN_EVERY_MS = 100; // a busy cluster has an event per frame: ten drawings a second are enough
const listeners = new Set();
let drawing = 0;
let drawn = -DRAWN_EVERY_MS;

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function changed() {
  store.version++;
  if (drawing) return;
  drawing = setTimeout(() => requestAnimationFrame(draw), Math.max(0, drawn + DRAWN_EVERY_MS - performance.now()));
}

function draw() {
  drawing = 0;
  drawn = performance.now();
  for (const one of listeners) one();
}

function hear(at) {
  store.now = at;
  store.heard = performance.now();
  store.pace = store.live.kinds.get("clock")?.get("")?.pace ?? 1;
}

function addEvents(events) {
  if (events.length) store.events = merged(store.events, events).slice(-EVENTS_KEPT);
}

// The events and past states of another run mean nothing in this one.
function enter(run) {
  if (store.run !== null && store.run !== run) {
    store.events = [];
    wanted = store.at = store.then = null;
  }
  store.run = run;
}

// Why this kind of cluster cannot serve a request, or has no rules of a kind; empty if it can.
export const reason = (name) => store.refused.get(name) || "";

async function learnReasons() {
  const answer = await fetch("/v1/capabilities").catch(() => null);
  if (!answer?.ok) return;
  const told = await answer.json();
  store.refused = new Map([...told.requests, ...told.rules].filter((one) => !one.possible).map((one) => [one.name, one.reason]));
  changed();
}

let source = null;
let again = 0;

export function connect() {
  clearTimeout(again);
  source?.close();
  source = new EventSource("/v1/watch");
  source.addEventListener("snapshot", async (message) => {
    const told = JSON.parse(message.data);
    enter(told.run);
    store.live = new Rows(told.rows);
    store.begin = told.begin;
    store.traffic = told.traffic;
    store.day = (told.day_ms ?? Date.now()) / 1000 - told.at;
    hear(told.at);
    store.link = "live";
    changed();
    learnReasons();
    const newest = store.events.length ? store.events[store.events.length - 1].number : 0;
    const answer = await fetch(`/v1/events?after=${newest}`);
    if (answer.ok) {
      addEvents(await answer.json());
      changed();
    }
  });
  source.addEventListener("delta", (message) => {
    const told = JSON.parse(message.data);
    for (const key of told.gone) store.live.drop(key);
    for (const key in told.put) store.live.put(key, told.put[key]);
    addEvents(told.events);
    if (told.day_ms !== null) store.day = told.day_ms / 1000 - told.at;
    hear(told.at);
    changed();
  });
  source.addEventListener("traffic", (message) => {
    const told = JSON.parse(message.data);
    store.traffic.push(told);
    if (store.traffic.length > TRAFFIC_KEPT) store.traffic.shift();
    hear(told.at);
    changed();
  });
  source.onerror = async () => {
    source.close();
    const answer = await fetch("/v1/nodes").catch(() => null);
    store.link = answer && answer.status === 401 ? "locked" : "lost";
    changed();
    if (store.link === "lost") again = setTimeout(connect, 1000);
  };
}

// A page that a browser keeps for "back" would keep its connection, too: of six to a host.
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => event.persisted && connect());

let wanted = null;
let asking = false;

export async function goTo(at) {
  // Show the state of then; null is now. While one answer is on its way only the newest wish is kept.
  if (at === null || at >= store.clock0()) {
    wanted = null;
    store.at = store.then = null;
    changed();
    return;
  }
  store.at = wanted = at;
  if (!store.then) store.then = store.live;
  changed();
  if (asking) return;
  asking = true;
  try {
    while (wanted !== null) {
      const asked = wanted;
      const answer = await fetch(`/v1/history?at=${asked}`);
      if (answer.ok && store.at !== null) store.then = new Rows((await answer.json()).rows);
      changed();
      if (wanted === asked) wanted = null;
    }
  } finally {
    asking = false;
  }
}

store.clock0 = function () {
  return this.now + (this.link === "live" ? ((performance.now() - this.heard) / 1000) * this.pace : 0);
};
