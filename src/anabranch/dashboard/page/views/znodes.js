// What ZooKeeper holds: read only, asked for as it is opened.
import { html, useEffect, useState } from "../lib.js";
import { number, Panel, Pill } from "../ui.js";

const ask = async (path) => {
  const answer = await fetch(`/v1/zookeeper?path=${encodeURIComponent(path)}`);
  return answer.ok ? answer.json() : null;
};
const below = (path, name) => `${path === "/" ? "" : path}/${name}`;

export function Znodes() {
  const [chosen, setChosen] = useState("/");
  const [node, setNode] = useState(null);
  useEffect(() => { ask(chosen).then(setNode); }, [chosen]);
  return html`<div class="title"><h1>ZooKeeper</h1><span class="lead">what the cluster has written down; read only</span></div>
    <div class="grid two"><${Panel} title="Znodes"><div class="tree" role="tree" aria-label="Znodes"><${Branch} path="/" name="/" depth=${0} chosen=${chosen} choose=${setChosen} /></div><//>
    <${Panel} title=${chosen} side=${html`<button class="small" onClick=${() => ask(chosen).then(setNode)}>read again</button>`}>
      ${!node ? html`<p class="muted">This znode is gone.</p>` : html`<div class="grid">
        <div class="legend"><span>version ${number(node.version)}</span><span>created by zxid ${number(node.czxid)}</span><span>changed by zxid ${number(node.mzxid)}</span><span>${number(node.bytes)} bytes</span>${node.owner && html`<${Pill} kind="accent" title="it goes when the session ends">ephemeral of session ${node.owner}<//>`}</div>
        <pre class="data" tabindex="0" aria-label="Data">${pretty(node.data) || html`<span class="muted">no data</span>`}</pre></div>`}
    <//></div>`;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Branch({ path, name, depth, chosen, choose, leaf }) {
  const [open, setOpen] = useState(depth < 1);
  const [node, setNode] = useState(null);
  useEffect(() => { if (open) ask(path).then(setNode); }, [open, path, chosen]);
  const act = () => { choose(path); if (!leaf) setOpen(path === chosen ? !open : true); };
  return html`<div role="none"><button role="treeitem" aria-expanded=${leaf ? undefined : open} aria-selected=${chosen === path} aria-level=${depth + 1} onClick=${act}>${leaf ? "" : open ? "▾ " : "▸ "}${name}</button>
    ${open && node?.children.length > 0 && html`<ul role="group">${node.children.slice(0, 500).map((one) => html`<li key=${one.name} role="none"><${Branch} path=${below(path, one.name)} name=${one.name} depth=${depth + 1} chosen=${chosen} choose=${choose} leaf=${!one.children} /></li>`)}</ul>`}</div>`;
}
