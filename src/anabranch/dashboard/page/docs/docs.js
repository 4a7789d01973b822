// The HTTP API for people: operations by tag with parameters, schemas, curl lines, and a button that sends the request.
import { Fragment, html, render, useEffect, useMemo, useState } from "../lib.js";

const METHODS = ["get", "post", "put", "delete"];
const SHOWN_CHARS = 20000;
const JSON_TYPE = "application/json";
let spec = null;

const pretty = (value) => JSON.stringify(value, null, 2);
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function resolved(schema) {
  return schema.$ref ? spec.components.schemas[schema.$ref.split("/").pop()] : schema;
}

function typeName(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  const choices = schema.anyOf || schema.oneOf;
  if (choices) return choices.map(typeName).join(" | ");
  if (Array.isArray(schema.type)) return schema.type.join(" | ");
  if (schema.type === "array") return `list of ${typeName(schema.items || {})}`;
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return `object of ${typeName(schema.additionalProperties)}`;
  return schema.format === "binary" ? "file" : schema.type || "any";
}

// The components with fields that a schema leads to, through lists and choices.
function below(schema) {
  const parts = [schema.items, schema.additionalProperties, ...(schema.anyOf || schema.oneOf || [])];
  const found = schema.$ref ? [schema] : parts.filter((one) => one && typeof one === "object").flatMap(below);
  return [...new Map(found.map((one) => [one.$ref, one])).values()];
}

function Fields({ schema }) {
  const { properties = {}, required = [], description } = resolved(schema);
  return html`<div class="schema">${description && html`<p class="muted">${description}</p>`}<ul>
    ${Object.entries(properties).map(([name, one]) => html`<li key=${name}>
      <code>${name}</code> <small>${typeName(one)}${required.includes(name) ? "" : ", optional"}</small> ${one.description || ""}
      ${below(one).map((inner) => html`<${Component} key=${inner.$ref} schema=${inner} />`)}
    </li>`)}
  </ul></div>`;
}

// A component is rendered when it is opened, so that schemas may contain themselves.
function Component({ schema }) {
  const [open, setOpen] = useState(false);
  return html`<details onToggle=${(event) => { event.stopPropagation(); setOpen(event.currentTarget.open); }}><summary><small>${typeName(schema)}</small></summary>${open && html`<${Fields} schema=${schema} />`}</details>`;
}

function Schema({ schema, title }) {
  const parts = below(schema);
  return html`<section><h3>${title}: ${typeName(schema)}</h3>
    ${parts.length === 1 ? html`<${Fields} schema=${parts[0]} />` : parts.map((one) => html`<${Component} key=${one.$ref} schema=${one} />`)}
  </section>`;
}

function Parameter({ one, value, onInput }) {
  const shared = { name: one.name, value, onInput: (event) => onInput(event.target.value) };
  const choices = one.schema.enum || (one.schema.type === "boolean" ? ["true", "false"] : null);
  return html`<label title=${one.description}><span><code>${one.name}</code> ${typeName(one.schema)}${one.required ? ", required" : ""}</span>
    ${choices ? html`<select ...${shared}><option value=""></option>${choices.map((name) => html`<option key=${name}>${name}</option>`)}</select>`
      : html`<input ...${shared} placeholder=${one.example ?? ""} />`}
    <small>${one.description}</small></label>`;
}

function target(operation, words) {
  const query = new URLSearchParams();
  let path = operation.path;
  for (const one of operation.parameters) {
    const value = words[one.name] ?? "";
    if (one.in === "path") path = path.replace(`{${one.name}}`, value === "" ? `{${one.name}}` : encodeURIComponent(value));
    else if (value !== "") query.append(one.name, value);
  }
  return query.size ? `${path}?${query}` : path;
}

function curlLine(operation, url, body) {
  const method = operation.method === "get" ? "" : ` -X ${operation.method.toUpperCase()}`;
  const data = operation.takesFile ? " --data-binary @FILE" : body ? ` -d ${quoted(body)}` : "";
  const token = spec.usesToken ? ` -H 'Authorization: Bearer TOKEN'` : "";
  return `curl${method}${token} ${/[?&{}]/.test(url) ? quoted(url) : url}${data}`;
}

async function sent(operation, url, body) {
  const json = body && !operation.takesFile;
  const answer = await fetch(url, { method: operation.method.toUpperCase(), body: body || undefined, headers: json ? { "Content-Type": JSON_TYPE } : {} });
  const kind = answer.headers.get("Content-Type") || "";
  if (!kind.startsWith(JSON_TYPE)) return { status: answer.status, text: `${(await answer.arrayBuffer()).byteLength} bytes`, link: operation.method === "get" ? url : "" };
  const text = pretty(await answer.json());
  return { status: answer.status, text: text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}\n... ${text.length - SHOWN_CHARS} more characters` : text };
}

function Operation({ operation }) {
  const example = operation.body?.example;
  const [words, setWords] = useState(() => Object.fromEntries(operation.parameters.filter((one) => one.required && one.example !== undefined).map((one) => [one.name, String(one.example)])));
  const [body, setBody] = useState(example === undefined ? "" : pretty(example));
  const [file, setFile] = useState(null);
  const [answer, setAnswer] = useState(null);
  const url = target(operation, words);
  const compact = useMemo(() => { try { return JSON.stringify(JSON.parse(body)); } catch { return body; } }, [body]);
  const send = async () => {
    setAnswer({ status: "…", text: "" });
    setAnswer(await sent(operation, url, operation.takesFile ? file : body).catch((error) => ({ status: "no response", text: String(error) })));
  };
  const success = operation.responses["200"]?.content || {};
  const [kind, media] = Object.entries(success)[0] || [];
  return html`<div>
    ${operation.parameters.length > 0 && html`<div class="fields">${operation.parameters.map((one) => html`<${Parameter} key=${one.name} one=${one}
      value=${words[one.name] ?? ""} onInput=${(value) => setWords((was) => ({ ...was, [one.name]: value }))} />`)}</div>`}
    ${operation.body && html`<label>Body<textarea name="body" rows=${Math.min(body.split("\n").length + 1, 16)} value=${body} onInput=${(event) => setBody(event.target.value)}></textarea></label>
      <${Schema} schema=${operation.body.schema} title="Body" />`}
    ${operation.takesFile && html`<label>File<input type="file" onChange=${(event) => setFile(event.target.files[0])} /></label>`}
    <pre class="curl" tabindex="0" aria-label="The request as curl command">${curlLine(operation, location.origin + url, compact)}</pre>
    <div class="buttons"><button class="primary" onClick=${send} disabled=${url.includes("{") || (operation.takesFile && !file)}>Send</button>
      ${operation.method !== "get" && html`<small>changes the cluster</small>`}</div>
    ${answer && html`<section role="status"><h3>Status ${answer.status}</h3>${answer.link && html`<a href=${answer.link} download>Download</a>`}<pre class="answer" tabindex="0">${answer.text}</pre></section>`}
    ${media ? html`<${Schema} schema=${media.schema} title="Response" />` : html`<p class="muted">This control plane always refuses the operation.</p>`}
    ${kind === JSON_TYPE && media.example !== undefined && html`<details><summary><small>Example of a response</small></summary><pre tabindex="0">${pretty(media.example)}</pre></details>`}
  </div>`;
}

function Row({ operation }) {
  const [open, setOpen] = useState(location.hash === `#${operation.operationId}`);
  useEffect(() => {
    const look = () => { if (location.hash === `#${operation.operationId}`) setOpen(true); };
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return html`<details class="panel operation" id=${operation.operationId} open=${open} onToggle=${(event) => { if (event.target === event.currentTarget) setOpen(event.currentTarget.open); }}>
    <summary><span class=${`method ${operation.method}`}>${operation.method.toUpperCase()}</span><code>${operation.path}</code><span class="muted">${operation.summary}</span></summary>
    ${open && html`<${Operation} operation=${operation} />`}
  </details>`;
}

function operations() {
  return Object.entries(spec.paths).flatMap(([path, ways]) => METHODS.filter((method) => ways[method]).map((method) => {
    const content = ways[method].requestBody?.content || {};
    return { ...ways[method], path, method, body: content[JSON_TYPE], takesFile: Boolean(Object.keys(content).length) && !content[JSON_TYPE] };
  }));
}

function Docs() {
  const [wanted, setWanted] = useState("");
  const all = useMemo(operations, []);
  const word = wanted.trim().toLowerCase();
  const found = all.filter((one) => `${one.operationId} ${one.path} ${one.summary}`.toLowerCase().includes(word));
  const tags = spec.tags.map((tag) => ({ ...tag, found: found.filter((one) => one.tags.includes(tag.name)) })).filter((tag) => tag.found.length);
  return html`<${Fragment}>
    <nav aria-label="Operations"><b>Anabranch ${spec.info.version}</b>
      <input type="search" placeholder="Search" aria-label="Search operations" value=${wanted} onInput=${(event) => setWanted(event.target.value)} />
      ${tags.map((tag) => html`<h2 key=${tag.name}>${tag.name}</h2>${tag.found.map((one) => html`<a key=${one.operationId} href=${`#${one.operationId}`}>${one.operationId}</a>`)}`)}
      <div class="foot">${all.some((one) => one.operationId === "getDashboardRows" && one.responses["200"]) && html`<a href="/">Dashboard</a>`}<a href="/v1/openapi.json">openapi.json</a></div>
    </nav>
    <main tabindex="-1"><h1>HTTP API</h1>
      ${tags.map((tag) => html`<section key=${tag.name} class="tag" aria-label=${tag.name}><h2>${tag.name}</h2><p>${tag.description}</p>
        ${tag.found.map((one) => html`<${Row} key=${one.operationId} operation=${one} />`)}</section>`)}
      ${!tags.length && html`<p class="muted">No operation matches.</p>`}
    </main>
  </${Fragment}>`;
}

function Login({ onDone }) {
  const [error, setError] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token");
    const answer = await fetch("/v1/login", { method: "POST", headers: { "Content-Type": JSON_TYPE }, body: JSON.stringify({ token }) });
    if (answer.ok) onDone();
    else setError((await answer.json()).error);
  };
  return html`<main class="login"><form class="panel grid" onSubmit=${submit}>
    <h1>Anabranch</h1><p class="muted">This control plane needs the token of <code>--control-token</code>.</p>
    <label>Token<input name="token" type="password" autocomplete="current-password" required autofocus /></label>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <div class="buttons"><button class="primary">Show the API</button></div>
  </form></main>`;
}

function App() {
  const [state, setState] = useState("loading");
  const load = async (usesToken) => {
    const answer = await fetch("/v1/openapi.json");
    if (answer.status === 401) return setState("login");
    spec = { ...(await answer.json()), usesToken };
    return setState("ready");
  };
  useEffect(() => { load(false); }, []);
  useEffect(() => { if (state === "ready" && location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView(); }, [state]);
  if (state === "login") return html`<${Login} onDone=${() => load(true)} />`;
  return state === "ready" ? html`<${Docs} />` : html`<p class="loading">Loading</p>`;
}

const theme = localStorage.getItem("theme");
if (theme && theme !== "auto") document.documentElement.dataset.theme = theme;
render(html`<${App} />`, document.getElementById("docs"));
