// The application that is tested: a shop that takes orders, and tills that bill each order once.
//
// A till reads `orders` and writes `payments`, and what it cannot read to `orders.dead`, in one transaction with the
// offset up to which it has read: whatever breaks, an order is billed once.

import { type Consumer, Kafka, type KafkaMessage, logLevel, type Producer } from 'kafkajs'

const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 40 }

export const connected = (servers: string[], clientId: string) =>
  new Kafka({ brokers: servers, clientId, retry, logLevel: logLevel.NOTHING })

export class NotPlaced extends Error {}

/** Takes orders. */
export class Shop {
  readonly producer: Producer

  constructor(servers: string[]) {
    this.producer = connected(servers, 'shop').producer({ idempotent: true, maxInFlightRequests: 1, metadataMaxAge: 500 })
  }

  open = () => this.producer.connect()
  close = () => this.producer.disconnect()

  /** Place an order, and return its offset. NotPlaced if it is not known in time whether it has arrived. */
  async place(customer: string, amount: number, patienceMs = 30_000): Promise<number> {
    const messages = [{ key: customer, value: JSON.stringify({ customer, amount }) }]
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new NotPlaced(customer)), patienceMs)
    })
    try {
      const [placed] = await Promise.race([this.producer.send({ topic: 'orders', acks: -1, messages }), late])
      return Number(placed?.baseOffset)
    } finally {
      clearTimeout(timer)
    }
  }
}

/** Bills orders; several tills share the work. */
export class Till {
  billed = 0
  private readonly consumer: Consumer
  private readonly producer: Producer
  private waiting: { until: number; done: () => void }[] = []

  constructor(
    servers: string[],
    readonly name = 'till-1',
    private readonly diesBeforeCommit = false,
  ) {
    const kafka = connected(servers, name)
    this.producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1, metadataMaxAge: 500 })
    this.consumer = kafka.consumer({
      groupId: 'tills',
      metadataMaxAge: 500,
      heartbeatInterval: 200,
      maxWaitTimeInMs: 100,
      retry,
    })
  }

  async open(): Promise<this> {
    await this.producer.connect()
    await this.consumer.connect()
    await this.consumer.subscribe({ topic: 'orders', fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: ({ topic, partition, message }) => this.bill(topic, partition, message),
    })
    return this
  }

  /** Resolves when so many orders have been billed since the till was opened. */
  until(orders: number): Promise<void> {
    return new Promise((done) => {
      this.waiting.push({ until: orders, done })
      this.tell()
    })
  }

  /** Hand the partitions over. */
  async close(): Promise<void> {
    await this.consumer.disconnect()
    await this.producer.disconnect()
  }

  private async bill(topic: string, partition: number, message: KafkaMessage): Promise<void> {
    const transaction = await this.producer.transaction()
    try {
      await transaction.send({ topic: target(message.value), messages: [{ key: message.key, value: message.value }] })
      if (!this.diesBeforeCommit) {
        const offset = `${BigInt(message.offset) + 1n}`
        await transaction.sendOffsets({ consumerGroupId: 'tills', topics: [{ topic, partitions: [{ partition, offset }] }] })
        await transaction.commit()
      }
    } catch (error) {
      if (transaction.isActive()) await transaction.abort()
      throw error // the order is read again
    }
    this.billed += 1
    this.tell()
  }

  private tell(): void {
    for (const one of this.waiting) if (this.billed >= one.until) one.done()
  }
}

function target(value: Buffer | null): string {
  try {
    const order = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(value ?? undefined))
    return typeof order.amount === 'number' ? 'payments' : 'orders.dead'
  } catch {
    return 'orders.dead'
  }
}

/** So much of what a topic has, as who comes last would read it. */
export async function read(servers: string[], topic: string, count: number): Promise<string[]> {
  const consumer = connected(servers, 'reads').consumer({ groupId: `reads-${topic}-${Math.random()}`, maxWaitTimeInMs: 100 })
  const values: string[] = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let late: NodeJS.Timeout | undefined
  try {
    await new Promise<void>((done, fail) => {
      late = setTimeout(() => fail(new Error(`${topic} has ${values.length}, and not ${count}`)), 30_000)
      const eachMessage = async ({ message }: { message: KafkaMessage }) => {
        values.push(`${message.value}`)
        if (values.length === count) done()
      }
      void consumer.run({ autoCommit: false, eachMessage })
    })
  } finally {
    clearTimeout(late)
    await consumer.disconnect()
  }
  return values
}
