// Nodes as a ring around ZooKeeper: who lives, who leads how much, who is cut off from whom; and what can be done to them.
import { act, python } from "../act.js";
import { familyOf, toldAll } from "../kinds.js";
import { html, useRef, useState } from "../lib.js";
import { fold } from "../series.js";
import { store } from "../store.js";
import { Act, Dialog, Empty, Node, nodeColor, number, Panel, Pill, plural, rate, Stat, timeOfDay, useTick } from "../ui.js";
import { Clock, States } from "./deeds.js";

const SIZE = { w: 560, h: 440, x: 280, y: 232, r: 158, node: 50 };

export function counts() {
  const leads = new Map();
  let offline = 0, under = 0, partitions = 0;
  for (const one of store.of("partition").values()) {
    partitions++;
    if (one.leader < 0 || one.hw < 0) offline++;
    else leads.set(one.leader, (leads.get(one.leader) || 0) + 1);
    if (one.isr.length < one.replicas.length) under++;
  }
  return { leads, offline, under, partitions };
}

export function Cluster() {
  const nodes = [...store.of("node").values()].sort((a, b) => a.node - b.node);
  const [cut, setCut] = useState(null);
  const [asked, setAsked] = useState(null);
  if (!nodes.length) return html`<${Empty} title="No nodes">This cluster has no nodes that anybody knows of.<//>`;
  const { leads, offline, under, partitions } = counts();
  const traffic = store.sample();
  const controller = nodes.find((one) => one.controller);
  const requests = traffic ? Object.values(traffic.nodes).reduce((sum, one) => sum + one, 0) / traffic.span : 0;
  return html`<div class="title"><h1>Cluster</h1>
      <span class="lead">${plural(nodes.filter((one) => one.state === "alive").length, "node")} of ${nodes.length} alive</span>
      <div class="acts"><${Act} needs="link" onClick=${() => setAsked("cut")}>Cut a link…<//><${Act} needs="POST /v1/clock" onClick=${() => setAsked("clock")}>Clock…<//><${Act} needs="POST /v1/state/snapshots/{name}" onClick=${() => setAsked("states")}>Snapshots…<//></div></div>
    <div class="grid">
      <${Panel} label="At a glance"><dl class="stats">
        <${Stat} name="controller" value=${controller ? html`node ${controller.node} <small>epoch ${controller.controller_epoch}</small>` : "none"} kind=${controller ? "" : "bad"} />
        <${Stat} name="topics" value=${number(store.of("topic").size)} />
        <${Stat} name="partitions" value=${number(partitions)} />
        <${Stat} name="without leader" value=${number(offline)} kind=${offline ? "bad" : ""} />
        <${Stat} name="under-replicated" value=${number(under)} kind=${under ? "warn" : ""} />
        <${Stat} name="groups" value=${number(store.of("group").size)} />
        <${Stat} name="closed gates" value=${number(store.of("gate").size)} />
        <${Stat} name="requests a second" value=${traffic || store.at === null ? rate(requests) : "–"} />
      </dl><//>
      <div class="grid two">
        <${Panel} title="Nodes" cls="ring" side=${html`drag from one node to another to cut their link`}>
          <${Ring} nodes=${nodes} leads=${leads} total=${partitions} onCut=${(from, to) => setCut([from, to])} />
        <//>
        <div class="cards">${nodes.map((one) => html`<${Card} key=${one.node} one=${one} leads=${leads.get(one.node) || 0} />`)}</div>
      </div>
      <${Resizes} />
      <${Latest} />
    </div>
    ${(cut || asked === "cut") && html`<${Cut} pair=${cut} nodes=${nodes} onClose=${() => { setCut(null); setAsked(null); }} />`}
    ${asked === "clock" && html`<${Clock} onClose=${() => setAsked(null)} />`}
    ${asked === "states" && html`<${States} onClose=${() => setAsked(null)} />`}`;
}

export function cuts() {
  // Directed links that a rule is about: "1:2" -> the rule's row.
  const found = new Map();
  for (const row of store.of("rule").values()) for (const one of row.rule.link || []) if (!row.spent) found.set(one, row);
  return found;
}

function Ring({ nodes, leads, total, onCut }) {
  const svg = useRef();
  const [drag, setDrag] = useState(null);
  const place = (index) => {
    const angle = -Math.PI / 2 + (index / nodes.length) * 2 * Math.PI;
    const reach = nodes.length === 1 ? 110 : SIZE.r;
    const drop = nodes.length === 3 ? 34 : 0; // a triangle reaches further up than down
    return [SIZE.x + reach * Math.cos(angle) * 1.24, SIZE.y + reach * Math.sin(angle) + drop];
  };
  const places = nodes.map((_, index) => place(index));
  const keeper = nodes.length === 3 ? SIZE.y + 34 : SIZE.y;
  const size = nodes.length > 9 ? 30 : nodes.length > 6 ? 36 : SIZE.node;
  const point = (event) => {
    const box = svg.current.getBoundingClientRect();
    const scale = Math.min(box.width / SIZE.w, box.height / SIZE.h);
    return [(event.clientX - box.left - (box.width - SIZE.w * scale) / 2) / scale, (event.clientY - box.top - (box.height - SIZE.h * scale) / 2) / scale];
  };
  const under = ([x, y]) => places.findIndex(([a, b]) => Math.hypot(a - x, b - y) < size + 4);
  const down = (event) => {
    const from = under(point(event));
    if (from >= 0) { svg.current.setPointerCapture(event.pointerId); setDrag({ from, at: point(event), to: -1 }); }
  };
  const move = (event) => drag && setDrag({ ...drag, at: point(event), to: under(point(event)) });
  const up = () => {
    if (drag && drag.to >= 0 && drag.to !== drag.from) onCut(nodes[drag.from].node, nodes[drag.to].node);
    setDrag(null);
  };
  const cut = cuts();
  const isCut = (a, b) => [`${a}:${b}`, `*:${b}`, `${a}:*`].some((one) => cut.has(one));
  const links = [];
  for (let a = 0; a < nodes.length; a++)
    for (let b = a + 1; b < nodes.length; b++)
      if (nodes[a].state !== "dead" && nodes[b].state !== "dead") links.push(html`<line key=${`${a}-${b}`} class=${`link ${isCut(nodes[a].node, nodes[b].node) || isCut(nodes[b].node, nodes[a].node) ? "cut" : ""}`} x1=${places[a][0]} y1=${places[a][1]} x2=${places[b][0]} y2=${places[b][1]} />`);
  return html`<svg class="map" ref=${svg} viewBox=${`0 0 ${SIZE.w} ${SIZE.h}`} role="img" aria-label=${nodes.map((one) => `node ${one.node} ${one.state}${one.controller ? ", controller" : ""}`).join("; ")}
    onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${() => setDrag(null)}>
    <g>${links}</g>
    <g>${nodes.map((one, at) => one.session && html`<line key=${one.node} class=${`zk ${one.link}`} x1=${SIZE.x} y1=${keeper} x2=${places[at][0]} y2=${places[at][1]}><title>${`session ${one.session}: ${one.link}`}</title></line>`)}</g>
    <g><rect class="keeper" x=${SIZE.x - 48} y=${keeper - 17} width="96" height="34" rx="10" /><text x=${SIZE.x} y=${keeper + 4.5}>ZooKeeper</text></g>
    ${drag && html`<line class="drag" x1=${places[drag.from][0]} y1=${places[drag.from][1]} x2=${drag.at[0]} y2=${drag.at[1]} />`}
    ${nodes.map((one, at) => {
      const [x, y] = places[at];
      const led = leads.get(one.node) || 0;
      const round = 2 * Math.PI * (size - 4);
      return html`<g key=${one.node} class=${`broker ${one.state} ${drag?.to === at && drag.from !== at ? "target" : ""}`}>
        <circle class="body" cx=${x} cy=${y} r=${size} />
        ${led > 0 && html`<circle class="share" cx=${x} cy=${y} r=${size - 4} stroke=${nodeColor(one.node)} stroke-dasharray=${`${(led / total) * round} ${round}`} transform=${`rotate(-90 ${x} ${y})`} />`}
        <text class="big" x=${x} y=${y + (size > 36 ? 2 : 7)}>${one.node}</text>
        ${size > 36 && html`<text class="soft" x=${x} y=${y + 18}>${one.state === "alive" ? `leads ${led.toLocaleString("en")}` : one.state}</text>`}
        ${one.controller && html`<g transform=${`translate(${x} ${y - size - 9})`}><path class="crown" d="M-13 4l-3-14 8 6 8-10 8 10 8-6-3 14z" transform="translate(0 2)"><title>controller</title></path></g>`}
      </g>`;
    })}
  </svg>`;
}

const DEEDS = {
  alive: [["kill", "Kill", "danger"], ["freeze", "Freeze"], ["stop", "Stop"], ["session/expire", "Expire session"]],
  frozen: [["thaw", "Thaw"], ["kill", "Kill", "danger"]],
  dead: [["start", "Start", "primary"]],
};
const NAMED = { "session/expire": "expire_session", "session/suspend": "suspend_session", "session/resume": "resume_session" };
const SAID = { kill: "Kill", freeze: "Freeze", stop: "Stop", start: "Start", thaw: "Thaw", "session/expire": "Expire the session of", "session/suspend": "Cut from ZooKeeper", "session/resume": "Let reach ZooKeeper" };

export function doToNode(id, what) {
  return act({ title: `${SAID[what]} node ${id}`, path: `/v1/nodes/${id}/${what}`, python: python.node(id, NAMED[what] || what) });
}

function Card({ one, leads }) {
  const deeds = [...DEEDS[one.state]];
  if (one.state === "alive") deeds.push(one.link === "suspended" ? ["session/resume", "Let reach ZooKeeper"] : ["session/suspend", "Cut from ZooKeeper"]);
  const traffic = store.sample();
  const state = one.state === "alive" ? (one.link === "connected" ? ["good", "alive"] : ["warn", `session ${one.link}`]) : one.state === "frozen" ? ["accent", "frozen"] : ["bad", "dead"];
  return html`<article class=${`card ${one.state}`} aria-label=${`node ${one.node}`}>
    <header><${Node} id=${one.node} /><strong>${one.host}:${one.port}</strong>
      ${one.controller && html`<${Pill} kind="warn" title=${`controller epoch ${one.controller_epoch}`}>controller<//>`}<${Pill} kind=${state[0]}>${state[1]}<//></header>
    ${one.state === "dead"
      ? html`<p class="muted">This node is down. Its logs are kept: when it starts, it uses the same port and catches up.</p>`
      : html`<p class="facts"><span>${one.roles.join(", ")}</span>${one.rack && html`<span>rack ${one.rack}</span>`}<span>leads ${plural(leads, "partition")}</span><span>registration epoch ${number(one.broker_epoch)}</span>
        <span>session <span class="mono">${one.session}</span></span><span>${plural(one.connections, "connection")}</span><span>${traffic ? rate((traffic.nodes[one.node] || 0) / traffic.span) : "–"} requests a second</span></p>`}
    <div class="acts">${deeds.map(([what, label, kind]) => html`<${Act} key=${what} needs=${`POST /v1/nodes/{node}/${what}`} refused=${what.startsWith("session/") ? "" : one.refused} class=${`small ${kind || ""}`} aria-label=${`${label}, node ${one.node}`} onClick=${() => doToNode(one.node, what)}>${label}<//>`)}</div>
  </article>`;
}

function Resizes() {
  const rows = [...store.of("resize").entries()];
  if (!rows.length) return null;
  return html`<${Panel} title="At work">${rows.map(([topic, row]) => html`<p key=${topic}><a href=${`#/lineage/${topic}`}>${topic}</a> <${Pill} kind="accent">${row.step}<//> ${row.before ? `${row.before} → ${row.after} partitions, generation ${row.generation}` : `draining ${row.draining.join(", ")}`}</p>`)}<//>`;
}

function Latest() {
  useTick(1000);
  const rows = fold(store.past().slice(-200).reverse()).slice(0, 8);
  return html`<${Panel} title="Last events" side=${html`<a href="#/events">all</a>`}>
    ${rows.length ? html`<ul class="latest">${rows.map((events) => html`<li key=${events[events.length - 1].number}><${Line} events=${events} /></li>`)}</ul>` : html`<p class="muted">Nothing has happened yet.</p>`}<//>`;
}

function Line({ events }) {
  const [one] = events;
  return html`<span class="line"><small class="mono">${timeOfDay(one.at)}</small><i class="swatch" style=${`--of:${familyOf(one.kind).color}`}></i><span><b>${one.kind}</b> <span class="muted">${toldAll(events)}</span></span></span>`;
}

const WAYS = [
  ["disconnect", "break every connection", { disconnect: "before" }],
  ["silence", "swallow what is sent", { half_open: true }],
  ["slow", "slow: 200 ms each way", { delay_ms: [200] }],
];

function Cut({ pair, nodes, onClose }) {
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const [from, to] = [form.get("from"), form.get("to")];
    if (from === to) return;
    const rule = { link: form.get("both") ? [`${from}:${to}`, `${to}:${from}`] : [`${from}:${to}`], ...WAYS.find(([name]) => name === form.get("way"))[2] };
    onClose();
    await act({ title: `Cut ${from} from ${to}`, path: "/v1/faults", body: rule, python: python.rule(rule) });
  };
  const choose = (name, label, chosen) => html`<label>${label}<select name=${name}>${nodes.map((one) => html`<option key=${one.node} value=${one.node} selected=${one.node === chosen}>node ${one.node}</option>`)}</select></label>`;
  return html`<${Dialog} title="Cut a link" onClose=${onClose}><form class="grid" onSubmit=${submit}>
    <p class="muted">What one node sends to another is lost or late, until the rule is removed. Both go on: they only do not hear each other.</p>
    <div class="fields">${choose("from", "from", pair?.[0] ?? nodes[0].node)}${choose("to", "to", pair?.[1] ?? nodes[nodes.length - 1].node)}
      <label>how<select name="way">${WAYS.map(([name, label]) => html`<option key=${name} value=${name}>${label}</option>`)}</select></label>
      <label class="check"><input type="checkbox" name="both" defaultChecked /> both ways</label></div>
    <div class="buttons"><button type="button" onClick=${onClose}>Cancel</button><button class="primary">Cut</button></div>
  </form><//>`;
}
