// The networks: what each does, why, and what can be changed.

import type { Network, NetworkChange } from "./api.js";
import { confirmed, element, Rows, setAttribute, setText } from "./dom.js";
import { millis, percent, rate } from "./format.js";
import { stroke } from "./graph.js";
import { point } from "./history.js";

export type Change = (network: string, change: NetworkChange) => Promise<void>;

const LARGEST_PRIORITY = 255;

export class NetworkCards {
  private readonly rows: Rows<Network>;
  private latest: readonly Network[] = [];

  constructor(
    parent: HTMLElement,
    private readonly change: Change,
  ) {
    this.rows = new Rows(
      parent,
      (network) => network.name,
      (network) => this.make(network.name),
      (card, network) => this.update(card, network),
    );
  }

  show(networks: readonly Network[]): void {
    this.latest = networks;
    this.rows.show(networks);
  }

  private find(name: string): Network | undefined {
    return this.latest.find((network) => network.name === name);
  }

  private make(name: string): HTMLElement {
    const figure = (label: string, key: string): HTMLElement =>
      element("div", {}, element("dt", {}, label), element("dd", { "data-key": key }));
    const press = (label: string, key: string, what: (network: Network) => Promise<void> | void): HTMLElement =>
      element("button", {
        type: "button",
        "data-key": key,
        "aria-label": `${label}, ${name}`,
        onclick: () => {
          const network = this.find(name);
          if (network) void what(network);
        },
      }, label);
    const toggle = (label: string, key: "backup" | "metered" | "off"): HTMLElement =>
      press(label, key, (network) => this.toggle(network, key));
    return element(
      "article",
      { class: "network", "aria-label": `Network ${name}` },
      element("h3", {}, element("span", { class: "key", "aria-hidden": "true" }), name, element("span", { class: "state", "data-key": "state" })),
      element("p", { class: "why", "data-key": "why" }),
      element(
        "dl",
        {},
        figure("out", "sending"),
        figure("in", "receiving"),
        figure("share", "share"),
        figure("round trip", "rtt"),
        figure("loss", "loss"),
        figure("can send", "rate"),
        figure("under way", "queue"),
        figure("signal", "signal"),
        figure("priority", "priority"),
      ),
      element(
        "div",
        { class: "row", role: "group", "aria-label": `Settings of ${name}` },
        press("Sooner", "sooner", (network) => this.prefer(network, -1)),
        press("Later", "later", (network) => this.prefer(network, 1)),
        toggle("Backup", "backup"),
        toggle("Metered", "metered"),
        toggle("Off", "off"),
      ),
    );
  }

  private prefer(network: Network, by: number): Promise<void> {
    const priority = Math.min(Math.max(network.priority + by, 0), LARGEST_PRIORITY);
    return this.change(network.name, { priority });
  }

  private async toggle(network: Network, key: "backup" | "metered" | "off"): Promise<void> {
    const others = this.latest.filter((other) => other !== network && other.connected && !other.off);
    if (key === "off" && !network.off && others.length === 0) {
      const question = `${network.name} is the last network in use. Without it nothing gets out.`;
      if (!(await confirmed(question, "Switch it off"))) return;
    }
    await this.change(network.name, { [key]: !network[key] });
  }

  private update(card: HTMLElement, network: Network): void {
    const now = point(network);
    const share = network.paths.reduce((sum, path) => sum + (path.share ?? 0), 0);
    const expected = network.paths.map((path) => path.rate).filter((value) => value !== null);
    const queue = network.paths.reduce((sum, path) => sum + path.in_flight, 0);
    const trouble = network.paths.find((path) => path.health === "suspect" || path.health === "dead");
    const texts: Record<string, string> = {
      state: network.connected ? (trouble ? trouble.health : network.status) : "not connected",
      why: trouble ? trouble.why : (network.paths[0]?.why ?? network.direct?.why ?? network.why),
      sending: rate(now.sending),
      receiving: rate(now.receiving),
      share: network.paths.length > 0 ? percent(share) : percent(network.direct?.share),
      rtt: millis(now.rtt),
      loss: percent(now.loss, 1),
      rate: rate(expected.length > 0 ? Math.max(...expected) : null),
      queue: network.paths.length > 0 ? `${(queue / 1e3).toFixed(0)} kB` : "–",
      signal: network.direct?.wifi?.signal_dbm ? `${network.direct.wifi.signal_dbm} dBm` : "–",
      priority: String(network.priority),
    };
    for (const [key, text] of Object.entries(texts)) {
      const place = card.querySelector(`[data-key="${key}"]`);
      if (place) setText(place, text);
    }
    setAttribute(card, "data-state", network.connected ? (trouble ? "trouble" : network.status) : "gone");
    for (const key of ["backup", "metered", "off"] as const) {
      const button = card.querySelector(`button[data-key="${key}"]`);
      if (button) setAttribute(button, "aria-pressed", String(network[key]));
    }
    const index = this.latest.indexOf(network);
    card.querySelector<HTMLElement>(".key")?.style.setProperty("background", stroke(index).colour);
  }
}
