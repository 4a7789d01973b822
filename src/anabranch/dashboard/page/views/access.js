// Who may do what, and how much: ACLs, users with SCRAM credentials, quotas. Read only.
import { ask } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { number, Panel, Pill } from "../ui.js";

const RATES = { producer_byte_rate: "bytes/s written", consumer_byte_rate: "bytes/s read", request_percentage: "% of request time", controller_mutation_rate: "changes/s", connection_creation_rate: "connections/s" };

export function Access() {
  const [found, setFound] = useState(null);
  const look = async () => {
    const [acls, users, quotas] = await Promise.all(["/v1/acls", "/v1/users", "/v1/quotas"].map(ask));
    setFound({ acls, users, quotas });
  };
  useEffect(() => { look(); }, []);
  return html`<div class="title"><h1>Access</h1><span class="lead">ACLs, users and quotas; read only</span><div class="acts"><button onClick=${look}>Read again</button></div></div>
    ${!found ? html`<p class="muted">Reading…</p>` : html`<div class="grid">
      <${Table} title="ACLs" answer=${found.acls} rows=${found.acls.told.acls} heads=${["principal", "host", "permission", "operation", "resource"]}
        none=${found.acls.told.authorizer ? "The authorizer has no entries." : html`This cluster has no authorizer: every client may do everything. <code>--config authorizer.class.name=…</code> turns one on.`}
        cells=${(one) => [one.principal, one.host, html`<${Pill} kind=${one.permission === "ALLOW" ? "good" : "bad"}>${one.permission}<//>`, one.operation, html`<span class="muted">${one.resource_type}</span> ${one.resource}${one.pattern_type === "PREFIXED" ? "*" : ""}`]} />
      <${Table} title="Users" answer=${found.users} rows=${found.users.told} heads=${["user", "mechanism", "iterations"]} none="No user has SCRAM credentials." cells=${(one) => [one.user, one.mechanism, number(one.iterations)]} />
      <${Table} title="Quotas" answer=${found.quotas} rows=${found.quotas.told} heads=${["of", "quota", "limit"]} none="There are no quotas."
        cells=${(one) => [Object.entries(one.entity).map(([kind, name]) => `${kind} ${name ?? "(default)"}`).join(", "), Object.keys(one.quotas).map((name) => html`<div key=${name}>${name}</div>`), Object.entries(one.quotas).map(([name, value]) => html`<div key=${name}>${number(value)} <small>${RATES[name] ?? ""}</small></div>`)]} />
    </div>`}`;
}

function Table({ title, answer, rows, heads, cells, none }) {
  return html`<${Panel} title=${title} side=${answer.ok ? number(rows.length) : ""}>${!answer.ok ? html`<p class="error">${answer.told.error}</p>` : !rows.length ? html`<p class="muted">${none}</p>` : html`<div class="scroll"><table><thead><tr>${heads.map((one) => html`<th key=${one}>${one}</th>`)}</tr></thead>
    <tbody>${rows.map((one, at) => html`<tr key=${at}>${cells(one).map((cell, column) => html`<td key=${column}>${cell}</td>`)}</tr>`)}</tbody></table></div>`}<//>`;
}
