// The control plane of `anabranch up --control`: each call is one request over HTTP.

export type Rule = Record<string, unknown>

export interface State {
  nodes: { node: number; host: string; port: number; running: boolean; controller?: boolean }[]
  topics: { topic: string; partitions: { partition: number; leader: number }[] }[]
  groups: { group: string; members: string[] }[]
  transactions: { state: string }[]
}

export class Control {
  constructor(readonly url = process.env.ANABRANCH_CONTROL ?? 'http://127.0.0.1:9190') {}

  async ask<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
    const answer = await fetch(this.url + path, { method, body: body === undefined ? undefined : JSON.stringify(body) })
    if (!answer.ok) throw new Error(`${method} ${path}: ${await answer.text()}`)
    return (await answer.json()) as Answer
  }

  reset = () => this.ask('POST', '/v1/state/reset')
  state = () => this.ask<State>('GET', '/v1/state')
  topic = (topic: string, partitions: number, replicas = -1) =>
    this.ask('POST', '/v1/topics', { topic, partitions, replicas })
  resize = (topic: string, partitions: number) => this.ask('POST', `/v1/topics/${topic}/partitions`, { partitions })
  node = (node: number, what: 'kill' | 'stop' | 'start' | 'freeze' | 'thaw') =>
    this.ask('POST', `/v1/nodes/${node}/${what}`)
  advance = (span: string) => this.ask('POST', '/v1/clock', { advance: span })

  /** Why this cluster cannot serve a request, such as "POST /v1/clock"; empty if it can. */
  async reason(request: string): Promise<string> {
    const told = await this.ask<{ requests: { name: string; reason: string }[] }>('GET', '/v1/capabilities')
    return told.requests.find((one) => one.name === request)?.reason ?? ''
  }

  /** Wait until a condition holds, such as { topic: 'orders', isr: '3+' }. */
  wait = (condition: Record<string, string | number>) =>
    this.ask('GET', `/v1/wait?${new URLSearchParams(Object.entries(condition).map(([word, said]) => [word, `${said}`]))}`)

  /** A rule of faults: see docs/faults.md for its fields. */
  async rule(rule: Rule): Promise<ArmedRule> {
    return new ArmedRule(this, (await this.ask<{ name: string }>('POST', '/v1/faults', rule)).name)
  }
}

export class ArmedRule {
  constructor(
    readonly control: Control,
    readonly name: string,
  ) {}

  hits = async () => (await this.control.ask<{ hits: number }>('GET', `/v1/faults/${this.name}`)).hits
  waitHit = () => this.control.ask('GET', `/v1/faults/${this.name}/wait`)
  release = () => this.control.ask('POST', `/v1/faults/${this.name}/release`)
}
