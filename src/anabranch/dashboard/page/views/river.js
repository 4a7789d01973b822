// The lineage of a topic as a river: its width is all keys, each band a partition, as wide as its share of them.
//
// Bands lie in the order of the tree of linear hashing, newer branches nearest to what they split off from: so a split
// divides one band in two, and a merge joins neighbours, and no band ever crosses another.
import { html, useEffect, useRef, useState } from "../lib.js";
import { store } from "../store.js";
import { nodeColor, number, timeOfDay } from "../ui.js";

export function orderOf(parents, count) {
  const children = Array.from({ length: count }, () => []);
  for (let at = count - 1; at > 0; at--) children[parents[at]]?.push(at);
  const order = [];
  const visit = (at) => { order.push(at); children[at].forEach(visit); };
  if (count) visit(0);
  return order;
}

export const ancestor = (parents, at, count) => { while (at >= count) at = parents[at]; return at; };

export function color(at) {
  // Neighbours differ, and all are water: from green over blue to violet.
  const hue = 172 + ((at * 0.61803) % 1) * 68;
  return `hsl(${hue.toFixed(0)} var(--water-s) calc(var(--water-l) + ${((at * 5) % 3) * 4 - 3}%))`;
}

function bands(order, shares, top, height, gap) {
  const free = height - gap * (order.length - 1);
  const found = new Map();
  let y = top;
  for (const at of order) {
    const thick = Math.max(1.5, free * shares[at]);
    found.set(at, [y, y + thick]);
    y += thick + gap;
  }
  return found;
}

const ribbon = (x1, a, x2, b) => {
  const m = (x1 + x2) / 2;
  return `M${x1} ${a[0]}C${m} ${a[0]} ${m} ${b[0]} ${x2} ${b[0]}L${x2} ${b[1]}C${m} ${b[1]} ${m} ${a[1]} ${x1} ${a[1]}Z`;
};
const middle = (x0, x1, a, x2, b, x3, part) => {
  const [p, q, m] = [a[0] + (a[1] - a[0]) * part, b[0] + (b[1] - b[0]) * part, (x1 + x2) / 2];
  return `M${x0} ${p}L${x1} ${p}C${m} ${p} ${m} ${q} ${x2} ${q}L${x3} ${q}`;
};

function atoms(parents, from, to, before, after, counts) {
  // Which part of which band goes into which part of which: [source, target, [y, y], [y, y]].
  const [n, m] = counts;
  const grows = m >= n;
  const finer = grows ? after : before;
  const shares = grows ? to : from;
  const coarse = grows ? before : after;
  const used = new Map();
  const found = [];
  for (const [at, band] of finer) {
    const home = ancestor(parents, at, Math.min(n, m));
    const [y0, y1] = coarse.get(home);
    const whole = (grows ? from : to)[home];
    const begin = used.get(home) || 0;
    const end = begin + shares[at] / whole;
    used.set(home, end);
    const part = [y0 + (y1 - y0) * begin, y0 + (y1 - y0) * Math.min(1, end)];
    found.push(grows ? [home, at, part, band] : [at, home, band, part]);
  }
  return found;
}

export function River({ topic, plan }) {
  const box = useRef();
  const [width, setWidth] = useState(900);
  const [hover, setHover] = useState(null);
  useEffect(() => {
    const size = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    size.observe(box.current);
    return () => size.disconnect();
  }, []);
  const { parents: told, shares: known } = topic.river;
  const stages = topic.history.map(([generation, count], at) => ({ generation, count, shares: known[at], ghost: false }));
  let parents = told;
  if (plan) {
    stages.push({ generation: plan.generation, count: plan.after, shares: plan.shares, ghost: true });
    if (plan.after > parents.length) parents = plan.parents;
  }
  const narrow = width < 560;
  const [left, right, head] = [4, narrow ? 74 : 150, 44];
  const widest = Math.max(...stages.map((one) => one.count));
  const stage = Math.max(narrow ? 92 : 118, (width - left - right) / stages.length);
  const total = left + stage * stages.length + right;
  const height = Math.min(560, Math.max(150, widest * 38));
  const bend = Math.min(150, stage * 0.52);
  const gap = widest > 60 ? 2 : widest > 24 ? 4 : 9;
  for (const one of stages) one.bands = bands(orderOf(parents, one.count), one.shares, head, height, gap);
  const x = (at) => left + at * stage;
  const end = (at) => (at === stages.length - 1 ? x(at) + stage : x(at) + stage - bend);
  const family = hover === null ? null : kin(parents, hover, widest);
  const cls = (at) => `band ${family && family.has(at) ? "kin" : ""}`;
  const shapes = [], flows = [], marks = [], defs = [], heads = [];
  stages.forEach((one, at) => {
    const last = stages[at + 1];
    for (const [index, band] of one.bands) {
      const thick = band[1] - band[0];
      if (one.ghost) {
        shapes.push(html`<rect key=${`g${index}`} class="ghost" x=${x(at)} y=${band[0]} width=${stage} height=${thick} rx="3" />`);
        if (thick > 12) marks.push(html`<text key=${`gl${index}`} class="cut" x=${x(at) + 8} y=${(band[0] + band[1]) / 2 + 4}>${index}</text>`);
        continue;
      }
      shapes.push(html`<rect key=${`b${at}-${index}`} class=${cls(index)} x=${x(at) - 0.4} y=${band[0]} width=${end(at) - x(at) + 0.8} height=${thick} fill=${color(index)} onMouseEnter=${() => setHover(index)} onMouseLeave=${() => setHover(null)}><title>${`${topic.topic}-${index}: ${(one.shares[index] * 100).toFixed(1)} % of all keys in generation ${one.generation}`}</title></rect>`);
      if (thick >= 13) marks.push(html`<text key=${`l${at}-${index}`} class="label" x=${x(at) + 8} y=${(band[0] + band[1]) / 2 + 4}>${index}</text>`);
    }
    heads.push(html`<g key=${`h${at}`}><text class="head strong" x=${x(at) + 2} y="15">${one.ghost ? "planned" : `${narrow ? "gen." : "generation"} ${one.generation}`}</text><text class="head" x=${x(at) + 2} y="32">${`${one.count} partition${one.count === 1 ? "" : "s"}`}${one.ghost || narrow ? "" : when(topic.topic, one.generation)}</text></g>`);
    if (!last) return;
    const ghost = last.ghost;
    for (const [source, target, a, b] of atoms(parents, one.shares, last.shares, one.bands, last.bands, [one.count, last.count])) {
      const shape = ribbon(end(at), a, x(at + 1), b);
      if (ghost) {
        if (source !== target) shapes.push(html`<path key=${`p${source}-${target}`} class="ghost" d=${shape} />`);
        continue;
      }
      let fill = color(source);
      if (source !== target) {
        const id = `w${at}-${source}-${target}`;
        defs.push(html`<linearGradient key=${id} id=${id} x1="0" x2="1"><stop offset="0.05" style=${`stop-color:${color(source)}`} /><stop offset="0.95" style=${`stop-color:${color(target)}`} /></linearGradient>`);
        fill = `url(#${id})`;
      }
      shapes.push(html`<path key=${`r${at}-${source}-${target}`} class=${`band ${family && family.has(source) && family.has(target) ? "kin" : ""}`} d=${shape} fill=${fill} onMouseEnter=${() => setHover(target)} onMouseLeave=${() => setHover(null)}><title>${source === target ? `${topic.topic}-${source}` : `${topic.topic}-${source} into ${topic.topic}-${target}`}</title></path>`);
      const thick = Math.min(a[1] - a[0], b[1] - b[0]);
      const lines = thick > 24 ? [0.18, 0.82] : thick > 5 ? [0.86] : []; // beside the labels
      for (const line of lines) flows.push(html`<path key=${`f${at}-${source}-${target}-${line}`} class="flow" style=${`animation-delay:${-((at * 7 + target * 3 + line * 11) % 9) / 2}s`} d=${middle(x(at), end(at), a, x(at + 1), b, end(at + 1), line)} />`);
    }
  });
  if (stages.length === 1)
    for (const [index, band] of stages[0].bands) if (band[1] - band[0] > 8) flows.push(html`<path key=${`f${index}`} class="flow" style=${`animation-delay:${-(index % 7) / 2}s`} d=${`M${left} ${(band[0] + band[1]) / 2}H${left + stage}`} />`);
  for (const [partition, generation, offset] of topic.cuts) {
    const at = stages.findIndex((one, place) => place > 0 && !one.ghost && one.generation > generation && stages[place - 1].shares[partition] !== one.shares[partition]);
    const band = at > 0 && stages[at - 1].bands.get(partition);
    if (!band) continue;
    const edge = end(at - 1);
    marks.push(html`<line key=${`c${partition}-${generation}`} class="cutline" x1=${edge} x2=${edge} y1=${band[0]} y2=${band[1]}><title>${`${topic.topic}-${partition} was cut at offset ${number(offset)} by generation ${stages[at].generation}`}</title></line>`);
    if (band[1] - band[0] >= 13 && stage - bend > 90) marks.push(html`<text key=${`ct${partition}-${generation}`} class="label" text-anchor="end" opacity=".85" x=${edge - 6} y=${(band[0] + band[1]) / 2 + 4}>${`cut at ${number(offset)}`}</text>`);
  }
  const now = plan ? stages.length - 2 : stages.length - 1;
  const ends = [];
  let floor = -99;
  for (const [index, band] of stages[now].bands) {
    const y = (band[0] + band[1]) / 2;
    const row = store.row(`partition/${topic.topic}/${index}`);
    if (!row || y - floor < 14 || plan) continue;
    floor = y;
    ends.push(html`<g key=${index} class="ends"><circle cx=${x(now) + stage + 11} cy=${y} r="4.5" style=${`fill:${nodeColor(row.leader)}`}><title>${row.leader < 0 ? "no leader" : `led by node ${row.leader}`}</title></circle><text x=${x(now) + stage + 21} y=${y + 4}>${narrow ? "" : html`<tspan>${index}</tspan>`}<tspan class="soft" dx=${narrow ? 0 : 8}>${number(row.hw)}</tspan></text></g>`);
  }
  const text = `${topic.topic}: ${topic.history.map(([generation, count]) => `generation ${generation}: ${count} partitions`).join("; ")}. ${topic.cuts.map(([partition, , offset]) => `partition ${partition} cut at ${offset}`).join("; ")}`;
  return html`<div ref=${box} style="overflow-x:auto" tabindex="0" role="region" aria-label="The river"><svg class=${`river ${family ? "hovering" : ""}`} role="img" aria-label=${text} style=${`width:${total}px`} width=${total} height=${head + height + 8} viewBox=${`0 0 ${total} ${head + height + 8}`}>
    <defs>${defs}<clipPath id="banks"><rect x=${left} y="0" width=${stage * stages.length} height=${head + height + 8} rx="9" /></clipPath></defs>${heads}<g clip-path="url(#banks)">${shapes}</g><g>${flows}</g><g>${marks}</g><g>${ends}</g></svg></div>`;
}

function kin(parents, at, count) {
  const found = new Set();
  for (let up = at; up >= 0; up = parents[up]) found.add(up);
  for (let one = 0; one < count; one++) { let up = one; while (up > at) up = parents[up]; if (up === at) found.add(one); }
  return found;
}

function when(topic, generation) {
  const event = store.events.findLast((one) => one.kind === "resize published" && one.topic === topic && one.generation === generation);
  return event ? `, since ${timeOfDay(event.at)}` : "";
}
