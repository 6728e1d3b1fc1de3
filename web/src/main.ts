// The page: asks the daemon each second, shows what it says, and passes on what is pressed.

import { Api, Failure, type DaemonEvent, type Flows, type GatewayClients, type Heard, type Neighbourhood, type Network, type Radio, type Rule, type Status } from "./api.js";
import { byId, cells, confirmed, element, fill, Rows, setAttribute, setText } from "./dom.js";
import { FlowTable } from "./flows.js";
import { bytes, clock, rate } from "./format.js";
import { GatewayView } from "./gateway.js";
import { draw, type Figure, stroke, top } from "./graph.js";
import { History } from "./history.js";
import { NetworkCards } from "./networks.js";
import { RadioView } from "./radio.js";

const EACH_MS = 1_000;
/** While nobody looks. */
const HIDDEN_MS = 10_000;
/** Rules, neighbours and clients change seldom. */
const SELDOM = 3;
/** A machine without a radio is asked for one this often, in rounds. */
const NO_RADIO_ROUNDS = 15;
/** Events on the page; older ones go. */
const MOST_EVENTS = 300;
const TOKEN = "anabranch-token";

function takeToken(): string | null {
  const given = /^#token=([a-z2-7]+)$/.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem(TOKEN, given);
    // The address line and the history keep no secret.
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(TOKEN);
}

class Page {
  private readonly past = new History();
  private readonly figures: Figure[] = [
    { canvas: byId<HTMLCanvasElement>("graph-in"), pick: (point) => point.receiving, stacked: true, least: 1e6, label: rate },
    { canvas: byId<HTMLCanvasElement>("graph-out"), pick: (point) => point.sending, stacked: true, least: 1e6, label: rate },
    { canvas: byId<HTMLCanvasElement>("graph-rtt"), pick: (point) => point.rtt, stacked: false, least: 2e4, label: (value) => `${(value / 1e3).toFixed(0)} ms` },
    { canvas: byId<HTMLCanvasElement>("graph-loss"), pick: (point) => point.loss, stacked: false, least: 0.02, label: (value) => `${(value * 100).toFixed(0)} %` },
  ];
  private readonly cards = new NetworkCards(byId("networks"), (name, change) =>
    this.act(async () => {
      await this.api.request("PUT", `/v1/networks/${encodeURIComponent(name)}`, change);
      return `${name} is changed until the daemon ends`;
    }),
  );
  private readonly flows = new FlowTable(byId("flows"), byId<HTMLInputElement>("flow-filter"), byId("flow-summary"), (host) => {
    byId<HTMLInputElement>("pin-destination").value = host;
    byId("pin-network").focus();
  });
  private readonly radioView = new RadioView(byId("slots"), byId("radio-networks"), byId("heard"), byId("radio-summary"));
  private readonly gatewayView: GatewayView;
  private readonly legend: Rows<string>;
  private readonly events: Rows<DaemonEvent>;
  private readonly rules: Rows<Rule>;
  private readonly neighbours: Rows<Neighbourhood["neighbours"][number]>;
  private recent: DaemonEvent[] = [];
  private round = 0;
  private isOver = false;
  private radioMissing = 0;
  private role: Status["role"] | null = null;
  private readonly still = matchMedia("(prefers-reduced-motion: reduce)");

  constructor(private readonly api: Api) {
    this.gatewayView = new GatewayView(api, (what) => this.act(what));
    this.legend = new Rows(
      byId("legend"),
      (name) => name,
      (name) => element("li", {}, element("span", { class: "key" }), name),
      (row, name) => {
        const index = [...this.past.networks.keys()].indexOf(name);
        row.querySelector<HTMLElement>(".key")?.style.setProperty("background", stroke(index).colour);
      },
    );
    this.events = new Rows(
      byId("events"),
      (event) => String(event.sequence),
      (event) => element("li", { "data-kind": event.kind }, element("time", {}, clock(event.time)), ` ${event.text}`),
      () => {},
    );
    this.rules = new Rows(
      byId("rules"),
      (rule) => rule.name,
      (rule) => {
        const row = cells(4);
        const press = (): Promise<void> => this.unpin(rule.name);
        const button = element("button", { type: "button", class: "danger", "aria-label": `Remove ${rule.name}`, onclick: () => void press() }, "Remove");
        row.append(element("td", {}, rule.origin === "pin" ? button : null));
        return row;
      },
      (row, rule) => fill(row, [rule.name, rule.matches, rule.decides, rule.remark ?? ""]),
    );
    this.neighbours = new Rows(
      byId("neighbours"),
      (neighbour) => neighbour.name,
      (neighbour) => {
        const row = cells(3);
        const press = (): Promise<void> => this.forget(neighbour.name);
        row.append(element("td", {}, element("button", { type: "button", class: "danger", onclick: () => void press() }, "Forget")));
        return row;
      },
      (row, neighbour) => fill(row, [neighbour.name, neighbour.addresses.join(" "), neighbour.network ?? "not near"]),
    );
    this.wire();
  }

  /** Asks again and again; never twice at once, so that a slow daemon is not asked more. */
  async run(): Promise<void> {
    this.animate();
    while (!this.isOver) {
      const begun = performance.now();
      await this.refresh();
      const pause = (document.hidden ? HIDDEN_MS : EACH_MS) - (performance.now() - begun);
      await new Promise((done) => setTimeout(done, Math.max(pause, EACH_MS / 4)));
    }
  }

  private async refresh(): Promise<void> {
    try {
      const status = await this.api.get<Status>("/v1/status");
      this.showStatus(status);
      await this.showEvents();
      if (status.role === "device") await this.showDevice();
      else this.gatewayView.show(await this.api.get<GatewayClients>("/v1/gateway/clients"));
      byId("trouble").hidden = true;
    } catch (error) {
      this.trouble(error);
    }
    this.round++;
  }

  private showStatus(status: Status): void {
    if (this.role !== status.role) {
      this.role = status.role;
      setAttribute(document.body, "data-role", status.role);
      document.title = `${status.name} – Anabranch`;
    }
    setText(byId("name"), status.name);
    setText(byId("state"), status.state.replace("-", " "));
    setAttribute(byId("state"), "data-state", status.state);
    setText(byId("why"), status.why);
    const far = status.far_end ? ` through ${status.far_end.name}` : "";
    const clients = status.connected_clients === null ? "" : `, ${status.connected_clients} devices connected`;
    const { traffic } = status;
    setText(
      byId("traffic"),
      `${status.interface} ${status.addresses.join(" ")}${far}${clients}: out ${rate(traffic.sending)} (${bytes(traffic.sent)}), in ${rate(traffic.receiving)} (${bytes(traffic.received)})`,
    );
    setText(byId("gain"), proof(status));
    this.cards.show(status.networks);
    this.past.add(status, performance.now());
    this.legend.show([...this.past.networks.keys()]);
    this.describeGraphs(status.networks);
    const options = byId("pin-network");
    const names = status.networks.map((network) => network.name);
    if ([...options.children].map((option) => option.textContent).join("\n") !== names.join("\n")) {
      options.replaceChildren(...names.map((name) => element("option", {}, name)));
    }
  }

  /** The graphs in words, for who cannot see them. */
  private describeGraphs(networks: readonly Network[]): void {
    const each = (text: (network: Network) => string): string => networks.map((network) => `${network.name} ${text(network)}`).join(", ");
    const sum = (network: Network, way: "sending" | "receiving"): string =>
      rate(network.paths.reduce((total, path) => total + path.traffic[way], 0));
    const words = [
      `Received over the last three minutes; now ${each((network) => sum(network, "receiving"))}`,
      `Sent over the last three minutes; now ${each((network) => sum(network, "sending"))}`,
      "Round-trip time of each network over the last three minutes",
      "Loss of each network over the last three minutes",
    ];
    this.figures.forEach((figure, index) => {
      setAttribute(figure.canvas, "aria-label", `${words[index]}. Scale up to ${figure.label(top(this.past, figure))}.`);
    });
  }

  private async showEvents(): Promise<void> {
    const last = this.recent[0]?.sequence ?? 0;
    const fresh = await this.api.get<DaemonEvent[]>(`/v1/events?since=${last}`);
    // A daemon that was started anew counts from one again.
    const restarted = fresh.length === 0 && last > 0 && this.round % SELDOM === 0;
    if (restarted) {
      const all = await this.api.get<DaemonEvent[]>("/v1/events?since=0");
      if ((all[all.length - 1]?.sequence ?? 0) < last) this.recent = [...all].reverse();
    }
    this.recent = [...fresh.reverse(), ...this.recent].slice(0, MOST_EVENTS);
    this.events.show(this.recent);
  }

  private async showDevice(): Promise<void> {
    if (!byId<HTMLDetailsElement>("flow-section").open) {
      setText(byId("flow-summary"), "");
    } else {
      this.flows.show(await this.api.get<Flows>("/v1/flows"));
    }
    if (this.round % SELDOM === 0) {
      this.rules.show(await this.api.get<Rule[]>("/v1/rules"));
      const around = await this.api.get<Neighbourhood>("/v1/neighbours");
      this.neighbours.show(around.neighbours);
      setText(byId("own-key"), around.public_key);
    }
    if (this.radioMissing > 0) {
      this.radioMissing--;
      return;
    }
    try {
      this.radioView.show(await this.api.get<Radio>("/v1/radio"));
      byId("radio").hidden = false;
    } catch (error) {
      if (!(error instanceof Failure) || error.code === "unreachable") throw error;
      byId("radio").hidden = true;
      this.radioMissing = NO_RADIO_ROUNDS;
    }
  }

  private animate(): void {
    let drawn = 0;
    const frame = (now: number): void => {
      const isStill = this.still.matches;
      // Who wants no motion gets one picture a second.
      if (!document.hidden && !(isStill && drawn === this.past.sampledAt)) {
        const slide = isStill ? 1 : Math.min((now - this.past.sampledAt) / EACH_MS, 1);
        for (const figure of this.figures) draw(figure, this.past, slide);
        drawn = this.past.sampledAt;
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  private trouble(error: unknown): void {
    const box = byId("trouble");
    setText(box, error instanceof Error ? error.message : String(error));
    box.hidden = false;
    if (error instanceof Failure && error.code === "not-allowed") {
      sessionStorage.removeItem(TOKEN);
      setText(byId("entry-trouble"), error.message);
      byId("page").hidden = true;
      byId("entry").hidden = false;
      this.isOver = true;
    }
  }

  /** Does something that was pressed, and says how it went. */
  private async act(what: () => Promise<string>): Promise<void> {
    const place = byId("done");
    try {
      setText(place, await what());
    } catch (error) {
      setText(place, error instanceof Error ? error.message : String(error));
    }
    await this.refresh();
  }

  private wire(): void {
    byId<HTMLFormElement>("pin").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.pin();
    });
    byId<HTMLFormElement>("meet").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.meet();
    });
    byId("scan").addEventListener("click", () => {
      void this.act(async () => {
        const heard = await this.api.request<Heard[]>("POST", "/v1/radio/scan");
        this.radioView.showHeard(heard);
        return `${heard.length} networks are heard`;
      });
    });
    byId("down").addEventListener("click", () => void this.down());
    byId<HTMLDetailsElement>("flow-section").addEventListener("toggle", () => void this.refresh());
  }

  private async pin(): Promise<void> {
    const wanted = byId<HTMLInputElement>("pin-destination").value.trim();
    const isAddress = /^[0-9a-f:.]+(\/\d+)?$/i.test(wanted) && /[.:]/.test(wanted);
    const treatment = byId<HTMLSelectElement>("pin-treatment").value || null;
    const network = byId<HTMLSelectElement>("pin-network").value;
    const networks = treatment === null || treatment === "direct" ? [network] : [];
    const prefix = wanted.includes("/") ? wanted : `${wanted}/${wanted.includes(":") ? 128 : 32}`;
    const flows = isAddress ? { destination: prefix } : { domain: wanted };
    await this.act(async () => {
      const rule = await this.api.request<Rule>("POST", "/v1/rules", { ...flows, hold: { networks, treatment } });
      return `${rule.name}: ${rule.matches}: ${rule.decides}`;
    });
  }

  private async unpin(name: string): Promise<void> {
    await this.act(async () => {
      await this.api.request("DELETE", `/v1/rules/${encodeURIComponent(name)}`);
      return `${name} is removed`;
    });
  }

  private async meet(): Promise<void> {
    const name = byId<HTMLInputElement>("meet-name").value.trim();
    const public_key = byId<HTMLInputElement>("meet-key").value.trim();
    await this.act(async () => {
      await this.api.request("PUT", `/v1/neighbours/${encodeURIComponent(name)}`, { public_key });
      return `${name} is known now`;
    });
  }

  private async forget(name: string): Promise<void> {
    if (!(await confirmed(`${name}'s key will not be known any more.`, "Forget"))) return;
    await this.act(async () => {
      await this.api.request("DELETE", `/v1/neighbours/${encodeURIComponent(name)}`);
      return `${name} is forgotten`;
    });
  }

  private async down(): Promise<void> {
    const question = "The daemon takes back what it changed on this machine, and ends. This page ends with it.";
    if (!(await confirmed(question, "Bring it down"))) return;
    await this.act(async () => {
      const report = await this.api.request<{ undone: string[] }>("POST", "/v1/down");
      return `down; ${report.undone.length} changes were taken back`;
    });
  }
}

/** The proof of gain, in a sentence. */
function proof(status: Status): string {
  const { gain } = status;
  if (!gain) return "";
  const way = gain.direction === "sending" ? "out" : "in";
  const alone = rate(gain.best_alone);
  return gain.best_alone > gain.bonded
    ? `Bonded ${rate(gain.bonded)} ${way}; ${gain.network} alone could carry it too (${alone})`
    : `Bonded ${rate(gain.bonded)} ${way}; best network (${gain.network}) alone would be ${alone}`;
}

function start(): void {
  const token = takeToken();
  const isIn = token !== null;
  byId("entry").hidden = isIn;
  byId("page").hidden = !isIn;
  byId<HTMLFormElement>("enter").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, byId<HTMLInputElement>("token").value.trim());
    location.reload();
  });
  if (isIn) void new Page(new Api(token)).run();
}

window.addEventListener("hashchange", () => location.reload());
start();
