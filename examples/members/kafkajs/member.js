// kafkajs as a member of a group that writes down what it is handed, for `anabranch.chaos run --member`.
//
//     npm ci --prefix examples/members/kafkajs
//     python -m anabranch.chaos run --duration 60 --member "kafkajs=node examples/members/kafkajs/member.js"
//
// The last four words are added by the run. The sequence of a record is what its value says behind the slash. A batch is
// committed after it was written down.
"use strict";

const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const [servers, topic, group, path] = process.argv.slice(2);
const file = fs.openSync(path, "a");
const kafka = new Kafka({
  clientId: `${group}-${process.pid}`,
  brokers: servers.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 30 },
});
const consumer = kafka.consumer({
  groupId: group,
  sessionTimeout: 6000,
  heartbeatInterval: 1000,
  metadataMaxAge: 1000,
  maxWaitTimeInMs: 500,
});

function line(partition, { key, value, offset }) {
  const sequence = value.toString().split("/").pop();
  return `{"key":"${key}","sequence":${sequence},"partition":${partition},"offset":${offset},"member":"${process.pid}"}\n`;
}

async function eachBatch({ batch, heartbeat }) {
  fs.writeSync(file, batch.messages.map((record) => line(batch.partition, record)).join(""));
  await heartbeat();
}

async function receive() {
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({ autoCommitInterval: 500, eachBatch });
}

function end(error) {
  console.error(error);
  process.exit(1); // the run starts another one
}

consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || end(payload.error));
process.on("SIGTERM", () => consumer.disconnect().finally(() => process.exit(0)));
receive().catch(end);
