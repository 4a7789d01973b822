// What the shop and its tills do when all is well, and what they do about each thing that can go wrong.

import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'

import { Control } from './control.js'
import { connected, NotPlaced, read, Shop, Till } from './shop.js'

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

const control = new Control()
let servers: string[]
let shop: Shop
let closing: (() => Promise<unknown>)[]

beforeEach(async () => {
  await control.reset()
  closing = []
  await control.topic('orders', 4)
  await control.topic('payments', 1)
  await control.topic('orders.dead', 1)
  servers = (await control.state()).nodes.map((node) => `${node.host}:${node.port}`)
  shop = new Shop(servers)
  await shop.open()
  closing.push(shop.close)
})

afterEach(async () => {
  for (const close of closing.reverse()) await close()
})

async function place(count: number): Promise<void> {
  for (let number = 0; number < count; number++) await shop.place(`customer-${number}`, number)
}

async function till(name = 'till-1', diesBeforeCommit = false): Promise<Till> {
  const opened = await new Till(servers, name, diesBeforeCommit).open()
  closing.push(() => opened.close())
  return opened
}

/** The topic has so many records that can be read, and no two of the same order. */
async function has(topic: string, count: number): Promise<void> {
  const values = await read(servers, topic, count)
  assert.equal(new Set(values).size, count, `${values}`)
}

async function leader(topic: string): Promise<number> {
  const found = (await control.state()).topics.find((one) => one.topic === topic)?.partitions[0]
  assert.ok(found)
  return found.leader
}

async function killed(node: number): Promise<void> {
  await control.node(node, 'kill')
  closing.unshift(() => control.node(node, 'start'))
}

test('orders are billed', async () => {
  await place(10)
  await (await till()).until(10)
  await has('payments', 10)
})

test('a leader that moved is asked again', async () => {
  const rule = await control.rule({ api: 'Produce', topic: 'orders', error: 'NOT_LEADER_OR_FOLLOWER', times: 2 })
  assert.equal(await shop.place('ada', 1), 0)
  assert.equal(await rule.hits(), 2)
})

test('an order whose answer is lost is there once', async () => {
  const rule = await control.rule({ api: 'Produce', topic: 'orders', disconnect: 'after', after_work: true, times: 1 })
  await shop.place('ada', 1)
  assert.equal(await rule.hits(), 1)
  assert.equal(await shop.place('ada', 2), 1, 'the next one is the second')
})

test('a slow broker is not waited for without end', async () => {
  const rule = await control.rule({ api: 'Produce', topic: 'orders', hold: true })
  await assert.rejects(shop.place('ada', 1, 300), NotPlaced)
  await rule.release()
  await shop.place('ada', 2)
})

test('an order is placed when the brokers have it and not before', async () => {
  const rule = await control.rule({ api: 'Produce', topic: 'orders', hold: true })
  let placed = false
  const placing = shop.place('ada', 1).then(() => {
    placed = true
  })
  await rule.waitHit()
  assert.equal(placed, false)
  await rule.release()
  await placing
})

test('two tills share the work', async () => {
  const tills = [await till('till-1'), await till('till-2')] as const
  await control.wait({ group: 'tills', members: 2, state: 'Stable' })
  await place(40)
  await has('payments', 40)
  assert.ok(tills[0].billed > 0 && tills[1].billed > 0, `${tills[0].billed} and ${tills[1].billed}`)
  assert.equal(tills[0].billed + tills[1].billed, 40)
})

test('a till goes on where the one before has stopped', async () => {
  const first = await till('till-1')
  await place(3)
  await first.until(3)
  await first.close()
  for (let number = 3; number < 5; number++) await shop.place(`customer-${number}`, number)
  await (await till('till-2')).until(2)
  await has('payments', 5)
})

test('a till that dies before its commit has billed nothing', async () => {
  await place(1)
  const dead = await till('till-1', true)
  await dead.until(1)
  await dead.close()
  await (await till('till-1')).until(1)
  await has('payments', 1)
})

test('a transaction is not left open for ever', async (t) => {
  const reason = await control.reason('POST /v1/clock')
  if (reason) return t.skip(reason)
  await place(1)
  await (await till('till-1', true)).until(1)
  assert.equal((await control.state()).transactions[0]?.state, 'Ongoing')
  await control.advance('80s')
  assert.equal((await control.state()).transactions[0]?.state, 'CompleteAbort')
})

test('a coordinator that loads is waited for', async () => {
  await place(1)
  const rule = await control.rule({ api: 'TxnOffsetCommit', error: 'COORDINATOR_LOAD_IN_PROGRESS', times: 2 })
  await (await till()).until(1)
  assert.equal(await rule.hits(), 2)
  await has('payments', 1)
})

test('what cannot be read does not stop the till', async () => {
  await place(1)
  const poison = connected(servers, 'vandal').producer()
  await poison.connect()
  const values = [Buffer.from([255]), '{}', '[]']
  await poison.send({ topic: 'orders', messages: values.map((value) => ({ value })) })
  await poison.disconnect()
  await (await till()).until(4)
  await has('orders.dead', 3)
  await has('payments', 1)
})

test('a broker dies and orders go on', async () => {
  const only = await till()
  await place(5)
  await only.until(5)
  await killed(await leader('orders'))
  for (let number = 5; number < 10; number++) await shop.place(`customer-${number}`, number)
  await only.until(10)
  await has('payments', 10)
})

test('a leader dies with an order in its hands', async () => {
  const rule = await control.rule({ api: 'Produce', topic: 'orders', node: 'kill', after_work: true, times: 1 })
  await shop.place('ada', 1)
  assert.equal(await rule.hits(), 1)
  const dead = (await control.state()).nodes.find((node) => !node.running)
  assert.ok(dead)
  await control.node(dead.node, 'start')
  await has('orders', 1)
})

test('a broker that stands still for a moment loses nothing', async () => {
  await place(3)
  const rule = await control.rule({ api: 'Produce', topic: 'payments', node: 'freeze', times: 1 })
  const only = await till()
  await rule.waitHit()
  assert.equal(only.billed, 0)
  await rule.release()
  await only.until(3)
  await has('payments', 3)
})

test('the controller dies and orders go on', async () => {
  await place(3)
  const only = await till()
  await only.until(1)
  const controller = (await control.state()).nodes.find((node) => node.controller)
  assert.ok(controller)
  await killed(controller.node)
  await control.wait({ controller: 'any' })
  await control.topic('returns', 2, 2)
  await only.until(3)
  await has('payments', 3)
})

test('orders become more partitions in the middle', async () => {
  const only = await till()
  await place(10)
  await only.until(5)
  await control.resize('orders', 8)
  for (let number = 10; number < 20; number++) await shop.place(`customer-${number}`, number)
  await only.until(20)
  await has('payments', 20)
})
