// A failover, driven by the client that openapi-typescript made of the control plane's OpenAPI: `npm start`.
import createClient from "openapi-fetch";
import type { components, paths } from "./control.js";

type Content = components["schemas"]["RecordRow"]["value"];

const token = process.env.ANABRANCH_TOKEN;
const control = createClient<paths>({
  baseUrl: process.env.ANABRANCH_CONTROL ?? "http://127.0.0.1:9190",
  headers: token ? { Authorization: `Bearer ${token}` } : {},
});

/** What was answered; a refusal becomes an Error with its text. */
async function answered<T>(asked: Promise<{ data?: T; error?: { error: string } }>): Promise<T> {
  const { data, error } = await asked;
  if (error !== undefined || data === undefined) throw new Error(error?.error ?? "no answer");
  return data;
}

const text = (content: Content): string =>
  content === null ? "null" : typeof content === "string" ? content : `base64 ${content.base64}`;

const topic = `orders-${process.pid}`;
const made = await answered(control.POST("/v1/topics", { body: { topic, partitions: 1, replicas: 3 } }));
const leader = made.partitions[0]?.leader ?? -1;
await answered(control.GET("/v1/wait", { params: { query: { topic, isr: "3+", timeout: 30 } } }));
console.log(`node ${leader} leads ${topic}`);

await answered(control.POST("/v1/nodes/{node}/kill", { params: { path: { node: leader } } }));
await answered(control.GET("/v1/wait", { params: { query: { topic, timeout: 30 } } }));
const records = [{ key: "alice", value: "created", headers: [["source", "shop"]] }, { key: "alice", value: { base64: "/wAB" } }];
const stored = await answered(control.POST("/v1/topics/{topic}/records", { params: { path: { topic } }, body: { records } }));
await answered(control.POST("/v1/nodes/{node}/start", { params: { path: { node: leader } } }));

const read = await answered(control.GET("/v1/topics/{topic}/records", { params: { path: { topic }, query: { partition: 0 } } }));
for (const one of read.records) console.log(`${one.offset}: ${text(one.value)}`);
const state = await answered(control.GET("/v1/state"));
const rows = await answered(control.GET("/v1/watch"));
const events = await answered(control.GET("/v1/events", { params: { query: { after: 0 } } }));
const killed = events.some((one) => one.kind === "node killed" && one.node === leader);
console.log(`${state.nodes.length} nodes, ${Object.keys(rows.rows).length > 0 ? "rows" : "no rows"}, node killed: ${killed}`);

const refused = await control.GET("/v1/topics/{topic}", { params: { path: { topic: "nowhere" } } });
console.log(`refused: ${refused.error?.error}`);
await answered(control.DELETE("/v1/topics/{topic}", { params: { path: { topic } } }));
if (stored.length !== 2 || read.records.length !== 2) throw new Error("a record is missing");
