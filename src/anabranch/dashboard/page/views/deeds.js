// Dialogs for what is done to the whole cluster: its clock, its state, its topics, its records.
import { act, python } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { Dialog, number, Pill, timeOfDay } from "../ui.js";

const ask = (path) => fetch(path).then((answer) => answer.json().then((told) => ({ ok: answer.ok, told })));

export function Clock({ onClose }) {
  const [clock, setClock] = useState(null);
  const look = () => ask("/v1/clock").then(setClock);
  useEffect(() => { look(); }, []);
  const change = async (title, body, line) => { await act({ title, path: "/v1/clock", body, python: line }); look(); };
  const advance = (event) => {
    event.preventDefault();
    const by = new FormData(event.target).get("by");
    change(`Advance the clock by ${by}`, { advance: by }, `control.clock.advance(${JSON.stringify(by)})`);
  };
  return html`<${Dialog} title="The cluster's clock" onClose=${onClose}>
    ${clock && !clock.ok && html`<p class="error">${clock.told.error}</p>`}
    ${clock?.ok && html`<p>It is <b>${new Date(clock.told.time_ms).toLocaleTimeString("en-GB")}</b> in the cluster, ${clock.told.pace ? html`at a pace of <b>${clock.told.pace}×</b>` : html`<b>stopped</b>`}.</p>`}
    <fieldset><legend>Advance</legend><form class="ask" onSubmit=${advance}><label>by, such as 500ms, 45s, 2h<input name="by" defaultValue="45s" pattern="[0-9.]+ ?(ms|s|m|h|d)" required /></label><button class="primary">Advance</button></form>
      <small class="help">Timers of sessions, rebalances, transactions and retention that end in this time fire, in their order.</small></fieldset>
    <fieldset><legend>Pace</legend><div class="acts" role="group" aria-label="Pace">${[0, 1, 10].map((pace) => html`<button key=${pace} aria-pressed=${clock?.told.pace === pace} onClick=${() => change(pace ? `Pace ${pace}` : "Stop the clock", { pace }, `control.clock.run_at(${pace})`)}>${pace ? `${pace}×` : "stop"}</button>`)}</div>
      <small class="help">1× is real time. A stopped clock fires no timer until it is advanced.</small></fieldset>
  <//>`;
}

export function States({ onClose }) {
  const [kept, setKept] = useState([]);
  const look = () => ask("/v1/state/snapshots").then(({ ok, told }) => setKept(ok ? told : []));
  useEffect(() => { look(); }, []);
  const path = (name, rest = "") => `/v1/state/snapshots/${encodeURIComponent(name)}${rest}`;
  const take = async (event) => {
    event.preventDefault();
    const name = new FormData(event.target).get("name");
    await act({ title: `Snapshot ${name}`, path: path(name), python: `control.snapshots.take(${JSON.stringify(name)})` });
    look();
  };
  return html`<${Dialog} title="Snapshots" onClose=${onClose}>
    <fieldset><legend>Take</legend><form class="ask" onSubmit=${take}><label>name<input name="name" defaultValue="before" required /></label><button class="primary">Take</button></form>
      <small class="help">A snapshot has logs, topics, groups and transactions. It is in memory, and replaces one of the same name.</small></fieldset>
    <fieldset><legend>Restore</legend>
    ${kept.length ? html`<div class="scroll"><table><thead><tr><th>snapshot</th><th class="num">bytes</th><th><span class="muted">actions</span></th></tr></thead><tbody>${kept.map((one) => html`<tr key=${one.snapshot}><td>${one.snapshot}</td><td class="num">${number(one.bytes)}</td>
      <td><span class="acts"><button class="small" onClick=${() => act({ title: `Restore ${one.snapshot}`, path: path(one.snapshot, "/restore"), python: `control.snapshots.restore(${JSON.stringify(one.snapshot)})` })}>Restore</button>
      <button class="small danger" onClick=${async () => { await act({ title: `Forget ${one.snapshot}`, method: "DELETE", path: path(one.snapshot), python: `control.snapshots.remove(${JSON.stringify(one.snapshot)})` }); look(); }}>Forget</button></span></td></tr>`)}</tbody></table></div>` : html`<p class="muted">There is no snapshot yet.</p>`}
      <small class="help">Restoring closes all connections.</small></fieldset>
    <fieldset><legend>Reset</legend><div class="ask"><small class="help" style="flex:1">As after the start: no topics, groups or rules. Connections are closed.</small><button class="danger" onClick=${() => act({ title: "Reset the cluster", path: "/v1/state/reset", python: "control.reset()" })}>Reset all</button></div></fieldset>
  <//>`;
}

export function NewTopic({ onClose }) {
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const body = { topic: form.get("topic"), partitions: Number(form.get("partitions")) };
    onClose();
    await act({ title: `Create ${body.topic}`, path: "/v1/topics", body, python: python.topic(body.topic, body.partitions) });
  };
  return html`<${Dialog} title="A new topic" onClose=${onClose}><form class="grid" onSubmit=${submit}>
    <div class="fields"><label>name<input name="topic" required pattern="[A-Za-z0-9._\\-]+" autofocus /></label><label>partitions<input name="partitions" type="number" min="1" max="10000" defaultValue="4" required /></label></div>
    <div class="buttons"><button type="button" onClick=${onClose}>Cancel</button><button class="primary">Create</button></div></form><//>`;
}

export function Records({ topic, partition, onClose }) {
  const [found, setFound] = useState(null);
  const [from, setFrom] = useState("");
  const path = `/v1/topics/${topic}/records`;
  const look = async () => {
    const query = `?partition=${partition}${from === "" ? "" : `&offset=${from}`}&limit=30`;
    setFound(await ask(path + query));
  };
  useEffect(() => { look(); }, [from]);
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const record = { value: form.get("value"), ...(form.get("key") ? { key: form.get("key") } : {}), ...(form.get("here") ? { partition } : {}) };
    const line = `control.produce(${JSON.stringify(topic)}, ${JSON.stringify(record.value)}${record.key ? `, key=${JSON.stringify(record.key)}` : ""}${record.partition === undefined ? "" : `, partition=${partition}`})`;
    await act({ title: `Write to ${topic}`, path, body: { records: [record] }, python: line });
    look();
  };
  return html`<${Dialog} title=${`Records of ${topic}-${partition}`} onClose=${onClose} wide>
    <form class="fields" onSubmit=${send}><label>key<input name="key" placeholder="places the record" /></label><label>value<input name="value" required /></label>
      <label class="check"><input type="checkbox" name="here" /> in this partition, whatever the key</label><label aria-hidden="true">${" "}<button class="primary">Write</button></label></form>
    ${found && !found.ok && html`<p class="error">${found.told.error}</p>`}
    ${found?.ok && html`<div class="buttons"><small style="margin-right:auto">${number(found.told.end - found.told.start)} offsets, from ${number(found.told.start)} up to ${number(found.told.end)}</small>
      <label style="grid-auto-flow:column;align-items:center">from offset <input style="width:100px" type="number" min="0" defaultValue=${from} placeholder="last" onChange=${(event) => setFrom(event.target.value)} /></label></div>
      <div class="scroll" style="max-height:360px;overflow:auto" tabindex="0" role="region" aria-label="Records"><table><thead><tr><th class="num">offset</th><th>key</th><th>value</th><th class="num">epoch</th><th>time</th><th>batch</th></tr></thead>
      <tbody>${found.told.records.map((one) => html`<tr key=${one.offset}><td class="num">${number(one.offset)}</td><td class="mono">${shown(one.key)}</td><td class="mono">${shown(one.value)}</td><td class="num">${one.epoch}</td><td>${new Date(one.timestamp).toLocaleTimeString("en-GB")}</td><td>${one.kind && html`<${Pill} kind=${one.kind === "control" ? "warn" : "accent"}>${one.kind}<//>`}</td></tr>`)}</tbody></table>
      ${!found.told.records.length && html`<p class="muted">No records here.</p>`}</div>`}
  <//>`;
}

function shown(value) {
  if (value === null) return "null";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}

export { timeOfDay };
