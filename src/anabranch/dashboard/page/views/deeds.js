// Dialogs for what is done to the whole cluster: its clock and its state.
import { act, ask } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { Act, Dialog, number } from "../ui.js";

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
    <fieldset><legend>Reset</legend><div class="ask"><small class="help" style="flex:1">As after the start: no topics, groups or rules. Connections are closed.</small><${Act} needs="POST /v1/state/reset" class="danger" onClick=${() => act({ title: "Reset the cluster", path: "/v1/state/reset", python: "control.reset()" })}>Reset all<//></div></fieldset>
  <//>`;
}
