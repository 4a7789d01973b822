// The strip below every view: what happened, drawn by kind; the moment that is shown can be dragged back and forth.
import { html, useEffect, useRef, useState } from "./lib.js";
import { goTo, store } from "./store.js";
import { ALL, familyOf, told } from "./kinds.js";
import { span, timeOfDay } from "./ui.js";

const SPANS = [60, 300, 900, 3600];

export function Timeline() {
  const canvas = useRef();
  const [width, setWidth] = useState(60);
  const [hover, setHover] = useState(null);
  const dragging = useRef(false);
  const now = store.clock0();
  const at = store.at ?? now;
  const begin = Math.max(now - width, store.begin ?? now);

  useEffect(() => {
    let frame = 0;
    const draw = () => (frame = requestAnimationFrame(() => paint(canvas.current, width)));
    const timer = setInterval(draw, 100); // ten times a second is smooth enough for a strip
    draw();
    return () => {
      clearInterval(timer);
      cancelAnimationFrame(frame);
    };
  }, [width]);

  const moment = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return store.clock0() - width + part * width;
  };
  const near = (event) => {
    const when = moment(event);
    const reach = width / 120;
    let best = null;
    for (const one of store.events) if (Math.abs(one.at - when) < reach && (!best || Math.abs(one.at - when) < Math.abs(best.at - when))) best = one;
    return best;
  };
  const move = (when) => goTo(when >= store.clock0() - width / 200 ? null : Math.max(when, store.begin ?? 0));
  const step = (seconds) => move((store.at ?? store.clock0()) + seconds);
  const keys = {
    ArrowLeft: () => step(-width / 60), ArrowRight: () => step(width / 60),
    PageUp: () => step(-width / 10), PageDown: () => step(width / 10),
    Home: () => move(begin), End: () => goTo(null),
  };
  return html`<section class="time" aria-label="Timeline">
    <div class="left">
      <span class=${`when ${store.at === null ? "" : "past"}`}>${timeOfDay(at, store.at === null ? 0 : 1)}</span>
      <button class="small" onClick=${() => goTo(store.at === null ? now : null)}>${store.at === null ? "❚❚ pause" : "▶ back to now"}</button>
    </div>
    <canvas ref=${canvas} tabindex="0" role="slider" aria-label="The moment that is shown" aria-valuemin=${Math.round(begin)} aria-valuemax=${Math.round(now)} aria-valuenow=${Math.round(at)}
      aria-valuetext=${store.at === null ? "now" : `${span(now - at)} ago`}
      onPointerDown=${(event) => { dragging.current = true; canvas.current.setPointerCapture(event.pointerId); move(moment(event)); }}
      onPointerMove=${(event) => { if (dragging.current) move(moment(event)); else setHover(near(event)); }}
      onPointerUp=${() => (dragging.current = false)} onPointerLeave=${() => setHover(null)}
      onKeyDown=${(event) => { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } }} title=${hover ? `${timeOfDay(hover.at, 1)} ${hover.kind}: ${told(hover)}` : ""}></canvas>
    <div class="right">
      <div class="spans" role="group" aria-label="How far back">${SPANS.map((one) => html`<button key=${one} aria-pressed=${one === width} onClick=${() => setWidth(one)}>${one < 3600 ? `${one / 60} min` : "1 h"}</button>`)}</div>
      <small>${store.at === null ? "drag to go back" : `${span(Math.max(0, now - at))} ago`}</small>
    </div>
  </section>`;
}

let colors = null;
let colored = "";

function palette(element) {
  const theme = document.documentElement.dataset.theme + String(matchMedia("(prefers-color-scheme: dark)").matches);
  if (colored !== theme) {
    colored = theme;
    const style = getComputedStyle(element);
    const of = (name) => style.getPropertyValue(name.slice(4, -1)).trim();
    colors = { families: new Map(ALL.map((one) => [one.name, of(one.color)])), line: of("var(--line-strong)"), text: of("var(--muted)"), accent: of("var(--accent)"), warn: of("var(--warn)") };
  }
  return colors;
}

function paint(canvas, width) {
  if (!canvas) return;
  const ratio = devicePixelRatio || 1;
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  const pen = canvas.getContext("2d");
  const { families, line, text, accent, warn } = palette(canvas);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, w, h);
  const now = store.clock0();
  const x = (at) => ((at - now + width) / width) * w;
  pen.font = "10.5px system-ui, sans-serif";
  const grain = width <= 60 ? 10 : width <= 300 ? 60 : width <= 900 ? 120 : 600;
  const offset = store.day ?? 0;
  for (let tick = Math.ceil((now - width + offset) / grain) * grain - offset; tick < now; tick += grain) {
    pen.fillStyle = line;
    pen.fillRect(Math.round(x(tick)), 0, 1, h - 13);
    pen.fillStyle = text;
    if (x(tick) + 52 < w) pen.fillText(timeOfDay(tick), Math.round(x(tick)) + 4, h - 3);
  }
  const rows = ALL.length;
  const height = (h - 16) / rows;
  let end = store.events.length;
  const buckets = new Set();
  while (end-- > 0) {
    const one = store.events[end];
    if (one.at < now - width) break;
    const family = familyOf(one.kind);
    const place = Math.round(x(one.at));
    const key = place * 16 + ALL.indexOf(family);
    if (buckets.has(key)) continue;
    buckets.add(key);
    pen.fillStyle = families.get(family.name);
    pen.fillRect(place - 1, 3 + ALL.indexOf(family) * height, 2.5, height - 1);
  }
  if (store.begin !== null && x(store.begin) > 0) {
    pen.fillStyle = line;
    pen.globalAlpha = 0.2;
    pen.fillRect(0, 0, x(store.begin), h - 13);
    pen.globalAlpha = 1;
  }
  const shown = Math.min(w - 1.5, Math.max(0, x(store.at ?? now)));
  pen.fillStyle = store.at === null ? accent : warn;
  pen.fillRect(shown - 1, 0, 2, h - 13);
  pen.beginPath();
  pen.arc(shown, 4, 4, 0, 7);
  pen.fill();
}
