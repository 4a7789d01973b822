// The dialog that resets a group's offsets: first shown, then committed.
import { act, ask, python } from "../act.js";
import { html, useState } from "../lib.js";
import { withZone } from "../record_text.js";
import { store } from "../store.js";
import { Dialog, number } from "../ui.js";

export function ResetOffsets({ group, onClose }) {
  const [preview, setPreview] = useState(null);
  const [error, setError] = useState("");
  const committed = Object.keys(store.row(`commits/${group}`) || {});
  const topics = [...new Set([...committed, ...[...store.of("topic").keys()].filter((one) => !one.startsWith("__")).sort()])];
  const path = `/v1/groups/${encodeURIComponent(group)}/offsets`;
  const look = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const body = { topic: form.get("topic"), to: withZone(form.get("to").trim()), lineage: form.get("lineage") !== null };
    if (form.get("partition")) body.partition = Number(form.get("partition"));
    const entry = await act({ title: "Preview", path, body: { ...body, dry_run: true }, quiet: true });
    setError(entry.state === "done" ? "" : entry.error);
    setPreview(entry.state === "done" ? { body, told: entry.answer } : null);
  };
  const commit = async () => {
    const { body } = preview;
    const entry = await act({ title: `Reset ${group} in ${body.topic}`, path, body, python: python.ask("POST", path, body) });
    const failed = entry.state === "done" && entry.answer.offsets.filter((one) => one.error !== "NONE");
    if (entry.state !== "done") setError(entry.error);
    else if (failed.length) setError(failed.map((one) => `${one.topic}-${one.partition}: ${one.error}`).join(", "));
    else onClose();
  };
  return html`<${Dialog} wide title=${`Reset offsets of ${group}`} onClose=${onClose}>
    <form class="grid" onSubmit=${look} onInput=${() => setPreview(null)}><div class="fields">
      <label>topic<select name="topic">${topics.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
      <label>partition<input name="partition" inputmode="numeric" pattern="[0-9]*" placeholder="all" /></label>
      <label>to<input name="to" list="ends" required defaultValue="earliest" /><small class="help">earliest, latest, an offset, a time such as 2026-11-23T10:00, or 15m, 2h, 1d, or -100 from the committed offset</small></label>
      <label class="check all"><input type="checkbox" name="lineage" defaultChecked /> <span>also partitions that hold later records of the same keys<small class="help">Without them, a reset to before a resize delivers old records after newer ones of the same key.</small></span></label></div>
      <datalist id="ends">${["earliest", "latest", "-100", "2h"].map((one) => html`<option key=${one} value=${one}></option>`)}</datalist>
      <div class="buttons"><button>Preview</button></div></form>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    ${preview && html`<div class="scroll found" tabindex="0" role="region" aria-label="Preview"><table><thead><tr><th>partition</th><th class="num">committed</th><th class="num">after the reset</th><th class="num">change</th></tr></thead><tbody>
      ${preview.told.offsets.map((one) => html`<tr key=${one.partition}><td>${one.topic}-${one.partition}</td><td class="num">${one.before === null ? "none" : number(one.before)}</td><td class="num"><b>${number(one.after)}</b></td><td class="num">${one.before === null ? "" : change(one.after - one.before)}</td></tr>`)}</tbody></table></div>
      ${preview.told.members.length > 0 && html`<p class="error" role="alert">The group has ${preview.told.members.length} ${preview.told.members.length === 1 ? "member" : "members"}, which must stop first.</p>`}
      <div class="buttons"><button type="button" onClick=${onClose}>Cancel</button><button class="primary" disabled=${preview.told.members.length > 0} onClick=${commit}>Reset</button></div>`}<//>`;
}

const change = (by) => (by > 0 ? `+${number(by)}` : by < 0 ? `−${number(-by)}` : "0");
