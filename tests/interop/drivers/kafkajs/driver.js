// kafkajs. The commands and what they tell: see ../common.py.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const installed = path.join(__dirname, "../../../../build/interop/kafkajs/node_modules");
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require(path.join(installed, "kafkajs"));
CompressionCodecs[CompressionTypes.Snappy] = require(path.join(installed, "kafkajs-snappy"));

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
const KEYS = 7;
const [command, given] = process.argv.slice(2);
const asked = JSON.parse(given);
const kafka = new Kafka({
  clientId: "interop",
  brokers: (asked.servers || "none:1").split(","),
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 30 },
});
const stopped = new Promise((resolve) => process.stdin.on("end", resolve).resume());
let over = false;
stopped.then(() => (over = true));

const emit = (event, fields = {}) => process.stdout.write(JSON.stringify({ event, ...fields }) + "\n");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const record = (number) => ({ key: `key-${number % KEYS}`, value: String(number).padStart(8, "0") });
const range = (first, count) => Array.from({ length: count }, (_, place) => first + place);

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const first = asked.first || 0;
  for (let number = first; !over && (!asked.count || number < first + asked.count); ) {
    // One record per call while brokers get killed: kafkajs 2.2.4 reports success for what it has not sent when, between
    // two tries of one call, a partition moves to a broker that has answered for its own partitions already.
    const size = asked.count ? Math.min(20, first + asked.count - number) : 1;
    await sendOf(producer, range(number, size).map(record));
    number += size;
    if (asked.pace_ms) await pause(asked.pace_ms * size);
  }
  await producer.disconnect();
}

async function sendOf(producer, messages) {
  try {
    await producer.send({ topic: asked.topic, acks: -1, compression: CODECS[asked.codec || "none"], messages });
    for (const one of messages) emit("acked", { value: one.value });
  } catch (error) {
    for (const one of messages) emit("failed", { value: one.value, error: error.type || error.name });
  }
}

async function consume() {
  const consumer = kafka.consumer({
    groupId: asked.group,
    sessionTimeout: asked.session_ms || 30000,
    heartbeatInterval: 500,
    rebalanceTimeout: 60000,
    metadataMaxAge: 1000,
    maxWaitTimeInMs: 500,
    readUncommitted: asked.isolation !== "read_committed",
  });
  let owned = [];
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    if (owned.length) emit("revoked", { partitions: owned });
    owned = payload.memberAssignment[asked.topic] || [];
    emit("assigned", { partitions: owned });
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => emit("crashed", { error: payload.error.message }));
  await consumer.connect();
  await consumer.subscribe({ topic: asked.topic, fromBeginning: true });
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ partition, message }) =>
      emit("record", {
        partition,
        offset: Number(message.offset),
        key: message.key.toString(),
        value: message.value.toString(),
      }),
  });
  await stopped;
  await consumer.disconnect();
}

async function transact() {
  const producer = kafka.producer({ transactionalId: asked.transactional_id, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  for (const number of range(0, asked.transactions)) {
    const messages = range(number * asked.per, asked.per).map(record);
    const transaction = await producer.transaction();
    await transaction.send({ topic: asked.topic, messages });
    await (number % 2 ? transaction.abort() : transaction.commit());
    emit(number % 2 ? "aborted" : "committed", { values: messages.map((one) => one.value) });
  }
  await producer.disconnect();
}

async function admin() {
  const client = kafka.admin();
  await client.connect();
  const resources = [{ type: 2, name: asked.topic, configNames: ["retention.ms"] }];
  // Any broker is asked, also one that has not heard of the topic yet.
  const retention = async () => {
    try {
      return (await client.describeConfigs({ resources, includeSynonyms: false })).resources[0].configEntries[0].configValue;
    } catch (error) {
      if (error.type !== "UNKNOWN_TOPIC_OR_PARTITION") throw error;
      return null;
    }
  };
  const partitions = async () =>
    (await client.fetchTopicMetadata({ topics: [asked.topic] })).topics[0].partitions.length;
  const configEntries = [{ name: "retention.ms", value: "60000" }];
  await client.createTopics({
    topics: [{ topic: asked.topic, numPartitions: 2, replicationFactor: 3, configEntries }],
  });
  while ((await partitions()) !== 2);
  emit("step", { name: "create", seen: 2 });
  let value;
  while ((value = await retention()) === null);
  emit("step", { name: "describe", seen: value });
  const changed = [{ name: "retention.ms", value: "120000" }];
  await client.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: asked.topic, configEntries: changed }] });
  while ((value = await retention()) !== "120000");
  emit("step", { name: "alter", seen: value });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: asked.topic, messages: range(0, 5).map(() => ({ value: "x", partition: 1 })) });
  await producer.disconnect();
  await client.deleteTopicRecords({ topic: asked.topic, partitions: [{ partition: 1, offset: "2" }] });
  const offsets = await client.fetchTopicOffsets(asked.topic);
  emit("step", { name: "delete records", seen: Number(offsets.find((one) => one.partition === 1).low) });
  await client.createPartitions({ topicPartitions: [{ topic: asked.topic, count: 4 }] });
  while ((await partitions()) !== 4);
  emit("step", { name: "grow", seen: 4 });
  await client.deleteTopics({ topics: [asked.topic] });
  while ((await client.listTopics()).includes(asked.topic));
  emit("step", { name: "delete", seen: null });
  await client.disconnect();
}

async function through(door) {
  const said = [];
  const tls = door.protocol.endsWith("SSL");
  const identity = door.identity && fs.readFileSync(door.identity);
  const login = door.token
    ? { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: door.token }) }
    : { mechanism: door.mechanism, username: door.user, password: door.password };
  const client = new Kafka({
    clientId: "interop",
    brokers: door.servers.split(","),
    logLevel: logLevel.ERROR,
    logCreator: () => ({ log }) => said.push(log.error || log.message),
    ssl: tls && { ca: [fs.readFileSync(door.ca)], ...(identity ? { cert: identity, key: identity } : {}) },
    ...(door.protocol.startsWith("SASL") ? { sasl: login } : {}),
    retry: { retries: door.patience_s ? 1 : 10 },
  });
  const producer = client.producer();
  const consumer = client.consumer({ groupId: door.name });
  const value = `by ${door.name}`;
  try {
    await producer.connect();
    await producer.send({ topic: asked.topic, messages: [{ value }] });
    await consumer.connect();
    await consumer.subscribe({ topic: asked.topic, fromBeginning: true });
    await new Promise((resolve, reject) => {
      const eachMessage = async ({ message }) => message.value.toString() === value && resolve();
      consumer.run({ eachMessage }).catch(reject);
    });
    emit("in", { door: door.name });
  } catch (error) {
    emit("out", { door: door.name, error: `${error.name}: ${error.message}; ${said}` });
  } finally {
    await producer.disconnect();
    await consumer.disconnect();
  }
}

async function doors() {
  for (const door of asked.doors) await through(door);
}

({ produce, consume, transact, admin, doors })[command]().then(
  () => {
    emit("done");
    process.exit(0);
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
