// @platformatic/kafka: sends records to a topic and reads all that it has in a group. Prints what it has read as JSON.
import path from "node:path";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const installed = path.join(here, "../../../../build/interop/platformatic/package.json");
const kafka = await import(createRequire(installed).resolve("@platformatic/kafka"));
const [servers, topic, count] = process.argv.slice(2);
const common = { clientId: "interop", bootstrapBrokers: servers.split(","), timeout: 20000, retries: 10 };

const producer = new kafka.Producer({ ...common, serializers: kafka.stringSerializers });
for (let number = 0; number < Number(count); number += 1) {
  await producer.send({ acks: -1, messages: [{ topic, key: `key-${number % 7}`, value: `${number}` }] });
}
await producer.close();

const consumer = new kafka.Consumer({ ...common, groupId: `${topic}-readers`, deserializers: kafka.stringDeserializers });
const stream = await consumer.consume({ topics: [topic], mode: "earliest", autocommit: true });
const read = [];
for await (const message of stream) {
  read.push([message.key, message.value]);
  if (read.length === Number(count)) break;
}
await consumer.close(true);
process.stdout.write(JSON.stringify(read));
