// The guided tour: stories that drive this very cluster, step by step, and what to look at.
import { act } from "../act.js";
import { html, useEffect, useState } from "../lib.js";
import { Empty } from "../ui.js";

export function TourBar() { return null; }
export function Tours() { return html`<div class="title"><h1>Tour</h1></div><${Empty} title="No stories">There are none yet.<//>`; }
