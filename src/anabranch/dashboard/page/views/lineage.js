// The lineage of one topic: the river, the steps of its last resize, what a next one would do.
import { act, python } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { stepTimes } from "../series.js";
import { store } from "../store.js";
import { Empty, number, Panel, Pill, plural, span, timeOfDay } from "../ui.js";
import { River } from "./river.js";

export function Lineage({ rest }) {
  const names = [...store.of("topic").values()].filter((one) => !one.topic.startsWith("__")).sort((a, b) => b.history.length - a.history.length || a.topic.localeCompare(b.topic)).map((one) => one.topic);
  const name = rest && store.row(`topic/${rest}`) ? rest : names[0];
  const [plan, setPlan] = useState(null);
  useEffect(() => setPlan(null), [name, store.row(`topic/${name}`)?.generation]);
  if (!name) return html`<div class="title"><h1>Lineage</h1></div><${Empty} title="No topics yet">A topic appears here with its splits and merges as soon as there is one.<//>`;
  const topic = store.row(`topic/${name}`);
  const choose = (event) => (location.hash = `#/lineage/${event.target.value}`);
  return html`<div class="title"><h1>Lineage</h1>
      <label style="min-width:180px"><span class="muted" style="position:absolute;clip-path:inset(50%)">Topic</span><select aria-label="Topic" onChange=${choose}>${names.map((one) => html`<option key=${one} value=${one} selected=${one === name}>${one}</option>`)}</select></label>
      <span class="lead">${plural(topic.history.length - 1, "resize")}, ${plural(topic.partitions, "partition")}</span></div>
    <div class="grid">
      <${Panel} title=${name} side="as wide as all keys; each band is a partition, as wide as its share">
        ${topic.river ? html`<${River} topic=${topic} plan=${plan} />` : html`<p class="muted">${topic.base > 0 ? "A topic of more than 128 partitions is too wide to draw." : "This topic has enable.ordered.delivery=false: it grows as in Kafka, and its keys do not keep their order."}</p>`}<//>
      <div class="grid two"><${Steps} topic=${topic} /><${Plan} topic=${topic} plan=${plan} setPlan=${setPlan} /></div>
      <${Draining} topic=${topic} />
    </div>`;
}

const STEPS = [
  ["planned", "written down"], ["prepared", "made or sealed"], ["fenced", "no old leader"],
  ["published", "clients hash anew"], ["drained", "all is read"], ["removed", "index is free"],
];

function Steps({ topic }) {
  const events = store.past().filter((one) => one.topic === topic.topic && (one.kind.startsWith("resize ") || one.kind === "partition removed"));
  const row = store.row(`resize/${topic.topic}`);
  const generation = row?.generation ?? topic.generation;
  if (!(generation > 0)) return html`<${Panel} title="Steps of a resize"><p class="muted">None so far. A resize is planned, prepared, fenced, published; after a merge what is left is drained and removed.</p><//>`;
  const at = topic.history.findIndex(([one]) => one === generation);
  const shrinks = row?.before ? row.after < row.before : at > 0 && topic.history[at][1] < topic.history[at - 1][1];
  const [planned, fenced, published, removed] = stepTimes(events, generation);
  const reached = row?.step === "planned" ? 0 : row?.step === "prepared" ? 1 : row?.step === "fenced" ? 2 : row?.step === "draining" ? 3 : shrinks ? 5 : 3;
  const times = [planned, null, fenced, published, null, removed];
  const said = (when, place) => (when === null || when === undefined ? STEPS[place][1] : place && planned !== undefined ? `+${span(when - planned)}` : timeOfDay(when));
  return html`<${Panel} title=${`Steps of generation ${generation}`} side=${row ? html`<${Pill} kind="accent">${row.step}<//>` : html`<${Pill} kind="good">done<//>`}>
    <ol class="steps">${STEPS.map(([name], place) => {
      const idle = !shrinks && place > 3;
      const past = !idle && (place <= reached || (place < reached));
      return html`<li key=${name} class=${row && place === reached + (row.step === "draining" ? 1 : 0) ? "now" : past ? "past" : ""} style=${idle ? "opacity:.75" : ""}>${name}<small>${idle ? "only after a merge" : said(times[place], place)}</small></li>`;
    })}</ol><//>`;
}

function Plan({ topic, plan, setPlan }) {
  const current = topic.history.length ? topic.history[topic.history.length - 1][1] : topic.partitions;
  const [count, setCount] = useState(current);
  const [error, setError] = useState("");
  useEffect(() => setCount(current), [topic.topic, current]);
  const look = async (value) => {
    setCount(value);
    if (!value || value === current) { setPlan(null); setError(""); return; }
    const answer = await fetch(`/v1/topics/${topic.topic}/plan?partitions=${value}`);
    const told = await answer.json();
    setError(answer.ok ? "" : told.error);
    setPlan(answer.ok && told.after <= 128 ? told : null);
  };
  const apply = () => act({ title: `Resize ${topic.topic} to ${count}`, path: `/v1/topics/${topic.topic}/partitions`, body: { partitions: count }, python: python.resize(topic.topic, count) });
  const waits = plan ? Object.entries(plan.waits) : [];
  return html`<${Panel} title="Plan a resize"><div class="grid">
    <div style="display:flex;gap:10px;align-items:end;flex-wrap:wrap"><label style="width:120px">partitions<input type="number" min="1" max="10000" value=${count} onInput=${(event) => look(Number(event.target.value))} /></label>
      <button class="primary" disabled=${!count || count === current || store.at !== null} onClick=${apply}>Resize to ${number(count)}</button><span class="muted">now ${number(current)}</span></div>
    ${error && html`<p class="error">${error}</p>`}
    ${plan ? html`<div class="moves"><div>${(plan.moved_share * 100).toFixed(1)} % of all keys move<div class="bar" style="margin-top:4px"><i style=${`width:${plan.moved_share * 100}%`}></i></div></div>
      <dl class="facts"><dt>fenced for a moment</dt><dd>${plan.fenced.length ? plan.fenced.join(", ") : "none"}</dd><dt>fullest over mean</dt><dd>${plan.imbalance_before.toFixed(2)} now, ${plan.imbalance_after.toFixed(2)} then</dd></dl>
      ${waits.length > 0 && html`<p class="muted">Groups wait: ${waits.slice(0, 6).map(([one, sources]) => `${one} until ${sources.join(", ")} ${sources.length > 1 ? "are" : "is"} read to the cut`).join("; ")}${waits.length > 6 ? `; and ${waits.length - 6} more` : ""}.</p>`}</div>`
    : html`<p class="muted">Choose another count, up or down: the river shows what would come of it before anything is changed.</p>`}
  </div><//>`;
}

function Draining({ topic }) {
  const rows = [];
  for (const at of store.indicesOf(topic.topic)) { const row = store.row(`partition/${topic.topic}/${at}`); if (row?.drains) rows.push([at, row]); }
  if (!rows.length) return null;
  const groups = [...store.of("commits").entries()].filter(([, commits]) => commits[topic.topic]);
  return html`<${Panel} title="Draining" side="merged away: they take no more records, and are removed when nothing is left in them"><div class="scroll"><table><thead><tr><th>partition</th><th class="num">records left</th><th>groups that have not read them all</th></tr></thead><tbody>
    ${rows.map(([at, row]) => { const start = Math.max(...row.replicas.map(([, one]) => one)); const late = groups.filter(([, commits]) => (commits[topic.topic][at] ?? 0) < row.hw && row.hw > start);
      return html`<tr key=${at}><td>${topic.topic}-${at}</td><td class="num">${number(row.hw - start)}</td><td>${late.length ? late.map(([name, commits]) => html`<${Pill} key=${name} kind="warn">${name}: ${number(row.hw - (commits[topic.topic][at] ?? start))} to go<//>`) : html`<span class="muted">none</span>`}</td></tr>`; })}
  </tbody></table></div><//>`;
}
