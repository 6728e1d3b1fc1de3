// The control API as the daemon answers it (docs/api.md), and how it is asked.

export interface Traffic {
  sent: number;
  received: number;
  sending: number;
  receiving: number;
}

export interface Path {
  id: number;
  remote: string;
  carrier: string;
  status: Use;
  health: "validating" | "good" | "suspect" | "dead";
  why: string;
  rate: number | null;
  rtt_us: number | null;
  min_rtt_us: number | null;
  loss: number;
  in_flight: number;
  share: number | null;
  traffic: Traffic;
}

export type Use = "active" | "backup" | "off";

export interface Direct {
  share: number;
  why: string;
  rtt_us?: number;
  load: number;
  loss: number;
  portal?: string;
  wifi?: { ssid: string | null; bssid: string; channel: number | null; signal_dbm: number | null };
}

export interface Network {
  name: string;
  connected: boolean;
  status: Use;
  why: string;
  priority: number;
  backup: boolean;
  metered: boolean;
  off: boolean;
  paths: Path[];
  direct?: Direct;
}

export interface Gain {
  direction: "sending" | "receiving";
  bonded: number;
  best_alone: number;
  network: string;
}

export interface Status {
  version: string;
  role: "device" | "gateway";
  name: string;
  state: string;
  why: string;
  interface: string;
  addresses: string[];
  far_end: { name: string } | null;
  connected_clients: number | null;
  traffic: Traffic;
  gain?: Gain;
  networks: Network[];
}

export interface NetworkChange {
  priority?: number;
  backup?: boolean;
  metered?: boolean;
  off?: boolean;
}

export interface Flow {
  protocol: string;
  source: string;
  destination: string;
  program: string | null;
  treatment: string;
  network: string | null;
  sending: number | null;
  receiving: number | null;
  rtt_us: number | null;
  why: string;
}

export interface Flows {
  flows: Flow[];
  left_out: number;
  remarks: string[];
}

export interface DaemonEvent {
  sequence: number;
  time: number;
  kind: string;
  subject?: string;
  text: string;
}

export interface Rule {
  name: string;
  origin: string;
  matches: string;
  decides: string;
  remark: string | null;
}

export interface RadioNetwork {
  ssid: string;
  interface: string;
  state: string;
  channel?: number;
  signal_dbm?: number;
  share: number;
  slot_us: number;
  queue: number;
  given_up: boolean;
}

export interface Radio {
  channel?: number;
  trouble?: string;
  networks: RadioNetwork[];
}

export interface Heard {
  ssid: string | null;
  bssid: string;
  channel?: number;
  signal_dbm?: number;
  security: string;
  known: boolean;
}

export interface Neighbourhood {
  on: boolean;
  public_key: string;
  neighbours: { name: string; addresses: string[]; network: string | null; links: { network: string; last_seen_us: number }[] }[];
}

export interface GatewayClients {
  clients: {
    name: string;
    addresses: string[];
    connected: boolean;
    traffic: Traffic;
    forwards: Forward[];
    allowance: Allowance;
  }[];
  invitations: { name: string; expires: number; expired: boolean }[];
}

/** What a client may carry. */
export interface Allowance {
  rate: number | null;
  quota: number | null;
  used: number;
  slowed: boolean;
}

/** Keys of a configuration that was read anew. */
export interface ReloadReport {
  applied: string[];
  after_restart: string[];
}

export interface Forward {
  client: string;
  port: number;
  device_port: number;
  protocol: "tcp" | "udp";
}

/** Why a request failed, in the daemon's words. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly code: string,
  ) {
    super(message);
  }
}

const PATIENCE_MS = 40_000;

/** Asks the daemon. */
export class Api {
  constructor(private readonly token: string) {}

  async get<T>(path: string): Promise<T> {
    return this.request<T>("GET", path);
  }

  async request<T>(method: string, path: string, body?: unknown): Promise<T> {
    let answer: Response;
    try {
      answer = await fetch(path, {
        method,
        headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
        signal: AbortSignal.timeout(PATIENCE_MS),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
    } catch {
      throw new Failure("the daemon does not answer; it may have ended, or starts again", "unreachable");
    }
    const told: unknown = await answer.json().catch(() => null);
    if (answer.ok) return told as T;
    const { code, message } = (told ?? {}) as { code?: string; message?: string };
    throw new Failure(message ?? `the daemon answers with status ${answer.status}`, code ?? "internal");
  }
}
