// What is done to the cluster: every action is one request, and leaves behind how to do the same in a shell or a test.
import { html, useState } from "./lib.js";
import { changed } from "./store.js";

const KEPT = 30;
export const done = [];
let number = 0;

export async function act({ title, method = "POST", path, body, python, quiet = false }) {
  const entry = { number: ++number, title, method, path, body, python, state: "under way", answer: null };
  if (!quiet) {
    done.unshift(entry);
    done.length = Math.min(done.length, KEPT);
    open.value = true;
  }
  changed();
  try {
    const answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    entry.answer = await answer.json().catch(() => null);
    entry.state = answer.ok ? "done" : "refused";
    entry.error = answer.ok ? "" : entry.answer?.error || `status ${answer.status}`;
  } catch (error) {
    entry.state = "refused";
    entry.error = "nobody answers";
  }
  changed();
  if (!quiet && entry.state === "done") setTimeout(() => { if (done[0] === entry && !kept.value) { open.value = false; changed(); } }, 9000);
  return entry;
}

// The answer to a question that changes nothing.
export async function ask(path) {
  try {
    const answer = await fetch(path);
    return { ok: answer.ok, told: await answer.json() };
  } catch {
    return { ok: false, told: { error: "nobody answers" } };
  }
}

export const open = { value: false };
const kept = { value: false };

export function curl({ method, path, body }) {
  const flags = method === "GET" ? "" : ` -X ${method}`;
  const data = body === undefined ? "" : ` -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  const url = location.origin + path;
  return `curl${flags} ${/[?&{}[\]]/.test(url) ? `'${url}'` : url}${data}`;
}

const text = (value) => JSON.stringify(value);

export const python = {
  node: (id, what) => `control.nodes[${id}].${what}()`,
  topic: ({ topic, partitions, replicas, configs }) => `control.create_topic(${[text(topic), partitions, ...named({ replicas, configs })].join(", ")})`,
  record: (topic, { value, ...rest }) => `control.produce(${[text(topic), literal(value), ...named(rest)].join(", ")})`,
  ask: (method, path, body) => `control.ask("${method}", ${text(path)}, ${literal(body)})`,
  resize: (name, count) => `control.resize(${text(name)}, ${count})`,
  rule: (rule) => `control.faults.add(${Object.entries(rule).map(([name, one]) => `${name}=${literal(one)}`).join(", ")})`,
};

const named = (values) => Object.entries(values).filter(([, one]) => one !== undefined).map(([name, one]) => `${name}=${literal(one)}`);

export function literal(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${text(name)}: ${literal(one)}`).join(", ")}}`;
  return text(value);
}

export function Snippet({ entry }) {
  const [way, setWay] = useState("curl");
  const [copied, setCopied] = useState(false);
  const code = way === "curl" ? curl(entry) : entry.python;
  const copy = async () => {
    await navigator.clipboard?.writeText(code).catch(() => null);
    setCopied(true);
    setTimeout(() => setCopied(false), 1200);
  };
  return html`<div class="snippet">
    <div class="tabs" role="group" aria-label="The same elsewhere">
      ${["curl", "python"].map((one) => html`<button key=${one} aria-pressed=${way === one} onClick=${() => setWay(one)}>${one === "curl" ? "curl" : "Python"}</button>`)}
      <button class="copy" onClick=${copy}>${copied ? "copied" : "copy"}</button>
    </div>
    <pre tabindex="0" aria-label=${way === "curl" ? "The same in a shell" : "The same in Python"}>${code}</pre>
  </div>`;
}

export function Done() {
  const entry = done[0];
  if (!entry || !open.value) return null;
  const close = () => { open.value = kept.value = false; changed(); };
  return html`<aside class=${`done ${entry.state.replace(" ", "-")}`} aria-label="Last action" role="status" onMouseEnter=${() => (kept.value = true)} onFocusIn=${() => (kept.value = true)}>
    <header><strong>${entry.title}</strong><span class=${`pill ${entry.state === "done" ? "good" : entry.state === "refused" ? "bad" : ""}`}>${entry.state}</span>
    <button class="quiet" aria-label="Close" onClick=${close}>✕</button></header>
    ${entry.error && html`<p class="error">${entry.error}</p>`}
    <${Snippet} entry=${entry} key=${entry.number} />
  </aside>`;
}
