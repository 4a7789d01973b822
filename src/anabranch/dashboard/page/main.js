// The frame of the page: where one is, what the link does, and the timeline below everything.
import { act, Done } from "./act.js";
import { html, render, useEffect, useRef, useState } from "./lib.js";
import { connect, goTo, onChange, reason, store } from "./store.js";
import { Timeline } from "./timeline.js";
import { Empty, plural, timeOfDay } from "./ui.js";
import { Access } from "./views/access.js";
import { Cluster } from "./views/cluster.js";
import { Events } from "./views/events.js";
import { Groups } from "./views/groups.js";
import { Lineage } from "./views/lineage.js";
import { Rules } from "./views/rules.js";
import { Topics } from "./views/topics.js";
import { TourBar, Tours } from "./views/tour.js";
import { Traffic } from "./views/traffic.js";
import { Transactions } from "./views/transactions.js";
import { Znodes } from "./views/znodes.js";

const VIEWS = [
  ["cluster", "Cluster", Cluster],
  ["topics", "Topics", Topics, () => store.of("topic").size],
  ["lineage", "Lineage", Lineage],
  ["groups", "Groups", Groups, () => store.of("group").size],
  ["transactions", "Transactions", Transactions, () => store.of("transaction").size],
  ["traffic", "Traffic", Traffic],
  ["rules", "Rules", Rules, () => store.of("rule").size],
  ["events", "Events", Events],
  ["access", "Access", Access],
  ["zookeeper", "ZooKeeper", Znodes, null, "GET /v1/zookeeper"],
  ["tour", "Tour", Tours, null, "POST /v1/tour/{story}"],
];

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone "%", typed by hand
  }
}

function here() {
  const [name, ...rest] = location.hash.slice(2).split("/");
  return { name: VIEWS.some(([one]) => one === name) ? name : "cluster", rest: decoded(rest.join("/")) };
}

function Login() {
  const [error, setError] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token");
    const entry = await act({ title: "Log in", path: "/v1/login", body: { token }, quiet: true });
    if (entry.state === "done") connect();
    else setError(entry.error);
  };
  return html`<main class="login"><form class="panel grid" onSubmit=${submit}>
    <h1>Anabranch</h1><p class="muted">This control plane asks for the token that was given by <code>--control-token</code>.</p>
    <label>Token<input name="token" type="password" autocomplete="current-password" required autofocus /></label>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <div class="buttons"><button class="primary">Show the cluster</button></div>
  </form></main>`;
}

function theme() {
  return localStorage.getItem("theme") || "auto";
}

function useTheme() {
  const [name, setName] = useState(theme());
  useEffect(() => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    localStorage.setItem("theme", name);
  }, [name]);
  return [name, () => setName({ auto: "dark", dark: "light", light: "auto" }[name])];
}

function Banner() {
  if (store.link === "lost")
    return html`<div class="banner bad" role="alert">The connection to the cluster is lost. What you see is from ${timeOfDay(store.now)}. Trying again every second.</div>`;
  if (store.at !== null)
    return html`<div class="banner" role="status">This is how it was at ${timeOfDay(store.at, 1)}; actions happen now. <button class="small" onClick=${() => goTo(null)}>Back to now</button></div>`;
  return null;
}

// On a phone the views are a row that scrolls: the current one is in sight, and an edge fades where there are more.
function useNavigation(name) {
  const nav = useRef();
  useEffect(() => {
    nav.current?.querySelector('[aria-current="page"]')?.scrollIntoView({ inline: "center", block: "nearest" });
  }, [name]);
  useEffect(() => {
    const row = nav.current;
    if (!row) return undefined;
    const look = () => {
      row.classList.toggle("before", row.scrollLeft > 1);
      row.classList.toggle("after", row.scrollLeft + row.clientWidth < row.scrollWidth - 1);
    };
    const size = new ResizeObserver(look);
    size.observe(row);
    row.addEventListener("scroll", look, { passive: true });
    return () => { size.disconnect(); row.removeEventListener("scroll", look); };
  }, [store.link === "locked"]);
  return nav;
}

function Frame() {
  const [, draw] = useState(0);
  const [place, setPlace] = useState(here());
  const [name, turn] = useTheme();
  useEffect(() => onChange(() => draw(store.version)), []);
  useEffect(() => {
    const moved = () => { setPlace(here()); document.querySelector("main")?.scrollTo(0, 0); };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const nav = useNavigation(place.name);
  if (store.link === "locked") return html`<${Login} />`;
  const [, title, View, , needs] = VIEWS.find(([one]) => one === place.name);
  const why = needs && reason(needs);
  document.title = `${title} · Anabranch`;
  const dead = [...store.of("node").values()].filter((one) => one.state !== "alive").length;
  return html`<div class="frame">
    <nav aria-label="Views" ref=${nav}>
      <div class="brand"><img src="/dashboard/mark.svg" alt="" /><span>Anabranch</span></div>
      ${VIEWS.map(([one, label, , count, needed]) => {
        const off = needed && reason(needed);
        const shown = one === "cluster" && dead ? html`<span class="count bad" title=${`${plural(dead, "node")} down`}>${dead} down</span>` : count && count() ? html`<span class="count">${count().toLocaleString("en")}</span>` : null;
        return html`<a key=${one} href=${`#/${one}`} aria-current=${one === place.name ? "page" : undefined} class=${off ? "off" : ""} title=${off || undefined}>${label}${shown}</a>`;
      })}
      <div class="foot">
        <span><i class=${`dot ${store.link === "live" ? "alive" : store.link === "lost" ? "dead" : ""}`}></i> ${{ live: "live", lost: "connection lost", connecting: "connecting" }[store.link]}</span>
        <button onClick=${turn} title="Colours: as the system has them, dark, or light">${{ auto: "◐ as the system", dark: "● dark", light: "○ light" }[name]}</button>
      </div>
    </nav>
    <main tabindex="0" aria-label=${title}>
      <${TourBar} />
      <${Banner} />
      ${store.link === "connecting" && !store.of("node").size ? html`<p class="muted">Connecting…</p>` : why ? html`<div class="title"><h1>${title}</h1></div><${Empty} title="Not possible with this kind of cluster">${why}<//>` : html`<${View} rest=${place.rest} />`}
    </main>
    <${Timeline} />
    <${Done} />
  </div>`;
}

render(html`<${Frame} />`, document.getElementById("app"));
connect();
