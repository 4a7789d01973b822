// The kinds of events, and how each is told in a line.
export const FAMILIES = [
  { name: "leaders", color: "var(--n0)", kinds: ["leader", "elected"] },
  { name: "ISR", color: "var(--n1)", kinds: ["isr"] },
  { name: "nodes", color: "var(--n4)", kinds: ["node killed", "node stopping", "node stopped", "node starting", "node started", "node frozen", "node thawed", "broker joined", "broker lost", "broker stopping", "broker restarted", "session expired", "session suspended", "session delayed", "session resumed"] },
  { name: "resizes", color: "var(--n2)", kinds: ["resize planned", "resize fenced", "resize published", "partition removed", "topic ordered"] },
  { name: "groups", color: "var(--n3)", kinds: ["rebalance", "gate closed", "gate opened"] },
  { name: "faults", color: "var(--n5)", kinds: ["fault", "chaos fault", "chaos verdict"] },
  { name: "slow", color: "var(--n7)", kinds: ["slow request"] },
];
const OTHERS = { name: "others", color: "var(--muted)", kinds: [] };
const BY_KIND = new Map(FAMILIES.flatMap((family) => family.kinds.map((kind) => [kind, family])));
export const familyOf = (kind) => BY_KIND.get(kind) || OTHERS;
export const ALL = [...FAMILIES, OTHERS];

const TOLD = {
  leader: (one) => `${one.topic}-${one.partition} is led by ${one.leader < 0 ? "nobody" : `node ${one.leader}`} in epoch ${one.leader_epoch}`,
  isr: (one) => `the ISR of ${one.topic}-${one.partition} is ${one.isr.join(", ")}`,
  elected: (one) => `node ${one.controller} is the controller, epoch ${one.epoch}`,
  "resize planned": (one) => `${one.topic} from ${one.from} to ${one.to} partitions, generation ${one.generation}`,
  "resize fenced": (one) => `${one.topic}: no leader serves a generation before ${one.generation}`,
  "resize published": (one) => `${one.topic}: generation ${one.generation} is what clients use`,
  rebalance: (one) => `${one.group} is ${one.state}, generation ${one.generation}, ${one.members} members`,
  "gate closed": (one) => `${one.group} may not read ${one.topic}-${one.partition} on from ${one.offset}`,
  "gate opened": (one) => `${one.group} reads ${one.topic}-${one.partition} on`,
  fault: (one) => `rule ${one.rule} hit ${one.api ? `${one.api} v${one.version} of ${one.client}` : "something"} at node ${one.node}`,
  "chaos fault": (one) => `${one.fault}: ${one.what}`,
  "chaos verdict": (one) => `${one.passed ? "passed" : "failed"}: ${one.violations} violations in ${one.checks} checks, after ${one.faults} faults${one.first.length ? `; the first: ${one.first[0]}` : ""}`,
  "slow request": (one) => `${one.api} of ${one.client} took ${one.ms.toLocaleString("en")} ms at node ${one.node}`,
};

export function told(event) {
  const teller = TOLD[event.kind];
  if (teller) return teller(event);
  return Object.entries(event)
    .filter(([name]) => !["number", "at", "kind", "controller", "epoch"].includes(name))
    .map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(", ") : typeof value === "object" && value ? JSON.stringify(value) : value}`)
    .join(", ");
}

// A line for events that `fold` put into one list, newest first.
export function toldAll(events) {
  const [newest] = events;
  if (events.length === 1) return told(newest);
  if (newest.kind === "slow request") {
    const longest = Math.max(...events.map((one) => one.ms));
    return `${newest.api} was slow ${events.length.toLocaleString("en")} times at node ${newest.node}, at most ${longest.toLocaleString("en")} ms`;
  }
  return `rule ${newest.rule} hit ${newest.api ?? "something"} ${events.length.toLocaleString("en")} times at node ${newest.node}`;
}
