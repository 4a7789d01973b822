// Requests a second and how long they take, by API: drawn for the last minutes, and as a table of the last seconds.
import { html, useEffect, useRef } from "../lib.js";
import { columnsOf, gapsOf, lastOf } from "../series.js";
import { store } from "../store.js";
import { Empty, millis, Panel, rate, span, timeOfDay } from "../ui.js";

const COLORS = ["--n0", "--n1", "--n2", "--n3", "--n4", "--n5", "--n6", "--n7"];
const SHOWN = 6;
const WINDOW_S = 300;
const TABLE_S = 5;

function rows() {
  const newest = store.traffic[store.traffic.length - 1]?.at ?? 0;
  return lastOf(store.traffic, store.at ?? newest, WINDOW_S);
}

function busiest(found) {
  const sums = {};
  for (const one of found) for (const api in one.apis) sums[api] = (sums[api] || 0) + one.apis[api][0];
  return Object.keys(sums).sort((a, b) => sums[b] - sums[a] || a.localeCompare(b));
}

export function Traffic() {
  const found = rows();
  const apis = busiest(found);
  if (!apis.length) return html`<div class="title"><h1>Traffic</h1></div><${Empty} title="No requests yet">Requests are timed while a page is open; nobody has asked anything since.<//>`;
  const last = lastOf(found, found[found.length - 1].at, TABLE_S + 0.5);
  const seconds = last.reduce((sum, one) => sum + one.span, 0) || 1;
  const top = apis.slice(0, SHOWN);
  const shown = `${timeOfDay(found[0].at - found[0].span)} to ${timeOfDay(found[found.length - 1].at)}`;
  const missing = gapsOf(found).reduce((sum, [from, to]) => sum + to - from, 0);
  return html`<div class="title"><h1>Traffic</h1><span class="lead">${shown}${missing ? `; ${span(missing)} of it without a page, so not measured` : ""}</span></div>
    <div class="grid two">
      <${Panel} title=${`Requests a second, ${shown}`} label="Requests a second"><${Plot} found=${found} apis=${top} of=${([count], span) => count / span} write=${rate} label="Requests a second by API" /><//>
      <${Panel} title=${`Milliseconds of work, ${shown}`} label="Milliseconds of work"><${Plot} found=${found} apis=${top} of=${([count, , work]) => (count ? work : null)} write=${(value) => value.toFixed(value >= 10 ? 0 : 2)} label="Milliseconds of work by API" /><//>
    </div>
    <div style="height:14px"></div><${Panel} title=${`By API, ${timeOfDay(last[0].at - last[0].span)} to ${timeOfDay(last[last.length - 1].at)}`} label="By API"><div class="scroll"><table><thead><tr><th>API</th><th class="num">a second</th><th class="num" title="until the answer, or the first wait">work</th><th class="num">in all</th><th class="num">longest</th><th>share of all requests</th></tr></thead><tbody>
      ${apis.map((api) => {
        let count = 0, all = 0, work = 0, longest = 0, everything = 0;
        for (const one of last) {
          for (const other in one.apis) everything += one.apis[other][0];
          const row = one.apis[api];
          if (row) { count += row[0]; all += row[0] * row[1]; work += row[0] * row[2]; longest = Math.max(longest, row[3]); }
        }
        return html`<tr key=${api}><td><i class="swatch" style=${`--of:${top.includes(api) ? `var(${COLORS[top.indexOf(api)]})` : "var(--line-strong)"};margin-right:8px`}></i>${api}</td><td class="num">${rate(count / seconds)}</td><td class="num">${count ? millis(work / count) : "–"}</td><td class="num">${count ? millis(all / count) : "–"}</td><td class="num">${count ? millis(longest) : "–"}</td>
          <td style="width:34%"><div class="bar"><i style=${`width:${everything ? (count / everything) * 100 : 0}%`}></i></div></td></tr>`;
      })}</tbody></table></div><//>`;
}

function Plot({ found, apis, of, write, label }) {
  const box = useRef();
  const plot = useRef();
  const key = apis.join() + document.documentElement.dataset.theme;
  useEffect(() => {
    const style = getComputedStyle(box.current);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, font: "11px system-ui, sans-serif" };
    plot.current = new uPlot({
      width: Math.max(200, box.current.clientWidth), height: 230, cursor: { y: false }, legend: { live: false },
      scales: { x: { time: false } }, hooks: { drawClear: [(chart) => shade(chart, color("--sunken"))] },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((one) => timeOfDay(one)), space: 90 }, { ...axis, size: 48, values: (_, ticks) => ticks.map((one) => one.toLocaleString("en")) }],
      series: [{ label: "time", value: (_, one) => (one === null ? "" : timeOfDay(one)) }, ...apis.map((api, at) => ({ label: api, stroke: color(COLORS[at]), width: 1.6, points: { show: false }, value: (_, one) => (one === null ? "–" : write(one)) }))],
    }, [[], ...apis.map(() => [])], box.current);
    const size = new ResizeObserver(() => box.current && plot.current?.setSize({ width: Math.max(200, box.current.clientWidth), height: 230 }));
    size.observe(box.current);
    return () => { size.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [key]);
  useEffect(() => {
    if (!plot.current) return;
    plot.current.gaps = gapsOf(found);
    plot.current.setData(columnsOf(found, (one) => apis.map((api) => of(one.apis[api] ?? [0, 0, 0, 0], one.span))));
  });
  return html`<div ref=${box} role="img" aria-label=${`${label}: ${apis.join(", ")}; the table below has the numbers`}></div>`;
}

function shade(chart, color) {
  const { left, top, width, height } = chart.bbox;
  chart.ctx.fillStyle = color;
  for (const [from, to] of chart.gaps ?? []) {
    const [x, end] = [chart.valToPos(from, "x", true), chart.valToPos(to, "x", true)];
    chart.ctx.fillRect(Math.max(left, x), top, Math.min(left + width, end) - Math.max(left, x), height);
  }
}
