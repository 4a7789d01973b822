// What happened, newest first, filtered; each leads back to its moment, and into the journal.
import { html, useState } from "../lib.js";
import { ALL, familyOf, told, toldAll } from "../kinds.js";
import { fold } from "../series.js";
import { goTo, store } from "../store.js";
import { Dialog, Empty, Long, millis, Panel, Pill, timeOfDay } from "../ui.js";

export function Events() {
  const [off, setOff] = useState(new Set());
  const [filter, setFilter] = useState("");
  const [journal, setJournal] = useState(null);
  const [unfolded, setUnfolded] = useState(new Set());
  const toggled = (name) => (was) => { const next = new Set(was); next.has(name) ? next.delete(name) : next.add(name); return next; };
  const turn = (name) => setOff(toggled(name));
  const past = store.past();
  const shown = past.filter((one) => !off.has(familyOf(one.kind).name) && (!filter || `${one.kind} ${told(one)}`.toLowerCase().includes(filter.toLowerCase()))).reverse();
  const rows = fold(shown).flatMap((events) => {
    const oldest = events[events.length - 1].number;
    return unfolded.has(oldest) ? [{ events, oldest }, ...events.map((one) => ({ events: [one] }))] : [{ events, oldest }];
  });
  const look = async (one) => {
    const words = new URLSearchParams({ limit: "40" });
    if (one.topic) words.set("topic", one.topic);
    if (one.kind === "fault") words.set("rule", one.rule);
    if (one.api) words.set("api", one.api);
    const answer = await fetch(`/v1/journal?${words}`);
    setJournal({ event: one, words: words.toString(), ok: answer.ok, told: await answer.json() });
  };
  return html`<div class="title"><h1>Events</h1><span class="lead">${shown.length.toLocaleString("en")} of ${past.length.toLocaleString("en")}</span></div>
    <div class="filters" style="margin-bottom:12px"><input type="search" aria-label="Find events" placeholder="find: orders-3, node 2" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      ${ALL.map((one) => html`<button key=${one.name} class="small" aria-pressed=${!off.has(one.name)} onClick=${() => turn(one.name)}><i class="swatch" style=${`--of:${one.color};margin-right:6px`}></i>${one.name}</button>`)}</div>
    ${rows.length ? html`<${Panel} label="Events"><${Long} count=${rows.length} height=${innerWidth <= 720 ? 58 : 36} label="Events, newest first" render=${(at) => {
      const { events, oldest } = rows[at];
      const [one] = events;
      const text = toldAll(events);
      return html`<div class="event"><span class="mono muted">${timeOfDay(one.at, 2)}</span><span class="kind"><i class="swatch" style=${`--of:${familyOf(one.kind).color}`}></i>${one.kind}</span><span class="what" title=${text}>${text}</span>
        <span class="acts">${events.length > 1 && html`<button class="small" aria-expanded=${unfolded.has(oldest)} aria-label=${`${events.length} events, since ${timeOfDay(events[events.length - 1].at)}`} onClick=${() => setUnfolded(toggled(oldest))}>${events.length.toLocaleString("en")} ×</button>`}<button class="small quiet" onClick=${() => goTo(one.at)}>go there</button>${(one.topic || one.api || one.rule) && html`<button class="small quiet" onClick=${() => look(one)}>journal</button>`}</span></div>`;
    }} /><//>` : html`<${Empty} title=${past.length ? "No event is like this" : "Nothing has happened yet"}>${past.length ? "Turn other kinds on, or look for something else." : "Elections, ISR changes, resizes, rebalances and what is done to nodes appear here."}<//>`}
    ${journal && html`<${Dialog} wide title="The journal" onClose=${() => setJournal(null)}>
      ${!journal.ok ? html`<p class="muted">${journal.told.error}</p>` : !journal.told.length ? html`<p class="muted">No exchange that is kept is about this.</p>` : html`<div class="scroll" style="max-height:60vh;overflow:auto" tabindex="0" role="region" aria-label="Exchanges"><table><thead><tr><th>time</th><th>node</th><th>client</th><th>API</th><th class="num">took</th><th>outcome</th></tr></thead><tbody>
        ${journal.told.map((one) => html`<tr key=${one.number}><td class="mono">${timeOfDay(one.at, 2)}</td><td>${one.node}</td><td>${one.client_id}</td><td>${one.api} v${one.version}</td><td class="num">${one.ms === null ? "–" : millis(one.ms)}</td><td>${one.errors.length ? html`<${Pill} kind="bad">${one.errors.join(", ")}<//>` : one.outcome} ${one.rules.map((name) => html`<${Pill} key=${name} kind="warn">${name}<//>`)}</td></tr>`)}
      </tbody></table></div>`}
      <small>The same in a shell: <code>anabranch journal ${journal.words.replaceAll("&", " ")}</code></small><//>`}`;
}
