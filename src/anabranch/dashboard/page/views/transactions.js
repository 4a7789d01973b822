// Transactional ids: whose producer it is, what its transaction is about, and how long it has been open.
import { html } from "../lib.js";
import { store } from "../store.js";
import { Empty, Node, number, Panel, Pill, plural, span, useTick } from "../ui.js";

const OPEN = new Set(["Ongoing", "PrepareCommit", "PrepareAbort"]);
const KINDS = { Ongoing: "accent", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "good", CompleteAbort: "bad" };

export function Transactions() {
  useTick(1000);
  const rows = [...store.of("transaction").values()].sort((a, b) => OPEN.has(b.state) - OPEN.has(a.state) || a.transactional_id.localeCompare(b.transactional_id));
  const open = rows.filter((one) => OPEN.has(one.state)).length;
  if (!rows.length) return html`<div class="title"><h1>Transactions</h1></div><${Empty} title="No transactions yet">A producer with a <code>transactional_id</code> appears here when it has asked for its producer id.<//>`;
  const now = (store.clock() + (store.day ?? 0)) * 1000;
  return html`<div class="title"><h1>Transactions</h1><span class="lead">${plural(open, "open transaction")} of ${plural(rows.length, "transactional id")}</span></div>
    <${Panel} label="Transactional ids"><div class="scroll"><table><thead><tr><th>transactional id</th><th>state</th><th>open for</th><th>partitions</th><th class="num">producer</th><th class="num">epoch</th><th>coordinator</th></tr></thead>
    <tbody>${rows.map((one) => {
      const age = OPEN.has(one.state) && one.started_ms > 0 ? (now - one.started_ms) / 1000 : -1;
      const part = age < 0 ? 0 : Math.min(1, (age * 1000) / one.timeout_ms);
      return html`<tr key=${one.transactional_id}><td><b>${one.transactional_id}</b></td><td><${Pill} kind=${KINDS[one.state] || ""}>${one.state}<//></td>
        <td style="min-width:130px">${age < 0 ? html`<span class="muted">–</span>` : html`${span(age)} <small>of ${span(one.timeout_ms / 1000)}</small><div class="bar" style="height:4px;margin-top:3px"><i style=${`width:${part * 100}%;background:${part > 0.75 ? "var(--bad)" : "var(--accent)"}`}></i></div>`}</td>
        <td>${one.partitions.length ? one.partitions.slice(0, 6).join(", ") + (one.partitions.length > 6 ? ` and ${one.partitions.length - 6} more` : "") : html`<span class="muted">none</span>`}</td>
        <td class="num">${number(one.producer_id)}</td><td class="num">${number(one.producer_epoch)}</td><td><${Node} id=${one.coordinator} /></td></tr>`;
    })}</tbody></table></div><//>`;
}
