// Rules of faults: what they say, what they have hit; and a form for new ones, made of the schema.
import { act, python } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { store } from "../store.js";
import { Dialog, Empty, number, Panel, Pill, plural } from "../ui.js";

const WHERE = ["api", "brokers", "link", "topic", "partition", "group", "client_id", "transactional_id", "between_brokers"];
const WHEN = ["times", "after", "every", "probability", "until"];
const WHAT = ["error", "delay_ms", "hold", "node", "silence", "half_open", "disconnect", "throttle_ms", "after_work", "truncate", "corrupt", "drip"];
const EXAMPLES = {
  name: "slow-orders", api: "Produce, Fetch", brokers: "1, 2", link: "1:2, 2:1", topic: "orders", partition: "0, 1", group: "billing", client_id: "till-*", transactional_id: "settlement-1",
  times: "always", after: "0", every: "1", probability: "1", until: "45s", error: "NOT_LEADER_OR_FOLLOWER", delay_ms: "50, 200", throttle_ms: "0", truncate: "0", drip: "0", versions: "3-9",
};
const PARTS = [["Where: which requests", WHERE], ["When: which of those", WHEN], ["What happens to them", WHAT]];

export function Rules() {
  const [asked, setAsked] = useState(false);
  const rows = [...store.of("rule").values()];
  return html`<div class="title"><h1>Rules</h1><span class="lead">${plural(rows.length, "rule")}, ${plural(rows.reduce((sum, one) => sum + one.hits, 0), "hit")}</span>
      <div class="acts">${rows.length > 1 && html`<button class="danger" onClick=${() => act({ title: "Remove all rules", method: "DELETE", path: "/v1/faults", python: "control.faults.clear()" })}>Remove all</button>`}<button class="primary" onClick=${() => setAsked(true)}>New rule…</button></div></div>
    ${rows.length ? html`<${Panel} label="Rules"><div class="scroll"><table><thead><tr><th>rule</th><th>says</th><th class="num">met</th><th class="num">hits</th><th>state</th><th><span class="muted">actions</span></th></tr></thead><tbody>
      ${rows.map((one) => html`<tr key=${one.name}><td><b>${one.name}</b></td><td><span style="display:flex;flex-wrap:wrap;gap:4px">${Object.entries(one.rule).filter(([name]) => name !== "name").map(([name, value]) => html`<${Pill} key=${name}>${name}${value === true ? "" : html` <span style="color:var(--text)">${Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : value}</span>`}<//>`)}</span></td>
        <td class="num">${number(one.met)}</td><td class="num"><b>${number(one.hits)}</b></td><td>${one.held ? html`<${Pill} kind="warn">holds ${one.held}<//>` : one.spent ? html`<${Pill}>spent<//>` : one.hits ? html`<${Pill} kind="bad">hitting<//>` : html`<${Pill} kind="accent">armed<//>`}</td>
        <td><span class="acts">${one.held > 0 && html`<button class="small" onClick=${() => act({ title: `Release ${one.name}`, path: `/v1/faults/${encodeURIComponent(one.name)}/release`, python: `control.faults[${JSON.stringify(one.name)}].release()` })}>Release</button>`}
        <button class="small danger" aria-label=${`Remove ${one.name}`} onClick=${() => act({ title: `Remove ${one.name}`, method: "DELETE", path: `/v1/faults/${encodeURIComponent(one.name)}`, python: `control.faults.remove(${JSON.stringify(one.name)})` })}>Remove</button></span></td></tr>`)}
    </tbody></table></div><//>` : html`<${Empty} title="No rules">A rule fails, holds, delays, damages or swallows single requests, and tells what it has hit. Without any, nothing of it runs.<//>`}
    ${asked && html`<${Form} onClose=${() => setAsked(false)} />`}`;
}

let schema = null;

function Form({ onClose }) {
  const [fields, setFields] = useState(schema);
  const [rule, setRule] = useState({});
  const [error, setError] = useState("");
  const [all, setAll] = useState(false);
  useEffect(() => {
    if (!schema) fetch("/v1/openapi.json").then((answer) => answer.json()).then((told) => setFields((schema = told.components.schemas.Rule.properties)));
  }, []);
  if (!fields) return null;
  const set = (name, value) => setRule((was) => { const next = { ...was }; if (value === "" || value === false || value === undefined || (Array.isArray(value) && !value.length)) delete next[name]; else next[name] = value; return next; });
  const submit = async (event) => {
    event.preventDefault();
    const entry = await act({ title: `Add rule ${rule.name || ""}`, path: "/v1/faults", body: rule, python: python.rule(rule) });
    if (entry.state === "done") onClose();
    else setError(entry.error);
  };
  const rest = Object.keys(fields).filter((one) => one !== "name" && !PARTS.some(([, names]) => names.includes(one)));
  return html`<${Dialog} wide title="A new rule" onClose=${onClose}><form class="grid" onSubmit=${submit}>
    <p class="muted">A rule hits requests that match all fields of the first two parts. Empty fields match everything.</p>
    <div class="fields"><${Field} name="name" schema=${fields.name} set=${set} /></div>
    ${PARTS.map(([title, names]) => html`<fieldset key=${title}><legend>${title}</legend><div class="fields">${names.filter((one) => fields[one]).map((one) => html`<${Field} key=${one} name=${one} schema=${fields[one]} set=${set} />`)}</div></fieldset>`)}
    ${all ? html`<fieldset><legend>The rest</legend><div class="fields">${rest.map((one) => html`<${Field} key=${one} name=${one} schema=${fields[one]} set=${set} />`)}</div></fieldset>` : html`<button type="button" class="small" style="justify-self:start" onClick=${() => setAll(true)}>${rest.length} more fields</button>`}
    <div class="foot-row"><pre class="data" style="max-height:84px" tabindex="0" aria-label="The rule as JSON">${JSON.stringify(rule)}</pre>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <div class="buttons"><button type="button" onClick=${onClose}>Cancel</button><button class="primary" disabled=${!Object.keys(rule).length}>Add</button></div></div></form><//>`;
}

function kindOf(schema) {
  if (schema.enum) return ["choice", schema.enum];
  const variants = schema.anyOf || schema.oneOf;
  const array = schema.type === "array" ? schema : variants?.find((one) => one.type === "array");
  if (array) return ["list", array.items?.type || "string"];
  return [schema.type || variants?.[0]?.type || "string"];
}

function Field({ name, schema, set }) {
  const [kind, detail] = kindOf(schema);
  const help = html`<small class="help">${schema.description}</small>`;
  if (kind === "boolean") return html`<label class="check"><input type="checkbox" name=${name} onChange=${(event) => set(name, event.target.checked)} /> <span><span class="name">${name}</span>${help}</span></label>`;
  if (kind === "choice") return html`<label><span class="name">${name}</span><select name=${name} onChange=${(event) => set(name, event.target.value)}><option value=""></option>${detail.filter(Boolean).map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select>${help}</label>`;
  const read = (text) => {
    if (text.trim() === "") return undefined;
    if (kind === "list") return text.split(",").map((one) => (detail === "string" ? one.trim() : Number(one))).filter((one) => one !== "");
    if (kind === "integer" || kind === "number") return Number(text);
    if (kind === "object") { try { return JSON.parse(text); } catch { return text; } }
    return text;
  };
  return html`<label><span class="name">${name}</span><input name=${name} inputmode=${kind === "integer" || kind === "number" ? "decimal" : "text"} placeholder=${EXAMPLES[name] ?? (kind === "object" ? '{"path": 1}' : "")} onInput=${(event) => set(name, read(event.target.value))} />${help}</label>`;
}
