// Consumer groups: who owns what, how far behind it is, and which gates are closed until what is committed.
import { html, useState } from "../lib.js";
import { store } from "../store.js";
import { topicsOf } from "../totals.js";
import { ResetOffsets } from "./reset.js";
import { Empty, Near, Node, number, Panel, Pill, plural } from "../ui.js";

const KINDS = { Stable: "good", Empty: "", Dead: "bad" };
const TILES = 60;

export function lagOf(commits, topic, index) {
  const row = store.row(`partition/${topic}/${index}`);
  if (!row || row.hw < 0) return { lag: 0, end: 0 };
  const start = Math.max(0, ...row.replicas.map(([, one]) => one));
  const at = commits?.[topic]?.[index];
  return { lag: Math.max(0, row.hw - (at ?? start)), end: row.hw - start };
}

export function Groups({ rest }) {
  const [filter, setFilter] = useState(rest || "");
  const [asked, setAsked] = useState(null);
  const rows = [...store.of("group").values()].filter((one) => one.group.includes(filter)).sort((a, b) => a.group.localeCompare(b.group));
  const gates = new Map();
  for (const gate of store.of("gate").values()) gates.set(gate.group, [...(gates.get(gate.group) || []), gate]);
  const closed = store.of("gate").size;
  return html`<div class="title"><h1>Groups</h1><span class="lead">${plural(rows.length, "group")}${closed ? `, ${plural(closed, "closed gate")}` : ""}</span>
      <div class="acts filters"><input type="search" aria-label="Find groups by name" placeholder="find by name" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></div></div>
    ${rows.length ? html`<div class="grid">${rows.map((one) => html`<${Near} key=${one.group} render=${() => html`<${Group} one=${one} gates=${gates.get(one.group) || []} onReset=${() => setAsked(one.group)} />`} />`)}</div>` : html`<${Empty} title=${store.of("group").size ? "No group is like this" : "No groups yet"}>A group appears when its first member joins, or when something is committed in its name.<//>`}
    ${asked && html`<${ResetOffsets} group=${asked} onClose=${() => setAsked(null)} />`}`;
}

function Group({ one, gates, onReset }) {
  const commits = store.row(`commits/${one.group}`) || {};
  let total = 0;
  for (const topic of topicsOf(one, commits)) for (const at of store.indicesOf(topic)) total += lagOf(commits, topic, at).lag;
  const idle = !one.members.length;
  return html`<${Panel} title=${one.group} side=${html`<${Pill} kind=${KINDS[one.state] ?? "warn"}>${one.state}<//><span>generation ${number(one.generation)}</span>${one.protocol && html`<span>${one.protocol}</span>`}<span>coordinator <${Node} id=${one.coordinator} /></span><span>${total ? html`<b style="color:var(--warn)">${number(total)}</b> behind` : "not behind"}</span>${one.protocol === "share" ? null : html`<button class="small" aria-label=${`Reset offsets of ${one.group}`} onClick=${onReset}>Reset offsets…</button>`}`}>
    ${idle && html`<p class="muted">No members. ${Object.keys(commits).length ? `It has committed offsets of ${Object.keys(commits).join(", ")}.` : ""}</p>`}
    ${one.members.map((member) => html`<div class="member" key=${member.id}><div class="who"><b title=${member.id}>${member.instance || member.client}</b><small>${member.id === one.leader ? "leads; " : ""}${plural(Object.values(member.owns).reduce((sum, list) => sum + list.length, 0), "partition")}${tasksOf(member)}</small></div>
      <div class="tiles">${tiles(member, commits, gates)}</div></div>`)}
    ${one.withheld?.length > 0 && html`<div class="gates">${one.withheld.slice(0, 20).map(([topic, index, reason]) => html`<div class="gate" key=${`${topic}-${index}`}><${Bars} /><div><b>${topic}-${index}</b> is withheld from members that hold no gates: ${reason}</div></div>`)}</div>`}
    ${gates.length > 0 && html`<div class="gates">${gates.slice(0, 20).map((gate) => html`<${Gate} key=${`${gate.topic}-${gate.partition}`} gate=${gate} />`)}</div>`}<//>`;
}

// The tasks of an instance of a Streams application: "active 0: 0, 1".
function tasksOf(member) {
  return Object.entries(member.tasks || {}).map(([role, list]) => html`<br key=${role} />${role}: ${list.join(", ")}`);
}

function tiles(member, commits, gates) {
  const found = Object.entries(member.owns).flatMap(([topic, list]) => list.map((index) => [topic, index]));
  const many = found.length > TILES;
  return [...found.slice(0, TILES).map(([topic, index]) => {
    const { lag, end } = lagOf(commits, topic, index);
    const closed = gates.some((gate) => gate.topic === topic && gate.partition === index);
    return html`<span key=${`${topic}-${index}`} class=${`tile ${closed ? "closed" : lag ? "behind" : ""}`} title=${`${topic}-${index}: ${number(lag)} behind${closed ? ", stands at a closed gate" : ""}`}><b>${topic}-${index}</b><span class="lag">${closed ? "gate" : lag ? `−${number(lag)}` : "✓"}</span><div class="bar"><i style=${`width:${end ? ((end - Math.min(lag, end)) / end) * 100 : 100}%;background:${closed ? "var(--violet)" : "var(--accent)"}`}></i></div></span>`;
  }), many ? html`<span class="muted">and ${found.length - TILES} more</span>` : null];
}

function Bars() {
  return html`<svg width="26" height="26" viewBox="0 0 26 26" fill="none" stroke="currentColor" stroke-width="2" aria-hidden="true"><path d="M4 24V5l9-3 9 3v19M4 11h18M4 18h18M10 4v20M16 4v20" /></svg>`;
}

function Gate({ gate }) {
  return html`<div class="gate"><${Bars} /><div><b>${gate.topic}-${gate.partition}</b> stops at offset ${number(gate.offset)}, where generation ${gate.generation} begins.
    ${gate.waits.map(([partition, end, committed]) => html` <span key=${partition}>It opens when <b>${gate.topic}-${partition}</b> is committed up to ${number(end)}: ${number(Math.max(0, end - Math.max(0, committed)))} to go.</span>`)}</div></div>`;
}
