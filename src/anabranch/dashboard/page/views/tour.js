// The guided tour: stories that drive this very cluster, step by step, and what to look at.
import { act, Snippet } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { changed } from "../store.js";
import { Empty } from "../ui.js";

const READ_PX = 30; // after scrolling this far the banner is one line, so that it covers less
const tour = { stories: null, told: null, busy: false, small: false };

async function look() {
  const answer = await fetch("/v1/tour").catch(() => null);
  if (!answer?.ok) return;
  const told = await answer.json();
  tour.stories = told.stories;
  tour.told = told.told?.over ? null : told.told;
  changed();
}

async function tell(path, method, title) {
  tour.busy = true;
  changed();
  const entry = await act({ title, path, method, quiet: true });
  tour.busy = false;
  if (entry.state === "done") {
    tour.told = method === "DELETE" ? null : entry.answer;
    tour.small = false;
    if (tour.told?.look) location.hash = `#/${tour.told.look}`;
  } else tour.told = { ...tour.told, over: true, broken: entry.error };
  changed();
}

function fold(small) {
  tour.small = small;
  changed();
}

const begin = (story) => tell(`/v1/tour/${story}`, "POST", "Begin a story");
const next = () => tell("/v1/tour/next", "POST", "Go on");
const end = () => tell("/v1/tour", "DELETE", "End the story");

export function TourBar() {
  useEffect(() => {
    look();
    const main = document.querySelector("main");
    const scrolled = () => main.scrollTop > READ_PX && !tour.small && fold(true);
    main.addEventListener("scroll", scrolled, { passive: true });
    return () => main.removeEventListener("scroll", scrolled);
  }, []);
  const told = tour.told;
  if (!told) return null;
  const over = told.over;
  const small = tour.small && !over;
  return html`<section class=${`tour ${small ? "one-line" : ""}`} aria-label="Tour" aria-live="polite">
    <header><strong>${told.title && !over ? told.title : over ? (told.broken ? "The story could not go on" : "The end") : ""}</strong>
      ${!over && html`<small>step ${told.number} of ${told.steps}</small>`}
      <span class="acts">${!over && html`<button aria-expanded=${!small} onClick=${() => fold(!small)}>${small ? "Show the step" : "Hide"}</button>`}${!over && told.look && html`<a href=${`#/${told.look}`}>what to look at</a>`}
        ${!over && html`<button class="primary" disabled=${tour.busy} onClick=${next}>${tour.busy ? "at work…" : told.number >= told.steps ? "Finish" : "Go on"}</button>`}
        <button disabled=${tour.busy} onClick=${end}>${over ? "Close" : "End the story"}</button></span></header>
    ${small ? null : html`${told.broken ? html`<p class="error">${told.broken}</p>` : over ? html`<p>The cluster is as it was before. <a href="#/tour">Choose another story</a>.</p>` : html`<p>${told.text}</p>`}
    ${!over && told.claims?.length > 0 && html`<ul class="claims">${told.claims.map((one) => html`<li key=${one.text}><span class=${one.holds ? "yes" : "no"}>${one.holds ? "✓" : "✗"}</span><span>${one.text}</span></li>`)}</ul>`}
    ${!over && told.deeds?.length > 0 && html`<details><summary>What was done (${told.deeds.length})</summary><div class="grid" style="margin-top:8px">${told.deeds.map((one, at) => html`<${Snippet} key=${`${told.number}-${at}`} entry=${{ ...one, body: one.body ?? undefined }} />`)}</div></details>`}`}
  </section>`;
}

export function Tours() {
  if (!tour.stories) return html`<div class="title"><h1>Tour</h1></div><${Empty} title="Looking for stories">One moment.<//>`;
  return html`<div class="title"><h1>Tour</h1><span class="lead">stories that do to this cluster what they tell, and check what they claim</span></div>
    <div class="stories">${tour.stories.map((one) => html`<button key=${one.story} class="story" disabled=${tour.busy} onClick=${() => begin(one.story)}><b>${one.title}</b><span>${one.summary}</span><small>${one.steps} steps</small></button>`)}</div>
    <p class="muted" style="margin-top:16px">A story makes topics whose names begin with <code>tour-</code>, kills and starts nodes, and moves the clock on. In a terminal: <code>anabranch tour</code>.</p>`;
}
export { useState };
