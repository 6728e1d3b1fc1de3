// What each network did in the last minutes. The page keeps it; it is gone with the page.

import type { Network, Status } from "./api.js";

/** One second of one network. */
export interface Point {
  sending: number;
  receiving: number;
  rtt: number | null;
  loss: number | null;
}

/** Seconds that are kept. */
export const KEPT = 180;
/** Networks that are kept; more are not drawn. */
const MOST_NETWORKS = 64;

const NOTHING: Point = { sending: 0, receiving: 0, rtt: null, loss: null };

/** A network's figures in one sample: those of its paths, else those of its direct flows. */
export function point(network: Network): Point {
  const answering = network.paths.filter((path) => path.rtt_us !== null);
  const rtts = answering.map((path) => path.rtt_us as number);
  const rtt = rtts.length > 0 ? Math.min(...rtts) : network.direct?.rtt_us;
  const loss = answering.length > 0 ? Math.max(...answering.map((path) => path.loss)) : network.direct?.loss;
  const sum = (pick: (path: Network["paths"][number]) => number): number =>
    network.paths.reduce((total, path) => total + pick(path), 0);
  const sending = sum((path) => path.traffic.sending);
  const receiving = sum((path) => path.traffic.receiving);
  const isIdle = sending + receiving === 0;
  return {
    sending,
    // Direct flows are counted in the busier direction only.
    receiving: isIdle ? (network.direct?.load ?? 0) : receiving,
    rtt: rtt ?? null,
    loss: network.connected ? (loss ?? null) : null,
  };
}

export class History {
  /** Latest last; all of one length. */
  readonly networks = new Map<string, Point[]>();
  private length = 0;
  /** When the last sample came, in the clock of animation frames. */
  sampledAt = 0;

  add(status: Status, now: number): void {
    this.sampledAt = now;
    this.length = Math.min(this.length + 1, KEPT);
    const seen = new Map(status.networks.map((network) => [network.name, network]));
    for (const name of seen.keys()) {
      if (!this.networks.has(name) && this.networks.size < MOST_NETWORKS) {
        this.networks.set(name, new Array<Point>(this.length - 1).fill(NOTHING));
      }
    }
    for (const [name, points] of this.networks) {
      const network = seen.get(name);
      points.push(network ? point(network) : NOTHING);
      if (points.length > KEPT) points.shift();
      if (!network && points.every((past) => past === NOTHING)) this.networks.delete(name);
    }
  }
}
