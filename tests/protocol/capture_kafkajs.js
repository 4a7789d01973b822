// What kafkajs does while its frames are recorded; see capture.py. Run in a directory that has kafkajs.
const { Kafka, CompressionTypes, logLevel } = require(process.cwd() + '/node_modules/kafkajs')

const kafka = new Kafka({ clientId: 'golden-js', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
const topic = 'flights-js'
const quietly = work => work().catch(error => console.log('  ' + error.name + ': ' + error.message.slice(0, 160)))

async function main () {
  const admin = kafka.admin()
  await admin.connect()
  await quietly(() => admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] }))
  const producer = kafka.producer({ transactionalId: 'golden-js', maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  await quietly(async () => {
    const transaction = await producer.transaction()
    const messages = [{ key: 'N14228', value: 'UA1545', headers: { leg: 'EWR' } }]
    await transaction.send({ topic, compression: CompressionTypes.GZIP, messages })
    await transaction.sendOffsets({ consumerGroupId: 'golden-js', topics: [{ topic, partitions: [{ partition: 0, offset: '0' }] }] })
    await transaction.commit()
  })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: 'golden-js-2', sessionTimeout: 10000, heartbeatInterval: 500 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await Promise.race([
    new Promise(resolve => consumer.run({ eachMessage: async () => setTimeout(resolve, 1500) })),
    new Promise(resolve => setTimeout(resolve, 10000))
  ])
  await quietly(() => consumer.commitOffsets([{ topic, partition: 0, offset: '1' }]))
  await quietly(() => admin.listGroups())
  await quietly(() => admin.describeGroups(['golden-js-2']))
  await quietly(() => admin.fetchOffsets({ groupId: 'golden-js-2', topics: [topic] }))
  await consumer.disconnect()
  await quietly(() => admin.fetchTopicOffsets(topic))
  await quietly(() => admin.describeCluster())
  await quietly(() => admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] }))
  await quietly(() => admin.describeConfigs({ resources: [{ type: 2, name: topic }] }))
  await quietly(() => admin.alterConfigs({ resources: [{ type: 2, name: topic, configEntries: [{ name: 'retention.ms', value: '60000' }] }] }))
  await quietly(() => admin.deleteGroups(['golden-js-2']))
  await quietly(() => admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '-1' }] }))
  await quietly(() => admin.listPartitionReassignments({}))
  await quietly(() => admin.deleteTopics({ topics: [topic] }))
  await admin.disconnect()
}

main().then(() => process.exit(0), error => { console.log(error); process.exit(1) })
