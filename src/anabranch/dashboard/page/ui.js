// Small parts that every view uses, and how numbers, times and places are written.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { reason, store } from "./store.js";

export const number = (value) => (value === null || value === undefined || value < 0 ? "–" : value.toLocaleString("en"));

export function rate(value) {
  return value >= 100 ? Math.round(value).toLocaleString("en") : value >= 10 ? value.toFixed(0) : value.toFixed(1);
}

export function millis(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10000 ? 0 : 1)} s`;
  return value >= 10 ? `${value.toFixed(0)} ms` : `${value.toFixed(value >= 1 ? 1 : 2)} ms`;
}

export function span(seconds) {
  if (seconds < 0) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export function timeOfDay(at, digits = 0) {
  if (store.day === null) return "";
  const date = new Date((at + store.day) * 1000);
  const text = date.toLocaleTimeString("en-GB", { hour12: false });
  return digits ? `${text}.${String(Math.floor(date.getMilliseconds() / 10 ** (3 - digits))).padStart(digits, "0")}` : text;
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function nodeColor(id) {
  return id < 0 ? "var(--muted)" : `var(--n${(id - 1 + 80) % 8})`;
}

export function Node({ id, title }) {
  if (id < 0) return html`<span class="node none" title="no leader">none</span>`;
  return html`<span class="node" style=${`--of:${nodeColor(id)}`} title=${title || `node ${id}`}>${id}</span>`;
}

export function Pill({ kind = "", children, title }) {
  return html`<span class=${`pill ${kind}`} title=${title}>${children}</span>`;
}

// A button that is disabled, with the reason, where this kind of cluster cannot serve the request `needs`, or `refused` says why.
export function Act({ needs, refused, children, ...rest }) {
  const why = refused || reason(needs);
  return html`<button ...${rest} disabled=${Boolean(why) || rest.disabled} title=${why || rest.title} aria-description=${why || undefined}>${children}</button>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><${River} /><h2>${title}</h2><p>${children}</p></div>`;
}

function River() {
  return html`<svg viewBox="0 0 120 40" width="120" height="40" aria-hidden="true" class="brook">
    <path d="M4 20c24 0 22-13 44-13s26 13 68 13" /><path d="M4 20c24 0 22 13 44 13s26-13 68-13" />
  </svg>`;
}

export function Panel({ title, side, children, label, cls = "" }) {
  return html`<section class=${`panel ${cls}`} aria-label=${label || title}>
    ${title && html`<header><h2>${title}</h2>${side && html`<div class="side">${side}</div>`}</header>`}
    ${children}
  </section>`;
}

export function Stat({ name, value, kind = "", hint }) {
  return html`<div class=${`stat ${kind}`} title=${hint}><dt>${name}</dt><dd>${value}</dd></div>`;
}

export function Dialog({ title, onClose, children, wide }) {
  const box = useRef();
  useEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    if (!dialog.open) dialog.showModal();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  return html`<dialog ref=${box} class=${wide ? "wide" : ""} aria-label=${title} onCancel=${(event) => { event.preventDefault(); onClose(); }}
    onClick=${(event) => event.target === box.current && onClose()}>
    <div class="inside"><header><h2>${title}</h2><button class="quiet" aria-label="Close" onClick=${onClose}>✕</button></header>${children}</div>
  </dialog>`;
}

const STEP = 8; // rows that come and go together

// Something tall of which there are many: drawn while it is near what can be seen, else a blank as tall as it was.
export function Near({ render, height = 160 }) {
  const box = useRef();
  const [near, setNear] = useState(false);
  const tall = useRef(height);
  useEffect(() => {
    const watch = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting && box.current.firstElementChild) tall.current = box.current.offsetHeight;
      setNear(entry.isIntersecting);
    }, { root: document.querySelector("main"), rootMargin: "300px" });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return html`<div ref=${box} style=${near ? "" : `height:${tall.current}px`}>${near ? render() : null}</div>`;
}

// A list of which only those rows are drawn that can be seen: thousands cost what thirty cost.
export function Long({ count, height, render, label, cls = "" }) {
  const box = useRef();
  const [place, setPlace] = useState({ from: 0, to: 40 });
  useLayoutEffect(() => {
    const scroller = document.querySelector("main");
    let asked = 0;
    const look = () => {
      asked = 0;
      if (!box.current) return;
      const top = scroller.getBoundingClientRect().top - box.current.getBoundingClientRect().top;
      const from = Math.max(0, (Math.floor(top / height / STEP) - 1) * STEP);
      const to = Math.max(from, (Math.ceil((top + scroller.clientHeight) / height / STEP) + 1) * STEP);
      setPlace((was) => (was.from === from && was.to === to ? was : { from, to }));
    };
    const ask = () => (asked = asked || requestAnimationFrame(look));
    look();
    scroller.addEventListener("scroll", ask, { passive: true });
    addEventListener("resize", ask);
    return () => {
      scroller.removeEventListener("scroll", ask);
      removeEventListener("resize", ask);
      cancelAnimationFrame(asked);
    };
  }, [count, height]);
  const to = Math.min(count, place.to);
  const rows = [];
  for (let at = Math.min(place.from, to); at < to; at++) {
    rows.push(html`<div class="row" role="listitem" key=${at} style=${`top:${at * height}px;height:${height}px`}>${render(at)}</div>`);
  }
  return html`<div class=${`long ${cls}`} role="list" aria-label=${label} ref=${box} style=${`height:${count * height}px`}>${rows}</div>`;
}

export function useTick(period) {
  const [, setTick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setTick((tick) => tick + 1), period);
    return () => clearInterval(timer);
  }, [period]);
}
