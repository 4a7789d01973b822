// Topics as lanes: of each partition the leader, and the log of every replica as far as it has it.
import { html, useState } from "../lib.js";
import { store } from "../store.js";
import { Empty, Long, Near, Node, nodeColor, number, Panel, Pill, plural } from "../ui.js";
import { totalsOf } from "../totals.js";
import { Records } from "./records.js";
import { NewTopic, Properties } from "./topic_forms.js";

const HEIGHT = 42;
const LANES = 200; // with more partitions, topics are lines with totals

export function Topics({ rest }) {
  const [filter, setFilter] = useState("");
  const [internal, setInternal] = useState(false);
  const [only, setOnly] = useState(false);
  const [asked, setAsked] = useState(null);
  const [collapsed, setCollapsed] = useState(null);
  const all = [...store.of("topic").keys()].sort();
  const names = all.filter((one) => (rest ? one === rest : (internal || !one.startsWith("__")) && one.includes(filter)));
  const count = names.reduce((sum, name) => sum + store.row(`topic/${name}`).partitions, 0);
  const small = !rest && (collapsed ?? count > LANES);
  const totals = small && new Map(names.map((name) => [name, totalsOf(partitionsOf(name))]));
  const shown = small && only ? names.filter((name) => totals.get(name).troubled) : names;
  const create = html`<button class="primary" onClick=${() => setAsked("new")}>New topic…</button>`;
  return html`<div class="title"><h1>Topics</h1><span class="lead">${plural(names.length, "topic")}, ${plural(count, "partition")}</span>
      <div class="acts filters"><input type="search" placeholder="find by name" aria-label="Find topics by name" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
        ${!rest && html`<button aria-pressed=${small} title="one line for each topic" onClick=${() => setCollapsed(!small)}>totals only</button>`}
        <button aria-pressed=${only} onClick=${() => setOnly(!only)}>troubled only</button>
        <button aria-pressed=${internal} onClick=${() => setInternal(!internal)}>internal</button>${create}</div></div>
    ${rest && html`<p style="margin-bottom:12px"><a href="#/topics">← all topics</a></p>`}
    ${!names.length ? html`<${Empty} title=${all.length ? "No topic is like this" : "No topics yet"}>${all.length ? "Change what you look for." : "Create one here, or let a client do it: it appears as soon as a broker knows it."}<//>` : html`
    ${small ? html`<${Totals} names=${shown} totals=${totals} />` : html`
    <div class="legend" style="margin-bottom:12px"><span><i class="sw"></i>the leader's log</span><span><i class="sw" style="opacity:.5"></i>a follower in sync</span><span><i class="sw" style="background:repeating-linear-gradient(135deg,var(--accent) 0 3px,transparent 3px 6px)"></i>not in sync</span><span><i class="sw" style="width:2px;height:12px;background:var(--text)"></i>high watermark</span><span>colours are nodes</span></div>
    <div class="grid">${names.map((name) => html`<${Near} key=${name} height=${90 + HEIGHT * (store.row(`topic/${name}`)?.partitions ?? 1)} render=${() => html`<${Topic} name=${name} only=${only} onRecords=${(partition) => setAsked({ topic: name, partition })} onProperties=${() => setAsked({ properties: name })} />`} />`)}</div>`}`}
    ${asked === "new" && html`<${NewTopic} onClose=${() => setAsked(null)} />`}
    ${asked?.properties && html`<${Properties} topic=${asked.properties} onClose=${() => setAsked(null)} />`}
    ${asked?.topic && html`<${Records} ...${asked} onClose=${() => setAsked(null)} />`}`;
}

function* partitionsOf(name) {
  const partitions = store.of("partition");
  for (const index of store.indicesOf(name)) {
    const row = partitions.get(`${name}/${index}`);
    if (row) yield row;
  }
}

function Totals({ names, totals }) {
  if (!names.length) return html`<p class="muted">All partitions have a leader and all their replicas in sync.</p>`;
  const sum = (of) => [...totals.values()].reduce((all, one) => all + of(one), 0);
  const line = (name, one) => html`<span class="place">${name}</span><span class="num">${number(one.partitions)}</span><span class="num">${number(one.records)}</span>
    <span class=${`num ${one.offline ? "error" : "muted"}`}>${number(one.offline)}</span><span class=${`num ${one.under ? "error" : "muted"}`}>${number(one.under)}</span>`;
  return html`<${Panel} label="Totals"><div class="total-head" aria-hidden="true"><span>topic</span><span class="num">partitions</span><span class="num">offsets held</span><span class="num">no leader</span><span class="num">under-replicated</span></div>
    <${Long} count=${names.length} height=${36} label="Topics" render=${(at) => html`<a class="total" href=${`#/topics/${names[at]}`}>${line(names[at], totals.get(names[at]))}</a>`} />
    <div class="total sum">${line("all", { partitions: sum((one) => one.partitions), records: sum((one) => one.records), offline: sum((one) => one.offline), under: sum((one) => one.under) })}</div><//>`;
}

function Topic({ name, only, onRecords, onProperties }) {
  const topic = store.row(`topic/${name}`);
  const partitions = store.of("partition");
  let end = 1;
  let shown = [];
  for (const index of store.indicesOf(name)) {
    const row = partitions.get(`${name}/${index}`);
    if (!row) continue;
    for (const [, , one] of row.replicas) if (one > end) end = one;
    if (!only || row.leader < 0 || row.isr.length < row.replicas.length) shown.push(index);
  }
  const resize = store.row(`resize/${name}`);
  return html`<${Panel} title=${html`<a href=${`#/topics/${name}`} style="color:inherit;text-decoration:none">${name}</a>`} label=${name} side=${html`
      ${resize && html`<${Pill} kind="accent">resize: ${resize.step}<//>`}
      ${topic.generation > 0 && html`<a href=${`#/lineage/${name}`}>generation ${topic.generation}</a>`}
      ${topic.has_generations && html`<${Pill} kind="good" title="a producer that knows generations has written to it: stock producers are refused after a resize">ordered<//>`}
      <span>${plural(topic.partitions, "partition")}</span><button class="small" aria-label=${`Records of ${name}`} onClick=${() => onRecords(undefined)}>Records…</button><button class="small" aria-label=${`Properties of ${name}`} onClick=${onProperties}>Properties…</button>`}>
    ${shown.length ? html`<div class="lane-head" aria-hidden="true"><span>partition</span><span>leader</span><span class="num">epoch</span><span>replicas' logs</span><span class="num">watermark</span><span class="num">behind</span><span></span></div>
    <${Long} count=${shown.length} height=${HEIGHT} label=${`Partitions of ${name}`} render=${(at) => html`<${Lane} topic=${name} index=${shown[at]} end=${end} onRecords=${onRecords} />`} />`
    : html`<p class="muted">All partitions have a leader and all their replicas in sync.</p>`}
  <//>`;
}

function Lane({ topic, index, end, onRecords }) {
  const row = store.row(`partition/${topic}/${index}`);
  if (!row) return null;
  const ends = row.replicas.map(([, , one]) => one).filter((one) => one >= 0);
  const lead = row.replicas.find(([node]) => node === row.leader)?.[2] ?? -1;
  const behind = lead >= 0 && ends.length ? lead - Math.min(...ends) : -1;
  return html`<div class="lane">
    <span class="place" title=${`${topic}-${index}`}>${index}${row.drains ? html` <${Pill} kind="warn" title="merged away; what is left is still read">drains<//>` : ""}</span>
    <span><${Node} id=${row.leader} title=${row.leader < 0 ? "no leader" : `led by node ${row.leader}`} /></span>
    <span class="num muted">${row.epoch}</span>
    <span class="tracks" title=${row.replicas.map(([node, start, one]) => `node ${node}: ${one < 0 ? "not there" : `${start}–${one}`}${row.isr.includes(node) ? "" : ", not in sync"}`).join("\n")}>
      ${row.replicas.map(([node, , one]) => one < 0 ? html`<span key=${node} class="track gone"></span>` : html`<span key=${node} class=${`track ${node === row.leader ? "leader" : row.isr.includes(node) ? "" : "out"}`} style=${`--of:${nodeColor(node)}`}><i style=${`width:${(one / end) * 100}%`}></i></span>`)}
      ${row.hw >= 0 && html`<b class="hw" style=${`left:${(row.hw / end) * 100}%`}></b>`}
    </span>
    <span class="num">${number(row.hw)}</span>
    <span class=${`num ${row.isr.length < row.replicas.length ? "error" : "muted"}`}>${row.isr.length < row.replicas.length ? `ISR ${row.isr.length}/${row.replicas.length}` : behind > 0 ? number(behind) : "0"}</span>
    <button class="quiet small" aria-label=${`Records of ${topic}-${index}`} title="read and write records" onClick=${() => onRecords(index)}>⋯</button>
  </div>`;
}
