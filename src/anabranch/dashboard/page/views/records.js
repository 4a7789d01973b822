// Records of a topic: found in all partitions, newest first, with their headers; and written.
import { act, ask, python } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { pretty, readHeaders, shown, withZone } from "../record_text.js";
import { reason, store } from "../store.js";
import { Dialog, number, Pill, plural } from "../ui.js";

const FIELDS = [
  ["key", "key has", "customer-7"], ["value", "value has", '"amount"'], ["header", "header", "trace or trace=ab"],
  ["offset", "offset", "120"], ["from", "from", "15m or 2026-11-23T10:00"], ["to", "to", "5m"],
];

// The last records of one partition or of all, newest first, where records cannot be searched.
async function lastOf(path, partition, indices) {
  const chosen = partition === undefined ? indices : [partition];
  const limit = Math.max(1, Math.floor(50 / chosen.length));
  const answers = await Promise.all(chosen.map((one) => ask(`${path}/records?partition=${one}&limit=${limit}`)));
  const failed = answers.find(({ ok }) => !ok);
  if (failed) return failed;
  const records = answers.flatMap(({ told }, at) => told.records.map((one) => ({ ...one, partition: Number(chosen[at]) })));
  records.sort((a, b) => b.timestamp - a.timestamp || b.offset - a.offset);
  return { ok: true, told: { records, before: "", without_leader: [] } };
}

export function Records({ topic, partition, onClose }) {
  const [query, setQuery] = useState(partition === undefined ? {} : { partition });
  const [rows, setRows] = useState([]);
  const [before, setBefore] = useState("");
  const [error, setError] = useState("");
  const [missing, setMissing] = useState([]);
  const [busy, setBusy] = useState(true);
  const path = `/v1/topics/${encodeURIComponent(topic)}`;
  const noSearch = reason("GET /v1/topics/{topic}/search");
  const indices = store.indicesOf(topic);
  const look = async (more) => {
    setBusy(true);
    const { ok, told } = noSearch ? await lastOf(path, query.partition, indices) : await ask(`${path}/search?${new URLSearchParams({ ...query, limit: "50", ...(more ? { before } : {}) })}`);
    setBusy(false);
    setError(ok ? "" : told.error);
    if (!ok) return;
    const known = new Set(more ? rows.map(place) : []);
    setRows(more ? [...rows, ...told.records.filter((one) => !known.has(place(one)))] : told.records);
    setBefore(told.before);
    setMissing(told.without_leader);
  };
  useEffect(() => { look(false); }, [query]);
  const find = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setQuery(Object.fromEntries(["partition", ...FIELDS.map(([name]) => name)].map((name) => [name, (form.get(`find-${name}`) ?? "").trim()]).map(([name, one]) => [name, name === "from" || name === "to" ? withZone(one) : one]).filter(([, one]) => one !== "")));
  };
  return html`<${Dialog} title=${`Records of ${topic}`} onClose=${onClose} wide>
    <form class="fields finding" role="search" onSubmit=${find}>
      <label>partition<select name="find-partition"><option value="">all ${indices.length}</option>${indices.map((at) => html`<option key=${at} value=${at} selected=${at === partition}>${at}</option>`)}</select></label>
      ${FIELDS.map(([name, label, example]) => html`<label key=${name}>${label}<input name=${`find-${name}`} placeholder=${example} disabled=${Boolean(noSearch)} title=${noSearch || undefined} inputmode=${name === "offset" ? "numeric" : "text"} /></label>`)}
      <button class="primary">Find</button></form>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    ${missing.length > 0 && html`<p class="error" role="alert">Without the partitions that have no leader: ${missing.join(", ")}.</p>`}
    <div class="scroll found" tabindex="0" role="region" aria-label="Records"><table><thead><tr><th>time</th><th class="num">partition</th><th class="num">offset</th><th>key</th><th>value</th></tr></thead>
      ${rows.map((one) => html`<${Row} key=${place(one)} one=${one} />`)}</table>
      ${!rows.length && !busy && html`<p class="muted">${before ? "No record in what was read so far is like this." : "No record is like this."}</p>`}</div>
    <div class="buttons"><small style="margin-right:auto" role="status">${busy ? "reading…" : `${plural(rows.length, "record")}, newest first`}</small>${before && html`<button disabled=${busy} onClick=${() => look(true)}>Older ones</button>`}</div>
    <${Write} topic=${topic} partition=${partition} path=${`${path}/records`} onDone=${() => look(false)} /><//>`;
}

const place = (one) => `${one.partition}@${one.offset}`;

function Row({ one }) {
  const [open, setOpen] = useState(false);
  return html`<tbody><tr><td class="mono"><button class="quiet small" aria-expanded=${open} aria-label=${`All of ${place(one)}`} onClick=${() => setOpen(!open)}>${open ? "▾" : "▸"}</button> ${new Date(one.timestamp).toLocaleString("en-GB")}</td><td class="num">${one.partition}</td><td class="num">${number(one.offset)}</td>
    <td class="mono">${shown(one.key)}</td><td class="mono">${shown(one.value)} ${one.headers.length > 0 && html`<${Pill} title=${one.headers.map(([name]) => name).join(", ")}>${one.headers.length} ${one.headers.length === 1 ? "header" : "headers"}<//>`} ${one.kind && html`<${Pill} kind=${one.kind === "control" ? "warn" : "accent"}>${one.kind}<//>`}</td></tr>
    ${open && html`<tr><td colspan="5"><div class="grid" style="gap:8px">
      <dl class="pairs"><dt>key</dt><dd class="mono">${shown(one.key, Infinity)}</dd>${one.headers.map(([name, value], at) => html`<dt key=${`n${at}`}>header ${name}</dt><dd key=${`v${at}`} class="mono">${shown(value, Infinity)}</dd>`)}<dt>leader epoch</dt><dd>${one.epoch}</dd>${one.producer_id >= 0 && html`<dt>producer id</dt><dd>${number(one.producer_id)}</dd>`}</dl>
      <pre class="data" tabindex="0" aria-label=${`Value of ${place(one)}`}>${pretty(one.value)}</pre></div></td></tr>`}</tbody>`;
}

function Write({ topic, partition, path, onDone }) {
  const [error, setError] = useState("");
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    let headers;
    try {
      headers = readHeaders(form.get("headers"));
    } catch (wrong) {
      setError(wrong.message);
      return;
    }
    const record = { value: form.get("value"), ...(form.get("key") ? { key: form.get("key") } : {}), ...(form.get("here") ? { partition } : {}), ...(headers.length ? { headers } : {}) };
    const entry = await act({ title: `Write to ${topic}`, path, body: { records: [record] }, python: python.record(topic, record) });
    setError(entry.state === "done" ? "" : entry.error);
    if (entry.state === "done") onDone();
  };
  return html`<details class="write"><summary>Write a record</summary><form class="grid" style="margin-top:8px" onSubmit=${send}>
    <div class="fields"><label>key<input name="key" placeholder="places the record" /></label><label>headers, one a line<textarea name="headers" rows="2" placeholder="trace: ab-cd"></textarea></label><label class="all">value<textarea name="value" rows="2" required></textarea></label></div>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <div class="buttons">${partition !== undefined && html`<label class="check"><input type="checkbox" name="here" /> in partition ${partition}, whatever the key</label>`}<button class="primary">Write</button></div></form></details>`;
}
