// Dialogs for a topic: make one with its properties, and change the properties of one.
import { act, ask, python } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { store } from "../store.js";
import { Dialog, Pill } from "../ui.js";

export function NewTopic({ onClose }) {
  const [rows, setRows] = useState(1);
  const [known, setKnown] = useState([]);
  const [error, setError] = useState("");
  useEffect(() => {
    const some = [...store.of("topic").keys()][0];
    if (some) ask(`/v1/topics/${encodeURIComponent(some)}/configs`).then(({ ok, told }) => ok && setKnown(told));
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const [names, values] = [form.getAll("property"), form.getAll("setting")];
    const configs = Object.fromEntries(names.map((name, at) => [name.trim(), values[at]]).filter(([name]) => name));
    const body = { topic: form.get("topic"), partitions: Number(form.get("partitions")) };
    if (form.get("replicas")) body.replicas = Number(form.get("replicas"));
    if (Object.keys(configs).length) body.configs = configs;
    const entry = await act({ title: `Create ${body.topic}`, path: "/v1/topics", body, python: python.topic(body) });
    if (entry.state === "done") onClose();
    else setError(entry.error);
  };
  const nodes = store.of("node").size;
  return html`<${Dialog} title="A new topic" onClose=${onClose}><form class="grid" onSubmit=${submit}>
    <div class="fields"><label class="all">name<input name="topic" required pattern="[A-Za-z0-9._\\-]+" autofocus /></label>
      <label>partitions<input name="partitions" type="number" min="1" max="10000" defaultValue="4" required /></label>
      <label>replicas<input name="replicas" type="number" min="1" max=${nodes} placeholder="as the cluster has it" /></label></div>
    <fieldset><legend>Properties</legend><div class="grid" style="gap:7px">
      ${Array.from({ length: rows }, (_, at) => html`<div class="ask" key=${at}><label><span class="unseen">property</span><input name="property" list="properties" placeholder="retention.ms" /></label><label><span class="unseen">value</span><input name="setting" placeholder="60000" /></label></div>`)}
      <datalist id="properties">${known.map((one) => html`<option key=${one.name} value=${one.name}>${one.description}</option>`)}</datalist>
      <button type="button" class="small" style="justify-self:start" onClick=${() => setRows(rows + 1)}>One more</button></div></fieldset>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <div class="buttons"><button type="button" onClick=${onClose}>Cancel</button><button class="primary">Create</button></div></form><//>`;
}

export function Properties({ topic, onClose }) {
  const [rows, setRows] = useState(null);
  const [filter, setFilter] = useState("");
  const [error, setError] = useState("");
  const path = `/v1/topics/${encodeURIComponent(topic)}/configs`;
  useEffect(() => { ask(path).then(({ ok, told }) => (ok ? setRows(told) : setError(told.error))); }, []);
  const change = async (title, body) => {
    const entry = await act({ title, path, body, python: python.ask("POST", path, body) });
    setError(entry.state === "done" ? "" : entry.error);
    if (entry.state === "done") setRows(entry.answer);
  };
  const save = (event, name) => {
    event.preventDefault();
    change(`Set ${name} of ${topic}`, { set: { [name]: new FormData(event.target).get("value") } });
  };
  const shown = (rows ?? []).filter((one) => one.name.includes(filter)).sort((a, b) => (b.source === "topic") - (a.source === "topic"));
  return html`<${Dialog} wide title=${`Properties of ${topic}`} onClose=${onClose}>
    <input type="search" aria-label="Find properties by name" placeholder="find by name" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <div class="properties">${shown.map((one) => html`<form key=${`${one.name}=${one.value}`} class="property" onSubmit=${(event) => save(event, one.name)}>
      <div><b>${one.name}</b> ${one.source === "topic" ? html`<${Pill} kind="accent">of this topic<//>` : html`<small>from: ${one.source}</small>`}<small class="help">${one.description}</small></div>
      <input name="value" aria-label=${`Value of ${one.name}`} defaultValue=${one.value ?? ""} disabled=${one.read_only} />
      <span class="acts"><button class="small" disabled=${one.read_only} aria-label=${`Set ${one.name}`}>Set</button>
      <button type="button" class="small" disabled=${one.source !== "topic"} aria-label=${`Default of ${one.name}`} onClick=${() => change(`Return ${one.name} of ${topic} to its default`, { unset: [one.name] })}>Default</button></span></form>`)}</div>
    ${rows && !shown.length && html`<p class="muted">No property is like this.</p>`}<//>`;
}
